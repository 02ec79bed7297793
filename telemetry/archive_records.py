"""An archive as the fold reads it: each record at its place in the log, decoded in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from telemetry.archive import Torn, scan
from telemetry.archive_line import Millis, Offset, read_line
from telemetry.codec import decode, header_fault
from telemetry.records import Arrived, Record, Rejected
from telemetry.topics import TELEMETRY


class _Decoded(msgspec.Struct, gc=False):
    topic: str
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    offset: Offset
    timestamp: Millis
    value: Record | Rejected


_DECODED = msgspec.json.Decoder(_Decoded)


def read_records(
    path: Path, topic: str = TELEMETRY, partition: int | None = None, from_offset: int = 0
) -> Iterator[Arrived | Torn]:
    """`read_archive` with its values decoded; one that is no record is `Rejected` at its place.

    The record is parsed out of its line at once, which saves a pass over it. `arrival` is the
    archived timestamp in seconds.
    """
    for found in scan(path, topic, partition, from_offset, _parse):
        if isinstance(found, Torn):
            yield found
        else:
            yield Arrived(found.offset, found.timestamp / 1000.0, found.value)


def _parse(data: bytes) -> _Decoded | str:
    try:
        found = _DECODED.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _parse_slowly(data)
    if isinstance(found.value, Rejected) or header_fault(found.value) is not None:
        return _parse_slowly(data)
    return found


def _parse_slowly(data: bytes) -> _Decoded | str:
    line = read_line(data)
    if isinstance(line, str):
        return line
    place = f"{line.topic}/{line.partition}@{line.offset}"
    value = decode(b"null" if line.value is None else line.value, place)
    return _Decoded(line.topic, line.partition, line.offset, line.timestamp_ms, value)
