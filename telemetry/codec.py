"""Records to bytes and back. Bytes that are no record become a `Rejected` value, never an error.

msgspec checks the types; what it cannot know (times that exist, names that fit) is checked here on
the header alone, so that a frame of 300 values costs what msgspec costs.
"""

from __future__ import annotations

import hashlib

import msgspec

from telemetry.records import SCHEMA_VERSION, Frame, Hardware, Record, Rejected

TEXT_MAX = 65_536
RECORD_MAX_BYTES = 1_000_000
NAME_MAX = 253  # longest DNS name
SEQ_MAX = 2**63
AT_MIN_S = 946_684_800.0  # 2000-01-01
AT_MAX_S = 4_102_444_800.0  # 2100-01-01

_OF_A_NODE = (Frame, Hardware)  # records that speak for one node, always

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def encode(record: Record) -> bytes:
    """`record` as JSON without a line break; NaN and infinity become null.

    Its text holds no lone surrogates: parsers decode with "replace".
    """
    return _ENCODER.encode(record)


def decode(data: bytes | memoryview, place: str) -> Record | Rejected:
    """The record that `data` holds; `place` says where it stood, for the rejected."""
    if len(data) > RECORD_MAX_BYTES:
        return rejected(f"{len(data)} bytes, at most {RECORD_MAX_BYTES}", data, place)
    try:
        record = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return rejected(_reason(data, error), data, place)
    fault = header_fault(record)
    return record if fault is None else rejected(fault, data, place, at=_usable_time(record.at))


def header_fault(record: Record) -> str | None:
    """What is wrong with the header although its types are right; None where nothing is."""
    if not AT_MIN_S <= record.at < AT_MAX_S:
        return f"at: {record.at:.6g} is no time between 2000 and 2100"
    if record.v != SCHEMA_VERSION:
        return f"v: schema {record.v}, this engine reads {SCHEMA_VERSION}"
    if not 0 <= record.seq < SEQ_MAX:
        return f"seq: {record.seq} is no position in a stream"
    if not 0.0 <= record.started_at < AT_MAX_S:
        return f"started_at: {record.started_at:.6g} is no time before 2100"
    # A node whose clock stands at 1970 still speaks; its sent_at only has to be a time at all.
    if record.sent_at is not None and not 0.0 <= record.sent_at < AT_MAX_S:
        return f"sent_at: {record.sent_at:.6g} is no time before 2100"
    if record.replayed is not None and not AT_MIN_S <= record.replayed < AT_MAX_S:
        return f"replayed: {record.replayed:.6g} is no time between 2000 and 2100"
    if record.node == "" and isinstance(record, _OF_A_NODE):
        return "node: empty"
    if record.source == "" and record.node != "":
        return "source: empty"
    return name_fault("node", record.node) or name_fault("source", record.source)


def name_fault(field: str, name: str) -> str | None:
    """What is wrong with a name that people and other tools will see; None where nothing is."""
    if len(name) > NAME_MAX:
        return f"{field}: {len(name)} characters, at most {NAME_MAX}"
    if name.isprintable():
        return None
    return f"{field}: holds a character that does not print"


def rejected(
    reason: str, data: bytes | memoryview, place: str, at: float | None = None
) -> Rejected:
    """`data` as it is kept: its first 64 kB as text, its whole length and hash."""
    return Rejected(
        reason=reason,
        text=bytes(data[:TEXT_MAX]).decode("utf-8", "replace"),
        place=place,
        length=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        at=at,
    )


def _reason(data: bytes | memoryview, error: Exception) -> str:
    if len(data) == 0:
        return "empty value"
    if bytes(data[:8]).strip() == b"null":
        return "null is no record"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return f"no record: {error}"


def _usable_time(at: float) -> float | None:
    return at if AT_MIN_S <= at < AT_MAX_S else None
