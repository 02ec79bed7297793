"""Commands that a broker refuses: which there are, and the one line that each ends with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.kafka.service import ROOT

COMMAND_MAX_S = 60.0
ARCHIVE, JOBS, OUT = "ARCHIVE", "JOBS", "OUT"
# Of every client of Kafka one that ends by itself when it is refused.
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("topics", "check"),
    ("stream",),
    ("archive", "--out", OUT),
    ("inventory", "--once", "--from", JOBS),
    ("act",),
    ("import", ARCHIVE, "--kafka"),
    ("simulate", "--nodes", "8", "--minutes", "1", "--kafka"),
    ("incidents",),
    ("status",),
)
WRITERS = ("inventory", "import", "simulate")  # an agent may write what they write
_ADDRESSES = ("STREAM", "ARCHIVE", "INVENTORY", "ACT")


def command_line(number: int, inputs: Path, directory: Path) -> list[str]:
    """One of `COMMANDS` with its files: `archive` and `jobs.json` of `inputs`."""
    files = {ARCHIVE: inputs / "archive", JOBS: inputs / "jobs.json", OUT: directory / "out"}
    return [str(files.get(word, word)) for word in COMMANDS[number]]


def last_words(config: Path, *arguments: str) -> str:
    """What a command that ends with 3 said last; none of it is a traceback or a password."""
    environ = {f"NODEWARDEN_{name}__METRICS_ADDRESS": "" for name in _ADDRESSES}
    done = subprocess.run(
        [sys.executable, "-m", "nodewarden", *arguments, "--config", str(config)],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        env={**os.environ, **environ, "NODEWARDEN_ACT__ADDRESS": "127.0.0.1:0"},
        timeout=COMMAND_MAX_S,
    )  # fmt: skip
    assert 3 == done.returncode, done.stderr
    assert "Traceback" not in done.stderr
    assert "wrong-password" not in done.stdout + done.stderr
    ours = [line for line in done.stderr.splitlines() if line.startswith("nodewarden: ")]
    assert 1 == len(ours), done.stderr
    return ours[0]
