"""DLRover's xpu_timer: kernel times per rank, and whether a rank hangs, as Prometheus text.

A hang flag at some ranks is no hang of the job: only all ranks are. Kernel times differ by `level`
(the shape), not by rank, so ranks are compared within one level. xpu_timer counts microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

LINES_MAX = 1_000_000
EXAMPLE = 'XPU_TIMER_COMMON_HANG{ip="10.36.23.0",local_rank="4",pod_name="w-0",rank="4"} 1'

_LINE = re.compile(
    r"XPU_TIMER_(?P<name>[A-Z0-9_]{1,80})\{(?P<labels>.{0,4000})\} (?P<value>\S{1,40})"
)
_LABEL = re.compile(r'(\w{1,40})="([^"\\]{0,253})"')
_KERNEL = re.compile(r"(?P<kind>[A-Z0-9]+)_KERNEL_(?P<what>AVG|MAX|MIN|P99)_LATENCY")
_THROUGHPUT = re.compile(r"(?P<kind>[A-Z0-9]+)_KERNEL_(?P<what>FLOPS|BANDWIDTH)")


def is_text(data: bytes) -> bool:
    """Whether it is such an exposition."""
    return b"XPU_TIMER_" in data


def read_text(data: bytes) -> Iterator[dict[str, Any]]:
    """Objects "hang" (a rank, 0 or 1) and "kernel_time" (rank, operation, level, seconds)."""
    for line in data.decode("utf-8", "replace").split("\n", LINES_MAX)[:LINES_MAX]:
        if not line.startswith("XPU_TIMER_"):
            continue
        found = _LINE.match(line)
        value = _number(found["value"]) if found is not None else None
        if found is None or value is None:
            yield {"type": "rejected", "reason": "sample without labels or value",
                   "text": line[:4_096]}  # fmt: skip
            continue
        yield from _sample(found["name"], dict(_LABEL.findall(found["labels"])), value)


def _sample(name: str, labels: dict[str, str], value: float) -> Iterator[dict[str, Any]]:
    who = {
        "rank": _whole(labels.get("rank")), "local_rank": _whole(labels.get("local_rank")),
        "host": labels.get("ip"), "pod": labels.get("pod_name"), "job": labels.get("job_name"),
    }  # fmt: skip
    if name == "COMMON_HANG":
        yield {"type": "hang", **who, "hang": value != 0.0}
        return
    kernel, rate = _KERNEL.fullmatch(name), _THROUGHPUT.fullmatch(name)
    found = kernel or rate
    if found is None:
        return
    what = {"operation": labels.get("operation"), "dtype": labels.get("dtype"),
            "level": _whole(labels.get("level")), "family": found["kind"].lower(),
            "statistic": found["what"].lower()}  # fmt: skip
    if kernel is not None:
        yield {"type": "kernel_time", **who, **what, "duration_s": value / 1e6}
    else:
        yield {"type": "kernel_rate", **who, **what, "value": value}


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < 1e300 else None
