"""Finds the few lines of a log that can say something, without making lines of the rest."""

from __future__ import annotations

from collections.abc import Iterator

# Each stands in every line of some form, or of what the fold keeps (restarts, tracebacks).
MARKERS = (
    b"iteration", b"loss", b"Loss", b"%|", b":::MLLOG", b"] [#", b'"_step"', b"step=",
    b"OVERFLOW", b"(Perf: ", b"before the start of training",
    b"rror", b"ERROR", b"xception", b"Traceback", b"what():", b"terminate called", b"NCCL WARN",
    b"atchdog", b"ProcessGroupNCCL.cpp", b"NCCL work", b"exitcode", b"CANCELLED", b"oom",
    b" Killed", b" Terminated", b"  File \"", b"Interrupt", b"SystemExit", b"Root Cause",
    b"entire process down",
)  # fmt: skip


def starts(block: bytes) -> Iterator[int]:
    """Where lines that hold a marker start, ascending, each once."""
    found = [mark for mark in MARKERS if mark in block]
    if not found:
        return
    lines: set[int] = set()
    for mark in found:
        at = block.find(mark)
        while at >= 0:
            lines.add(block.rfind(b"\n", 0, at) + 1)
            end = block.find(b"\n", at)
            at = block.find(mark, end) if end >= 0 else -1
    yield from sorted(lines)
