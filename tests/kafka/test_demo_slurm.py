"""`make demo-slurm` as a new user runs it: the loop is shown, and nothing is left running."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kafka.broker import Broker, free_port
from tests.slurm.cluster import free_base

pytestmark = [pytest.mark.kafka, pytest.mark.slurm, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "local" / "demo-slurm.sh"
PLAIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def test_the_demo_shows_the_loop_and_leaves_nothing(kafka: Broker, tmp_path: Path) -> None:
    assert kafka.address  # else there is no broker here, and the test was skipped
    if shutil.which("slurmctld", path=PLAIN_PATH) is None:
        pytest.skip("Slurm is not installed: deploy/local/slurm.sh install")
    # Not below pytest's own: Slurm's sockets would have too long names.
    with tempfile.TemporaryDirectory(prefix="demo-") as place:
        shown = demo(tmp_path, place)
        assert not any(Path(place).iterdir())
    assert re.search(r"node\d is drained, \d+\.\d+ s after the line", shown)
    assert "nodewarden:gpu_lost:" in shown
    assert "released by demo: it passed its check" in shown
    assert place not in running()


def demo(tmp_path: Path, place: str) -> str:
    """What it prints."""
    command = tmp_path / "nodewarden"
    command.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m nodewarden "$@"\n')
    command.chmod(0o755)
    environ = {
        **os.environ, "PORT": str(free_port()), "SLURM_BASE_PORT": str(free_base()),
        "NODEWARDEN": str(command), "TMPDIR": str(place),
    }  # fmt: skip
    done = subprocess.run(
        [str(SCRIPT)], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=300.0, check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def running() -> str:
    """The words of all processes."""
    words = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words.append(path.read_bytes().decode("utf-8", "replace"))
    return "\n".join(words)
