"""`make up-local` as a new user runs it: an incident is told, and `down` leaves nothing running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kafka.broker import Broker, BrokerMissing, free_port
from tests.kafka.service import nodewarden
from tests.processes import runs

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
DECIDED_MAX_S = 60.0
SCRIPT = ROOT / "deploy" / "local" / "cluster.sh"
SERVICES = ("inventory", "worker-0", "worker-1", "archive", "act", "simulate")


def cluster(verb: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPT), verb], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=300.0, check=False,
    )  # fmt: skip


def shown(place: Path) -> str:
    """What act says of the incident that it decided about first, asked as `up` says."""
    config = ("--config", str(place / "nodewarden.toml"))
    (found, *_) = json.loads(nodewarden("incidents", "--json", *config))["incidents"]
    token = (place / "token").read_text("ascii")
    end_s = time.monotonic() + DECIDED_MAX_S
    while True:
        done = subprocess.run(
            [sys.executable, "-m", "nodewarden", "show", found["id"], *config],
            cwd=ROOT, env={**os.environ, "NODEWARDEN_ACT__TOKEN": token}, capture_output=True,
            text=True, timeout=60.0, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            return done.stdout
        assert time.monotonic() < end_s, done.stderr
        time.sleep(0.5)


def test_up_tells_an_incident_and_down_leaves_nothing_running(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "try")  # skips, or fails in CI, where no broker can be run
    try:
        broker.start()
    except BrokerMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI needs a real broker: {missing}")
        pytest.skip(str(missing))
    broker.stop()
    command = tmp_path / "nodewarden"
    command.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m nodewarden "$@"\n')
    command.chmod(0o755)
    place = tmp_path / "local"
    environ = {
        **os.environ, "DIR": str(place), "PORT": str(free_port(16)), "NODEWARDEN": str(command),
        "NODES": "8", "FAULTS": "xid79@n003+20",
    }  # fmt: skip
    try:
        up = cluster("up", environ)
        assert 0 == up.returncode, up.stdout + up.stderr
        assert "gpu_lost" in up.stdout
        assert "n003" in up.stdout
        assert 0 == cluster("status", environ).returncode
        pids = [int((place / f"{name}.pid").read_text("ascii")) for name in SERVICES]
        assert "gpu_lost" in shown(place)
        assert 0 == cluster("up", environ).returncode  # once more changes nothing
        assert pids == [int((place / f"{name}.pid").read_text("ascii")) for name in SERVICES]
    finally:
        down = cluster("down", environ)
    assert 0 == down.returncode, down.stdout + down.stderr
    assert not any(runs(pid) for pid in pids)
    assert 1 == cluster("status", environ).returncode
    for name in SERVICES:
        assert "Traceback" not in (place / f"{name}.log").read_text("utf-8")
