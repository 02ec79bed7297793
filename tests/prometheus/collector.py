"""`nodewarden collect --prometheus` as a process that prints what it would send."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from telemetry.codec import decode
from telemetry.records import Record, Rejected


def arguments(directory: Path, url: str, **settings: float) -> list[str]:
    """The command line of a collector with these settings."""
    config = directory / "collect.toml"
    lines = "".join(f"{key} = {value}\n" for key, value in settings.items())
    config.write_text(f"[prometheus]\n{lines}\n[collect]\nstate_dir = '{directory / 'state'}'\n")
    return [
        sys.executable, "-m", "nodewarden", "collect", "--prometheus", url, "--stdout",
        "--config", str(config),
    ]  # fmt: skip


def collected(directory: Path, url: str, **settings: float) -> list[Record]:
    """What one run over everything that is there now says."""
    done = subprocess.run(
        [*arguments(directory, url, **settings), "--once"],
        capture_output=True, timeout=120.0, check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr.decode()
    return records_of(done.stdout)


def records_of(lines: bytes) -> list[Record]:
    """Printed records."""
    records = [decode(line, "test") for line in lines.splitlines()]
    assert not [r for r in records if isinstance(r, Rejected)]
    return [r for r in records if not isinstance(r, Rejected)]
