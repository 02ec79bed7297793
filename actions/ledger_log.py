"""The ledger out of the log: the newest whole snapshot, and what was said after it.

Read backwards from the end in blocks, so that a year of records costs no more than the stretch
since the last snapshot; and never more than a bound.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from actions.ledger import Ledger
from telemetry.actions import ActionRecord, LedgerPart
from telemetry.errors import SourceUnavailable
from telemetry.log_reading import read_whole_piece
from telemetry.ports import LogReader
from telemetry.topics import ACTIONS

PLACE = (ACTIONS, 0)
BLOCK = 2_000

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[ActionRecord] = msgspec.json.Decoder(ActionRecord)


class Rebuilt(msgspec.Struct):
    """A ledger as the log says, how much was read for it, and what could not be read."""

    ledger: Ledger
    records: int = 0
    rejected: int = 0


def encode(record: ActionRecord) -> bytes:
    """One record as it stands in the log."""
    return _ENCODER.encode(record)


def decode(value: bytes | None) -> ActionRecord | None:
    """The record; None where the bytes are none of ours."""
    try:
        return None if value is None else _DECODER.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def key_of(record: ActionRecord) -> bytes:
    """What the record is about: its incident, command, decision, target or instance."""
    match record.__struct_config__.tag:
        case "decision":
            return str(getattr(record, "incident", "")).encode()
        case "command" | "recovery":
            return str(getattr(record, "id", "")).encode()
        case "outcome":
            return str(getattr(record, "command", "")).encode()
        case "request":
            return str(getattr(record, "target", "")).encode()
        case tag:
            return str(tag).encode()


def rebuild(reader: LogReader, entries_max: int, records_max: int) -> Rebuilt:
    """The ledger as it stands at the end of the log.

    records_max  so many are read at most; what lies before is not known
    raises       SourceUnavailable where there is no topic, or the broker does not answer or gives
                 only a part: with a hole in the ledger things would be done twice
    """
    if not reader.partitions(ACTIONS):
        raise SourceUnavailable(f"no topic {ACTIONS}; make it: nodewarden topics create")
    first, end = reader.bounds([PLACE])[PLACE]
    found = Rebuilt(Ledger(entries_max))
    newer: list[ActionRecord] = []  # than the block that is read now
    snapshot: list[LedgerPart] = []
    while end > first and found.records < records_max and not snapshot:
        start = max(first, end - BLOCK)
        block: list[ActionRecord] = []
        for line in read_whole_piece(reader, PLACE, start, end):
            found.records += 1
            record = decode(line.value)
            found.rejected += record is None
            if record is not None:
                block.append(record)
        newer = block + newer
        snapshot, since = _newest_whole(newer)
        end = start
        if snapshot:
            newer = newer[since:]
    found.ledger.restore(snapshot)
    for record in newer:
        found.ledger.take(record)
    return found


def _newest_whole(records: Sequence[ActionRecord]) -> tuple[list[LedgerPart], int]:
    """The parts of the newest snapshot that is whole, and where what follows it begins.

    Its parts are written in one transaction: nothing else stands between them.
    """
    parts: list[LedgerPart] = []
    for at in range(len(records) - 1, -1, -1):
        record = records[at]
        if not isinstance(record, LedgerPart):
            parts = []
            continue
        if parts and (record.id != parts[0].id or record.part != parts[0].part - 1):
            parts = []
        if not parts and record.part != record.parts - 1:
            continue
        parts.insert(0, record)
        if record.part == 0:
            return parts, at + len(parts)
    return [], 0
