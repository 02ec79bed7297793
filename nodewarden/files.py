"""Writing files for people: whole or not at all, and one line where it cannot be done."""

from __future__ import annotations

import os
from pathlib import Path

from telemetry.errors import InputError


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` in one step. Raises InputError."""
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; choose another place") from error
