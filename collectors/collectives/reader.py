"""`parse collectives`: which of the tools wrote a file, and what it says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from collectors.collectives import flight_recorder, inspector, xpu_timer
from collectors.json_values import values, whole

TEXT_MAX = 4_096
_PICKLE = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")

FORMS = (
    ("flight recorder", flight_recorder.EXAMPLE, "NVIDIA/nvidia-resiliency-ext fr_traces"),
    ("NCCL Inspector", inspector.EXAMPLE, "NVIDIA/nccl plugins/profiler/inspector"),
    ("xpu_timer", xpu_timer.EXAMPLE, "intelligent-machine-learning/dlrover tests"),
)
"""Name, example and source of each form that is read."""


def read_collectives(file: str, pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Objects "group", "collective", "collective_time", "hang", "kernel_time", "kernel_rate"."""
    data = whole(pieces)
    for found in _read(file, data):
        yield {"file": file, **found}


def _read(file: str, data: bytes | None) -> Iterator[dict[str, Any]]:
    if data is None:
        yield _rejected("file too long", "")
    elif data.startswith(_PICKLE):
        yield _rejected("a pickle, which is code; turn it into JSON first", "")
    elif xpu_timer.is_text(data):
        yield from xpu_timer.read_text(data)
    else:
        for value, broken in values(data):
            yield from _value(file, value, broken)


def _value(file: str, value: Any, broken: str) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for part in value:
            if not isinstance(part, list):
                yield from _value(file, part, "")
    elif flight_recorder.is_dump(value):
        yield from flight_recorder.read_dump(value, file)
    elif inspector.is_record(value):
        yield inspector.read_record(value)
    elif broken:
        if broken.lstrip().startswith(("{", "[", '"')):
            yield _rejected("broken JSON", broken)
    elif isinstance(value, dict):
        yield _rejected("JSON of no form that is known", str(value))


def _rejected(reason: str, text: str) -> dict[str, Any]:
    return {"type": "rejected", "reason": reason, "text": text[:TEXT_MAX]}
