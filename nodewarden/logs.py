"""Where a replay's records come from: captures and archives, as logs of shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from collectors.capture import is_capture, open_capture
from collectors.layout import metric_files
from nodewarden.exports import export_files, export_records, is_export, partitions_of
from streams.fold import ShardKind
from telemetry.archive import Torn, archive_files, is_archive, read_archive
from telemetry.archive_records import read_records
from telemetry.errors import InputError
from telemetry.placement import Placement
from telemetry.records import (
    Allocation,
    Arrived,
    Begin,
    Hardware,
    Record,
    Rejected,
    Settings,
)
from telemetry.settings import Configuration
from telemetry.topics import STATE, TELEMETRY

Progress = Callable[[int, int], None]
KeptFromBefore = Settings | Begin | Allocation | Hardware


@dataclass
class Log:
    """One shard's records in order; `notes` and `torn` fill while it is read.

    shard   its name, the key of its snapshots
    repeats records of an export that stood at a place already read, and were left out
    cold    the log begins neither with its first offset nor with `Begin`
    stored  what of its snapshots was published up to a time
    """

    name: str
    kind: ShardKind
    records: Iterator[Arrived]
    shard: str = "main"
    stored: Callable[[float], Mapping[str, bytes]] = field(default=lambda _: {})
    notes: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    repeats: list[int] = field(default_factory=lambda: [0])
    cold: bool = False


@dataclass(frozen=True, slots=True)
class Format:
    """One way in which a piece of the past lies on disk.

    holds   whether a path is one of these; they are tried in order
    files   where its files are, for people
    """

    name: str
    holds: Callable[[Path], bool]
    open: Callable[[Path, Configuration, str | None, Progress | None], list[Log]]
    files: str


def format_of(path: Path) -> Format:
    """The format that a path is in. Raises InputError, one line with the path and the remedy."""
    if not path.exists():
        raise InputError(f"{path}: no such directory; give a capture or an archive")
    found = next((row for row in FORMATS if row.holds(path)), None)
    if found is not None:
        return found
    known = ", ".join(f"{row.name} ({row.files})" for row in FORMATS)
    raise InputError(f"{path}: none of {known}; see README, Replay")


def open_logs(
    path: Path, configuration: Configuration, tz: str | None, progress: Progress | None = None
) -> list[Log]:
    """The logs of an archive or an export (one a partition) or of a capture (one).

    Raises InputError, one line that names the path and the remedy.
    """
    return format_of(path).open(path, configuration, tz, progress)


def _archive_logs(
    path: Path, configuration: Configuration, _tz: str | None, _progress: Progress | None
) -> list[Log]:
    partitions = sorted({file.partition for file in archive_files(path, TELEMETRY)})
    return [_archive_log(path, partition, configuration) for partition in partitions]


def _export_logs(
    path: Path, configuration: Configuration, _tz: str | None, _progress: Progress | None
) -> list[Log]:
    files = export_files(path)
    logs = []
    for partition in partitions_of(files):
        shard, kind = _shard(partition, configuration)
        log = Log(name=f"{path}#{shard}", kind=kind, records=iter(()), shard=shard)
        placement = _placement(partition, configuration)
        found = export_records(files, partition, log.torn, log.repeats, placement)
        log.records = _placed(found, kind, log)
        logs.append(log)
    if not logs:
        raise InputError(f"{path}: an export without a record of {TELEMETRY}; export that topic")
    return logs


def _capture_logs(
    path: Path, configuration: Configuration, tz: str | None, progress: Progress | None
) -> list[Log]:
    capture = open_capture(path, configuration.engine, tz, progress, configuration.timezone)
    log = Log(name=str(path), kind="capture", records=iter(()), notes=capture.notes)
    log.torn = capture.torn
    log.records = arrived(capture.records())
    return [log]


def arrived(records: Iterable[Record | Rejected]) -> Iterator[Arrived]:
    """Records at their places; what a capture tells arrived when it happened.

    What could not be read moves no time: an import leaves it out of the log.
    """
    now = 0.0
    for offset, record in enumerate(records):
        now = now if isinstance(record, Rejected) else record.at
        yield Arrived(offset, now, record)


def _archive_log(path: Path, partition: int, configuration: Configuration) -> Log:
    shard, kind = _shard(partition, configuration)
    log = Log(name=f"{path}#{shard}", kind=kind, records=iter(()), shard=shard)
    placement = _placement(partition, configuration)
    log.records = _placed(_archived(path, partition, log, placement), kind, log)
    log.stored = lambda until_s: _snapshots(path, shard, until_s)
    return log


def _shard(partition: int, configuration: Configuration) -> tuple[str, ShardKind]:
    shards = configuration.shards
    shard = shards[partition] if partition < len(shards) else f"partition-{partition}"
    return shard, "history" if shard in configuration.history_shards else "live"


def _placement(partition: int, configuration: Configuration) -> Placement:
    """What belongs there: the log names its shard itself, but not as one that is elsewhere."""
    shards = configuration.shards
    others = set(shards) - {shards[partition]} if partition < len(shards) else set()
    return Placement(None, others)


def _archived(path: Path, partition: int, log: Log, placement: Placement) -> Iterator[Arrived]:
    for found in read_records(path, TELEMETRY, partition, placement=placement):
        if isinstance(found, Torn):
            log.torn.append(f"{found.path}: {found.reason}")
        else:
            yield found


def _placed(records: Iterable[Arrived], kind: ShardKind, log: Log) -> Iterator[Arrived]:
    """Records of a shard; what is replayed arrived when it first did."""
    first = True
    for found in records:
        if first:
            log.cold = found.offset > 0 and not isinstance(found.record, Begin)
            first = False
        record = found.record
        replayed = None if isinstance(record, Rejected) else record.replayed
        if kind == "history" and replayed is not None:
            yield Arrived(found.offset, replayed, record)
        else:
            yield found


def _snapshots(path: Path, shard: str, until_s: float) -> dict[str, bytes]:
    """The shard's records of the archived state topic, as they stood at a time."""
    stored: dict[str, bytes] = {}
    for found in read_archive(path, STATE):
        if isinstance(found, Torn) or found.timestamp_ms > until_s * 1000.0:
            continue
        key = (found.key or b"").decode("utf-8", "replace")
        if key.startswith(f"{shard}/") and found.value is not None:
            stored[key] = found.value
        else:
            stored.pop(key, None)
    return stored


def between(log: Log, from_s: float | None, to_s: float | None) -> Iterator[Arrived]:
    """The records that arrived between two times; what tells who is who is kept from before.

    What is kept arrives when the rest begins, so that nobody seems silent since.
    """
    used = False
    for found in log.records:
        if to_s is not None and found.arrival > to_s:
            break
        if from_s is not None and found.arrival < from_s:
            log.cold = True
            if isinstance(found.record, Settings | Begin | Allocation | Hardware):
                yield Arrived(found.offset, from_s, _as_of(found.record, from_s))
            continue
        used = True
        yield found
    if not used and (from_s is not None or to_s is not None):
        if from_s is not None and to_s is not None and from_s > to_s:
            raise InputError("--from lies after --to; exchange them")
        raise InputError(f"{log.name}: no record between --from and --to; widen them")


def _as_of(record: KeptFromBefore, from_s: float) -> KeptFromBefore:
    return msgspec.structs.replace(record, at=from_s, sent_at=None)


def _is_metrics(path: Path) -> bool:
    """Whether a path is Prometheus' history alone: a dump, an answer, or a directory of them."""
    return path.is_file() or bool(metric_files(path))


FORMATS: tuple[Format, ...] = (
    Format("an archive", is_archive, _archive_logs, f"{TELEMETRY}/<partition>/*.jsonl.zst"),
    Format("a capture", lambda path: path.is_dir() and is_capture(path), _capture_logs,
           "metrics/*.om, kernel/<node>.log, training/<job>/*.log; a wandb run's directory"),
    Format("a Kafka export", is_export, _export_logs, "kcat -J, Kafka Connect JSON"),
    Format("Prometheus history", _is_metrics, _capture_logs,
           "OpenMetrics with timestamps, query_range JSON, also one file; a wandb history"),
)  # fmt: skip
