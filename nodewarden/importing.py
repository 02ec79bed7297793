"""What sites already have as an archive: captures and Prometheus' history as pieces of history,
Kafka exports as the topics they were."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from nodewarden.exports import ExportFile, export_lines
from nodewarden.logs import Log
from nodewarden.shards import history_target
from telemetry.archive import ArchiveWriter
from telemetry.archive_line import ArchiveLine
from telemetry.codec import decode, encode
from telemetry.errors import InputError
from telemetry.records import Arrived, Record, Rejected
from telemetry.settings import Configuration
from telemetry.topics import REJECTED, TELEMETRY

WRITERS_MAX = 1_024


class Imported(msgspec.Struct):
    """How much was written."""

    records: int = 0
    rejected: int = 0


def import_logs(logs: Iterable[Log], out: Path, configuration: Configuration) -> Imported:
    """Write captures' logs one after the other, older after newer too: each begins anew.

    Raises InputError where `out` is not an empty or new directory.
    """
    target = history_target(configuration)
    _check(out)
    done = Imported()
    with (
        ArchiveWriter(out, TELEMETRY, target.partition) as telemetry,
        ArchiveWriter(out, REJECTED, 0) as refused,
    ):
        for log in logs:
            for at in log.records:
                if isinstance(at.record, Rejected):
                    _refuse(refused, done, at.arrival, at.record)
                else:
                    _append(telemetry, done.records, at, at.record, target.shard)
                    done.records += 1
    return done


def import_exports(
    files: list[ExportFile], out: Path, torn: list[str], repeats: list[int]
) -> Imported:
    """Write exported records at the places where they stood, of all of nodewarden's topics.

    Raises InputError where `out` is not an empty or new directory.
    """
    _check(out)
    done = Imported()
    writers: dict[tuple[str, int], ArchiveWriter] = {}
    last_ms = 0
    with ExitStack() as stack:
        refused = stack.enter_context(ArchiveWriter(out, REJECTED, 0))
        for line in export_lines(files, torn, repeats):
            if isinstance(line, Rejected):
                _refuse(refused, done, last_ms / 1000.0, line)
                continue
            if line.topic == REJECTED:
                continue  # what was rejected then is kept where it came from
            writer = writers.get((line.topic, line.partition))
            if writer is None:
                if len(writers) >= WRITERS_MAX:
                    raise InputError(f"{out}: more than {WRITERS_MAX} partitions in one export")
                writer = stack.enter_context(ArchiveWriter(out, line.topic, line.partition))
                writers[line.topic, line.partition] = writer
            last_ms = _millis(line, last_ms)
            writer.append(
                line.offset, last_ms, line.value, line.key, line.headers, line.timestamp_type
            )
            done.records += 1
    return done


def _millis(line: ArchiveLine, last_ms: int) -> int:
    """The record's time in the log; of one that lost it, when it says it happened."""
    if line.timestamp_ms >= 0:
        return line.timestamp_ms
    record = decode(line.value or b"null", "")
    return last_ms if record.at is None else round(record.at * 1000.0)


def _check(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: exists and is not an empty directory; choose another")


def _refuse(writer: ArchiveWriter, done: Imported, arrival: float, record: Rejected) -> None:
    writer.append(done.rejected, round(arrival * 1000.0), msgspec.json.encode(record))
    done.rejected += 1


def _append(writer: ArchiveWriter, offset: int, at: Arrived, record: Record, shard: str) -> None:
    replayed = msgspec.structs.replace(record, replayed=at.arrival)
    kind = str(record.__struct_config__.tag).encode()
    headers = [("kind", kind)]
    writer.append(offset, round(at.arrival * 1000.0), encode(replayed), shard.encode(), headers)
