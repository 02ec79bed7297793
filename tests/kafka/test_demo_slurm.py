"""`make demo-slurm` as a new user runs it: the loop is shown, and nothing is left running."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from tests.kafka.broker import Broker, free_port
from tests.slurm.cluster import free_base

pytestmark = [pytest.mark.kafka, pytest.mark.slurm, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "local" / "demo-slurm.sh"
PLAIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.fixture
def place(kafka: Broker) -> Iterator[str]:
    """Where it keeps its files; below pytest's own, Slurm's sockets would have too long names."""
    assert kafka.address  # else there is no broker here, and the test was skipped
    if shutil.which("slurmctld", path=PLAIN_PATH) is None:
        pytest.skip("Slurm is not installed: deploy/local/slurm.sh install")
    with tempfile.TemporaryDirectory(prefix="demo-") as place:
        yield place


def test_the_demo_shows_the_loop_and_leaves_nothing(place: str, tmp_path: Path) -> None:
    started = demo(tmp_path, place)
    shown, complaints = started.communicate(timeout=300.0)
    assert 0 == started.returncode, shown + complaints
    assert not any(Path(place).iterdir())
    assert re.search(r"node\d is drained, \d+\.\d+ s after the line", shown)
    assert "nodewarden:gpu_lost:" in shown
    assert "released by demo: it passed its check" in shown
    assert place not in running()


def test_an_impatient_end_leaves_nothing_running(place: str, tmp_path: Path) -> None:
    with demo(tmp_path, place) as started:
        shown_until(started.stdout, "an agent on each node")
        # As a terminal does it: the whole group, and once more while everything is taken down. Not
        # SIGINT, which a shell can never trap where it was started in the background.
        os.killpg(started.pid, signal.SIGTERM)
        shown_until(started.stderr, "everything is taken down")
        os.killpg(started.pid, signal.SIGTERM)
        shown, complaints = started.communicate(timeout=120.0)
    assert 143 == started.returncode, complaints
    assert f"logs and settings are in {place}" in shown
    assert place not in running()


def demo(tmp_path: Path, place: str) -> subprocess.Popen[str]:
    """The demo, begun, in a process group of its own."""
    command = tmp_path / "nodewarden"
    command.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m nodewarden "$@"\n')
    command.chmod(0o755)
    environ = {
        **os.environ, "PORT": str(free_port()), "SLURM_BASE_PORT": str(free_base()),
        "NODEWARDEN": str(command), "TMPDIR": str(place),
    }  # fmt: skip
    return subprocess.Popen(
        [str(SCRIPT)], env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def shown_until(stream: IO[str] | None, text: str) -> None:
    assert stream is not None
    assert any(text in line for line in stream), f"it ended before it said: {text}"


def running() -> str:
    """The words of all processes."""
    words = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words.append(path.read_bytes().decode("utf-8", "replace"))
    return "\n".join(words)
