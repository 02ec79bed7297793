"""`make up-local` as a new user runs it: an incident is told, and `down` leaves nothing running."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.broker import Broker, BrokerMissing, free_port

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "local" / "cluster.sh"
SERVICES = ("inventory", "worker-0", "worker-1", "archive", "simulate")


def cluster(verb: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPT), verb], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=300.0, check=False,
    )  # fmt: skip


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
        **os.environ, "DIR": str(place), "PORT": str(free_port()), "NODEWARDEN": str(command),
        "NODES": "8", "FAULTS": "xid79@n003+20",
    }  # fmt: skip
    try:
        up = cluster("up", environ)
        assert 0 == up.returncode, up.stdout + up.stderr
        assert "gpu_lost" in up.stdout
        assert "n003" in up.stdout
        assert 0 == cluster("status", environ).returncode
        pids = [int((place / f"{name}.pid").read_text("ascii")) for name in SERVICES]
        assert 0 == cluster("up", environ).returncode  # once more changes nothing
        assert pids == [int((place / f"{name}.pid").read_text("ascii")) for name in SERVICES]
    finally:
        down = cluster("down", environ)
    assert 0 == down.returncode, down.stdout + down.stderr
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert 1 == cluster("status", environ).returncode
    for name in SERVICES:
        assert "Traceback" not in (place / f"{name}.log").read_text("utf-8")
