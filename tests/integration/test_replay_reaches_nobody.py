"""A replay has no way out: a month of faults, every channel set, and not one call to outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evaluation.faults import parse_fault
from evaluation.simulator import Simulation
from evaluation.writers import write_archive
from telemetry.settings import EngineSettings, TickSettings

ROOT = Path(__file__).parents[2]
DAYS = 30
EVERY_S = 3_600.0  # thin: what is asked is what goes out, not what is found
KINDS = ("xid79", "thermal", "driver-hang", "xid13", "usercode", "ecn", "xid79", "thermal", "ecn")
# What Python does to reach another process or machine, by the names of its audit events.
GUARD = """
import sys

NO = ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.bind", "socket.getaddrinfo",
      "socket.gethostbyname", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn",
      "os.fork", "os.forkpty", "pty.spawn")

def guard(event, arguments):
    if event in NO:
        print("OUT", event, arguments, file=sys.stderr, flush=True)
        import os
        os._exit(99)

sys.addaudithook(guard)
"""
# Everything that acts and tells, at addresses where nobody is.
SETTINGS = """
[kafka]
brokers = ["192.0.2.1:9092"]
[act]
dry_run = false
executor = "slurm"
workers = ["http://192.0.2.1/metrics"]
inventory = "http://192.0.2.1/metrics"
[act.rails]
mode_default = "auto"
[act.silences]
url = "http://192.0.2.1:9093"
[notify]
file = "/nowhere/notify.toml"
[deadman]
url = "http://192.0.2.1/ping"
"""


def guarded(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", GUARD + code, *arguments], capture_output=True, text=True,
        check=False, timeout=600.0, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


REPLAY = "from nodewarden.__main__ import main\nmain()"


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.create_connection(('127.0.0.1', 9), 1)",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9')",
        "import subprocess; subprocess.run(['true'])",
    ],
)
def test_the_guard_sees_a_way_out(code: str) -> None:
    assert 99 == guarded(code).returncode


@pytest.mark.slow
def test_a_month_of_archives_is_replayed_without_a_call_to_anybody(tmp_path: Path) -> None:
    month_s = DAYS * 86_400.0
    faults = [
        parse_fault(f"{kind}@n{1 + place % 7:03}+{round((place + 1) * month_s / (len(KINDS) + 1))}")
        for place, kind in enumerate(KINDS)
    ]
    run = Simulation(
        8, 2, minutes=month_s / 60.0, seed=3, faults=faults, gpu_interval_s=EVERY_S,
        nic_interval_s=EVERY_S, step_time_s=EVERY_S / 2.0, rank_steps=False,
        settings=EngineSettings(ticks=TickSettings(beat_s=EVERY_S)),
    )  # fmt: skip
    write_archive(run, tmp_path / "month")
    settings = tmp_path / "nodewarden.toml"
    settings.write_text(SETTINGS)

    done = guarded(
        REPLAY, "replay", str(tmp_path / "month"), "--json", "--config", str(settings), "--report",
        str(tmp_path / "report.html"),
    )  # fmt: skip

    assert 0 == done.returncode, done.stderr
    found = json.loads(done.stdout)
    assert DAYS - 1 < found["summary"]["event_s"] / 86_400.0 <= DAYS
    assert any(one["verdict"]["action"] == "isolate_and_restart" for one in found["incidents"])
    assert any(one["verdict"]["action"] == "page" for one in found["incidents"])
    assert (tmp_path / "report.html").exists()
