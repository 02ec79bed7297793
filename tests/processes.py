"""Processes that tests start by way of a script."""

from __future__ import annotations

from pathlib import Path


def runs(pid: int) -> bool:
    """Whether it has not ended; one that nobody has taken note of has."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except FileNotFoundError:
        return False
    return not stat.rpartition(") ")[2].startswith("Z")
