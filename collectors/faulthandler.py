"""Python's faulthandler: the stacks of all threads after a fatal signal, a time-out or on demand.

It names neither the process nor its command; of each thread the frames stand innermost first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

FRAMES_MAX = 512
EXAMPLE = 'Current thread 0x00007f2a (most recent call first):\\n  File "wait.py", line 3 in wait'
HEADS = (b"Fatal Python error: ", b"(most recent call first):")

_THREAD = re.compile(
    r"(?P<current>Current thread|Thread) (?P<id>0x[0-9A-Fa-f]{1,16})"
    r"(?: \[(?P<name>[^\]]{1,64})\])? \(most recent call first\):"
)
_NO_THREAD = re.compile(r"Stack \(most recent call first\):")
_FRAME = re.compile(
    r'  File "(?P<file>.{0,1000})", line (?P<line>\d{1,9}|\?\?\?) in (?P<name>.{1,300})'
)
_REASON = re.compile(
    r"Fatal Python error: (?P<fatal>.{1,200})|Timeout \((?P<timeout>[\d:.]{1,20})\)!"
)


def is_dump(data: bytes) -> bool:
    """Whether it begins as one, or has a thread's head somewhere."""
    return any(head in data for head in HEADS)


def read_faulthandler(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """One object "stack" a thread; `reason` is why they were printed, None on demand."""
    reason: str | None = None
    stack: dict[str, Any] | None = None
    for line in lines:
        thread = _THREAD.match(line)
        if thread is not None or _NO_THREAD.match(line) is not None:
            if stack is not None:
                yield stack
            stack = _begin(thread, reason)
            continue
        frame = _FRAME.match(line)
        if frame is not None and stack is not None:
            if len(stack["frames"]) < FRAMES_MAX:
                stack["frames"].append(f"{frame['name']} ({frame['file']}:{frame['line']})")
                stack["top"] = stack["top"] or frame["name"]
            continue
        if stack is not None and not line.startswith("  "):
            yield stack
            stack = None
        said = _REASON.match(line)
        if said is not None:
            reason = said["fatal"] or f"Timeout ({said['timeout']})"
    if stack is not None:
        yield stack


def _begin(thread: re.Match[str] | None, reason: str | None) -> dict[str, Any]:
    current = thread is None or thread["current"].startswith("Current")
    return {
        "type": "stack", "node": None, "pid": None, "process": None, "role": None,
        "parent_pid": None, "python": None, "thread": thread["id"] if thread is not None else "",
        "os_thread": None, "name": thread["name"] if thread is not None else None,
        "state": "active" if current else None, "top": None, "frames": [], "reason": reason,
    }  # fmt: skip
