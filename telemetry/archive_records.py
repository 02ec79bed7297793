"""An archive as the fold reads it: each record at its place in the log, decoded in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from telemetry.archive import Torn, scan
from telemetry.archive_line import Millis, Offset, read_line
from telemetry.codec import RECORD_MAX_BYTES, decode, encode, header_fault, rejected
from telemetry.placement import Placement
from telemetry.records import Arrived, Record, Rejected
from telemetry.topics import TELEMETRY


class _Decoded(msgspec.Struct, gc=False):
    topic: str
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    offset: Offset
    timestamp: Millis
    value: Record | Rejected
    key: str | None = None
    key_b64: str | None = None


_DECODED = msgspec.json.Decoder(_Decoded)


def read_records(
    path: Path,
    topic: str = TELEMETRY,
    partition: int | None = None,
    from_offset: int = 0,
    placement: Placement | None = None,
) -> Iterator[Arrived | Torn]:
    """`read_archive` with its values decoded; one that is no record is `Rejected` at its place.

    The record is parsed out of its line at once, which saves a pass over it. `arrival` is the
    archived timestamp in seconds. With a `placement`, what belongs to another shard is rejected.
    """
    for found in scan(path, topic, partition, from_offset, _parse):
        if isinstance(found, Torn):
            yield found
            continue
        value = found.value
        if placement is not None and (why := placement.fault(found.key, value)):
            value = _misplaced(found, why)
        yield Arrived(found.offset, found.timestamp / 1000.0, value)


def _misplaced(found: _Decoded, why: str) -> Rejected:
    if isinstance(found.value, Rejected):
        return found.value
    place = f"{found.topic}/{found.partition}@{found.offset}"
    return rejected(why, encode(found.value), place, found.value.at)


def _parse(data: bytes) -> _Decoded | str:
    if len(data) > RECORD_MAX_BYTES:
        return _parse_slowly(data)
    try:
        found = _DECODED.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _parse_slowly(data)
    if isinstance(found.value, Rejected) or header_fault(found.value) is not None:
        return _parse_slowly(data)
    if found.key_b64 is not None:
        return _parse_slowly(data)
    return found


def _parse_slowly(data: bytes) -> _Decoded | str:
    line = read_line(data)
    if isinstance(line, str):
        return line
    place = f"{line.topic}/{line.partition}@{line.offset}"
    value = decode(b"null" if line.value is None else line.value, place)
    at = line.offset, line.timestamp_ms
    return _Decoded(line.topic, line.partition, *at, value, line.key_text)
