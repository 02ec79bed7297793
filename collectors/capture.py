"""A capture, a directory of files as the tools write them, into records in the order of their time.

The first pass reads every file once: samples go to disk, the few events and steps stay in memory.
The second hands all out by time.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from importlib import metadata
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from collectors import files
from collectors.frames import TRAINING, FrameMaker, StepMaker
from collectors.jobs import read_jobs
from collectors.kernel_log import LINE_BYTES_MAX, parse_line
from collectors.names import NodeNames
from collectors.openmetrics import OpenMetricsParser, Run, Series
from collectors.spill import Block, Column, Spill, Target
from telemetry.errors import InputError
from telemetry.records import (
    KIND_ORDER,
    Allocation,
    Begin,
    End,
    Event,
    Frame,
    Record,
    Rejected,
    Settings,
    Steps,
)
from telemetry.settings import EngineSettings

EVENTS_MAX = 500_000  # events and steps that stay in memory
REJECTED_MAX = 20_000  # rejected lines kept whole; of the others only the count
SOURCE = "capture"
REMEDY = (
    "a capture holds metrics/*.om[.gz], kernel/<node>.log[.gz], training/<job>/*.log[.gz],"
    " jobs.json"
)

Progress = Callable[[int, int], None]


class _About(msgspec.Struct):
    """`capture.json`."""

    cluster: str = ""
    timezone: str = ""
    year: int | None = None


@dataclass(slots=True)
class _Dated:
    """What stays in memory: a record or a rejected line, with the order of its file and line."""

    record: Event | Steps | Rejected
    at_s: float
    order: int


@dataclass(slots=True)
class _Read:
    """What the first pass found."""

    spill: Spill = field(default_factory=Spill)
    dated: list[_Dated] = field(default_factory=list)
    undated: list[Rejected] = field(default_factory=list)
    rejected: int = 0
    blanked: Counter[tuple[str, str]] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    dropped: int = 0

    def keep(self, record: Event | Steps | Rejected) -> None:
        """Put a record where the second pass finds it."""
        if isinstance(record, Rejected):
            self.rejected += 1
            if self.rejected > REJECTED_MAX:
                return
            if record.at is None:
                self.undated.append(record)
                return
        if len(self.dated) >= EVENTS_MAX:
            self.dropped += 1
            return
        at_s = record.at
        assert at_s is not None
        self.dated.append(_Dated(record, at_s, len(self.dated)))


class Capture:
    """An opened capture. Close it, or use it as a context: samples wait on disk.

    cluster    its name
    settings   what the engine is to run with: the given ones with the capture's own intervals
    notes      what was assumed, in sentences for the report
    blanked    (metric, reason) -> samples that became null
    """

    def __init__(
        self, name: str, settings: EngineSettings, listing: Allocation | None, read: _Read
    ) -> None:
        self._name = name
        self._listing = listing
        self._read = read
        self.settings = settings
        self.cluster = settings.cluster
        self.notes = read.notes
        self.blanked = read.blanked
        span = read.spill.span()
        ends = [row.at_s for row in read.dated] + list(span or ())
        self.first_s, self.last_s = min(ends), max(ends)

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the disk back."""
        self._read.spill.close()

    def records(self) -> Iterator[Record | Rejected]:
        """All records by (time, kind, node, source, line), from `Begin` to `End`.

        Rejected lines without a time follow the head. May be called again.
        """
        seqs: Counter[tuple[str, str]] = Counter()
        yield from (_numbered(record, seqs) for record in self._head())
        yield from self._read.undated
        yield from self._body(seqs)
        yield _numbered(End(at=self._end_s(), node="", source=SOURCE, started_at=0.0, seq=0), seqs)

    def _head(self) -> Iterator[Record]:
        at_s = self.first_s
        yield Begin(at=at_s, node="", source=SOURCE, started_at=0.0, seq=0, name=self._name)
        yield Settings(
            at=at_s, node="", source=SOURCE, started_at=0.0, seq=0,
            digest=settings_digest(self.settings), engine_version=_version(),
            settings=self.settings,
        )  # fmt: skip
        if self._listing is not None:
            yield msgspec.structs.replace(self._listing, at=at_s)

    def _body(self, seqs: Counter[tuple[str, str]]) -> Iterator[Record | Rejected]:
        spill = self._read.spill
        frames = {
            target: FrameMaker(target, spill.columns(target))
            for target in spill.targets()
            if target.source != TRAINING
        }
        steps = {
            target: StepMaker(target, spill.columns(target))
            for target in spill.targets()
            if target.source == TRAINING
        }
        waiting = sorted(self._read.dated, key=lambda row: row.at_s)
        done = 0
        for end_s, blocks in spill.chunks():
            rows: list[tuple[float, int, str, str, int, Record | Rejected]] = []
            while done < len(waiting) and waiting[done].at_s < end_s:
                rows.append(_row(waiting[done].record, waiting[done].at_s, waiting[done].order))
                done += 1
            for block in blocks:
                rows += _made(block, frames, steps)
            rows.sort(key=_before)
            yield from (_numbered(row[5], seqs) for row in rows)
        rest = [_row(row.record, row.at_s, row.order) for row in waiting[done:]]
        rest.sort(key=_before)
        yield from (_numbered(row[5], seqs) for row in rest)

    def _end_s(self) -> float:
        ticks = self.settings.ticks
        interval_s = max([ticks.interval_default_s, *ticks.interval_s.values()])
        return (
            self.last_s + ticks.lateness_intervals * interval_s + self.settings.correlation.clear_s
        )


def is_capture(path: Path) -> bool:
    """Whether a directory looks like a capture: by its names, nothing is read."""
    return any((path / name).is_dir() for name in ("metrics", "kernel", "training")) or any(
        (path / name).is_file() for name in ("jobs.json", "capture.json")
    )


def capture_size(path: Path) -> int:
    """Bytes that the first pass reads, as they lie on disk."""
    return sum(file.stat().st_size for file in _files(path))


def settings_digest(settings: EngineSettings) -> str:
    """16 hex digits that tell two settings apart."""
    return hashlib.sha256(msgspec.json.encode(settings)).hexdigest()[:16]


def open_capture(
    path: Path, settings: EngineSettings, tz: str | None = None, on_progress: Progress | None = None
) -> Capture:
    """Read a capture's files once.

    settings     the engine's; cluster and intervals are replaced by the capture's own
    tz           time zone of log lines that name none; before `capture.json`, before UTC
    on_progress  told bytes done and bytes in all
    raises       InputError, one line with the file and the remedy
    """
    if not path.is_dir():
        raise InputError(f"{path}: no such directory; {REMEDY}")
    if not _files(path):
        raise InputError(f"{path}: holds no file of a capture; {REMEDY}")
    read = _Read()
    about = _about(path / "capture.json")
    zone = _zone(path, about, tz, read.notes)
    if not about.cluster:
        read.notes.append(f'no cluster named in capture.json: it is called "{SOURCE}"')
    listing = _listing(path / "jobs.json")
    _Pass(path, listing, zone, read, on_progress).run()
    read.spill.flush()
    _say_counts(read)
    if not read.dated and not read.spill.targets():
        read.spill.close()
        raise InputError(f"{path}: nothing in its files was recognised; {REMEDY}")
    intervals = {**settings.ticks.interval_s, **read.spill.intervals()}
    fitted = msgspec.structs.replace(
        settings,
        cluster=about.cluster or SOURCE,
        ticks=msgspec.structs.replace(settings.ticks, interval_s=intervals),
    )
    return Capture(path.resolve().name, fitted, listing, read)


class _Pass:
    """The first pass over a capture's files."""

    def __init__(
        self,
        path: Path,
        listing: Allocation | None,
        zone: tzinfo,
        read: _Read,
        on_progress: Progress | None,
    ) -> None:
        self._path = path
        self._zone = zone
        self._read = read
        self._on_progress = on_progress
        self._done = 0
        self._total = capture_size(path)
        self._names = NodeNames(
            [node.name for node in listing.nodes] if listing is not None else [],
            [_stem(file) for file in _kernel_files(path)],
        )
        self._jobs = [job.id for job in listing.jobs] if listing is not None else []
        self._targets: dict[Series, tuple[Target, Column] | None] = {}

    def run(self) -> None:
        """Read all files, in the order of their names."""
        for file in _kernel_files(self._path):
            self._kernel(file)
        for file in _metric_files(self._path):
            self._metrics(file)

    def _kernel(self, file: Path) -> None:
        node, name = self._names.of_file(_stem(file)), self._name(file)
        for number, line in enumerate(files.lines(self._pieces(file), LINE_BYTES_MAX), 1):
            said = parse_line(line, f"{name}:{number}", node, self._zone)
            if said is not None:
                self._read.keep(said)

    def _metrics(self, file: Path) -> None:
        parser = OpenMetricsParser(self._name(file))
        cut: list[str] = []
        for piece in self._pieces(file, cut):
            for found in parser.feed(piece):
                self._sample(found)
        for found in parser.finish(whole=not cut):
            self._sample(found)
        self._read.blanked += parser.blanked
        if parser.samples == 0:
            self._read.notes.append(f"{self._name(file)}: no metric in it is in the catalogue")

    def _sample(self, found: Run | Rejected) -> None:
        if isinstance(found, Rejected):
            self._read.keep(found)
            return
        if found.series not in self._targets:
            self._targets[found.series] = self._target(found.series)
        place = self._targets[found.series]
        if place is not None:
            self._read.spill.add(*place, found.times, found.values)

    def _target(self, series: Series) -> tuple[Target, Column] | None:
        if series.metric is None:
            return Target("", TRAINING, self._job(series)), Column("", series.column, "")
        node = self._names.of_labels(series.labels)
        if node is None:
            self._note("a series names no node (labels Hostname, node, nodename, instance)")
            return None
        metric = series.metric
        return Target(node, metric.source), Column(metric.device, metric.name, series.entity)

    def _job(self, series: Series) -> str:
        for label in ("job_id", "slurm_job_id", "slurm_jobid", "job_name", "job"):
            said = series.labels.get(label, "")
            if said in self._jobs or (said and label != "job"):
                return said
        return self._jobs[0] if len(self._jobs) == 1 else series.labels.get("job", "")

    def _pieces(self, file: Path, cut: list[str] | None = None) -> Iterator[bytes]:
        def on_cut(why: str) -> None:
            self._note(f"{self._name(file)}: {why}; read to its last whole line")
            if cut is not None:
                cut.append(why)

        return files.pieces(file, on_cut, self._progress)

    def _progress(self, count: int) -> None:
        self._done += count
        if self._on_progress is not None:
            self._on_progress(self._done, self._total)

    def _name(self, file: Path) -> str:
        return file.relative_to(self._path).as_posix()

    def _note(self, text: str) -> None:
        if text not in self._read.notes:
            self._read.notes.append(text)


def _made(
    block: Block, frames: dict[Target, FrameMaker], steps: dict[Target, StepMaker]
) -> Iterator[tuple[float, int, str, str, int, Record | Rejected]]:
    maker = frames.get(block.target)
    if maker is not None:
        node, source, kind = block.target.node, block.target.source, KIND_ORDER[Frame]
        return ((frame.at, kind, node, source, 0, frame) for frame in maker.frames(block))
    return (_row(step, step.at, 0) for step in steps[block.target].steps(block))


def _row(
    record: Event | Steps | Rejected, at_s: float, order: int
) -> tuple[float, int, str, str, int, Record | Rejected]:
    if isinstance(record, Rejected):
        return at_s, KIND_ORDER[Event], "", "", order, record
    return at_s, KIND_ORDER[type(record)], record.node, record.source, order, record


def _before(row: tuple[float, int, str, str, int, Record | Rejected]) -> tuple[object, ...]:
    return row[:5]


def _numbered(record: Record | Rejected, seqs: Counter[tuple[str, str]]) -> Record | Rejected:
    """The record at the next place of its stream; frames have theirs."""
    if isinstance(record, (Frame, Rejected)):
        return record
    key = (record.node, record.source)
    seqs[key] += 1
    return msgspec.structs.replace(record, seq=seqs[key] - 1)


def _say_counts(read: _Read) -> None:
    if read.rejected > REJECTED_MAX:
        read.notes.append(
            f"{read.rejected - REJECTED_MAX} rejected lines beyond the first {REJECTED_MAX}"
            " are not kept"
        )
    if read.dropped:
        read.notes.append(f"{read.dropped} events beyond the first {EVENTS_MAX} were not read")


def _about(path: Path) -> _About:
    if not path.is_file():
        return _About()
    try:
        return msgspec.json.decode(_whole(path), type=_About)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f'{path}: {error}; it holds {{"cluster", "timezone"}}') from error


def _listing(path: Path) -> Allocation | None:
    return read_jobs(_whole(path), str(path), 0.0) if path.is_file() else None


def _whole(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; check the file and its permissions") from error


def _zone(path: Path, about: _About, tz: str | None, notes: list[str]) -> tzinfo:
    name = tz or about.timezone
    if not name:
        notes.append("no time zone named: log lines without one are read as UTC")
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        where = "--tz" if tz else str(path / "capture.json")
        raise InputError(f"{where}: no time zone {name!r}; write one as Europe/Berlin") from error


def _version() -> str:
    try:
        return metadata.version("nodewarden")
    except metadata.PackageNotFoundError:
        return "0"


def _files(path: Path) -> list[Path]:
    return [*_metric_files(path), *_kernel_files(path)]


def _metric_files(path: Path) -> list[Path]:
    return _named(path / "metrics", ".om")


def _kernel_files(path: Path) -> list[Path]:
    return _named(path / "kernel", ".log")


def _named(folder: Path, suffix: str) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(
        file for file in folder.iterdir()
        if file.is_file() and file.name.endswith((suffix, f"{suffix}.gz"))
    )  # fmt: skip


def _stem(file: Path) -> str:
    return file.name.removesuffix(".gz").removesuffix(".log")
