"""Where results go: a directory that is new or empty, and JSON files in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from telemetry.errors import InputError


def fresh_directory(out: Path) -> None:
    """Make `out`, or find it empty. Raises InputError otherwise: nothing is written over."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        occupied = next(out.iterdir(), None) is not None
    except OSError as error:
        raise InputError(f"{out}: {error.strerror}; choose a directory that can be made") from error
    if occupied:
        raise InputError(f"{out}: not empty; choose a new or empty directory")


def write_json(path: Path, value: Any) -> None:
    """`value` as indented JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
