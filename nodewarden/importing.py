"""Captures as pieces of history: their records, replayed, in an archive of the history shard."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from collectors.capture import Capture
from nodewarden.logs import arrived
from telemetry.archive import ArchiveWriter
from telemetry.codec import encode
from telemetry.errors import InputError, SettingsError
from telemetry.records import Record, Rejected
from telemetry.settings import Configuration
from telemetry.topics import REJECTED, TELEMETRY, partition_of


class Imported(msgspec.Struct):
    """How much was written."""

    records: int = 0
    rejected: int = 0


def import_captures(
    captures: Iterable[Capture], out: Path, configuration: Configuration
) -> Imported:
    """Write the captures one after the other, older after newer too: each begins anew.

    Raises InputError where `out` is not an empty or new directory.
    """
    if not configuration.history_shards:
        raise SettingsError("history_shards is empty: an import needs a history shard")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: exists and is not an empty directory; choose another")
    shard = configuration.history_shards[0]
    partition = partition_of(shard, configuration.shards)
    if partition is None:
        raise SettingsError(f"history shard {shard!r} is not among shards")
    done = Imported()
    with (
        ArchiveWriter(out, TELEMETRY, partition) as telemetry,
        ArchiveWriter(out, REJECTED, 0) as refused,
    ):
        for capture in captures:
            for at in arrived(capture.records()):
                if isinstance(at.record, Rejected):
                    value = msgspec.json.encode(at.record)
                    refused.append(done.rejected, round(at.arrival * 1000.0), value)
                    done.rejected += 1
                else:
                    _append(telemetry, done.records, at.arrival, at.record, shard)
                    done.records += 1
    return done


def _append(writer: ArchiveWriter, offset: int, arrival: float, record: Record, shard: str) -> None:
    replayed = msgspec.structs.replace(record, replayed=arrival)
    kind = str(record.__struct_config__.tag).encode()
    headers = [("kind", kind)]
    writer.append(offset, round(arrival * 1000.0), encode(replayed), shard.encode(), headers)
