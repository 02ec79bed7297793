"""A capture, a directory of files as the tools write them, into records in the order of their time.

The first pass reads every file once: samples go to disk, the few events and steps stay in memory.
The second hands all out by time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import tzinfo
from functools import partial
from importlib import metadata
from pathlib import Path

import msgspec

from collectors.allocations import Allocated, changes, joined, read_allocated, undated
from collectors.files import pieces
from collectors.first_pass import FirstPass, Progress, Put
from collectors.flat import Flat
from collectors.frames import TRAINING, FrameMaker, StepMaker
from collectors.jobs import Wiring, read_jobs, read_ports, unknown_keys
from collectors.kernel.times import YEAR_MAX, YEAR_MIN
from collectors.layout import REMEDY, alloc_files, capture_size, data_files, is_capture
from collectors.slurm import read_objects
from collectors.spill import Block, Column, Target
from collectors.store import Order
from collectors.zones import zone_named
from telemetry.errors import InputError
from telemetry.records import (
    KIND_ORDER,
    Allocation,
    Begin,
    End,
    Frame,
    Hardware,
    Port,
    Record,
    Rejected,
    Settings,
    Steps,
)  # fmt: skip
from telemetry.settings import EngineSettings, settings_digest

__all__ = ["Capture", "capture_size", "is_capture", "open_capture"]

SOURCE = "capture"
KEYS_SAID = 8

Row = tuple[Order, Record | Rejected]


class _About(msgspec.Struct):
    """`capture.json`."""

    cluster: str = ""
    timezone: str = ""
    year: int | None = None


class Capture:
    """An opened capture. Close it, or use it as a context: samples wait on disk.

    cluster    its name
    settings   what the engine is to run with: the given ones with the capture's own intervals
    notes      what was assumed, in sentences for the report
    torn       files that were cut or damaged, with the reason; read to their last whole line
    blanked    (metric, reason) -> samples that became null
    """

    def __init__(
        self, name: str, settings: EngineSettings, listing: Allocation | None, put: Put
    ) -> None:
        self._name = name
        self._listing = listing
        self._put = put
        self.settings = settings
        self.cluster = settings.cluster
        self.notes = put.notes
        self.torn = put.torn
        self.blanked = put.blanked
        ends: list[float] = [*(put.spill.span() or ()), *(put.store.span() or ())]
        self.first_s, self.last_s = min(ends), max(ends)

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the disk back."""
        self._put.close()

    def records(self) -> Iterator[Record | Rejected]:
        """All records by (time, kind, node, source, line), from `Begin` to `End`.

        Rejected lines without a time follow the head. May be called again.
        """
        seqs: Counter[tuple[str, str]] = Counter()
        yield from (_numbered(record, seqs) for record in self._head())
        yield from self._put.store.undated()
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
        gpus = dict(self._put.gpus.nodes())
        for node in sorted(gpus.keys() | self._put.ports.keys()):
            yield Hardware(
                at=at_s, node=node, source="hardware", started_at=0.0, seq=0,
                gpus=gpus.get(node, []),
                ports=[Port(name) for name in sorted(self._put.ports.get(node, ()))],
            )  # fmt: skip
        if self._listing is not None:
            yield msgspec.structs.replace(self._listing, at=at_s)

    def _body(self, seqs: Counter[tuple[str, str]]) -> Iterator[Record | Rejected]:
        spill = self._put.spill
        intervals = spill.intervals()
        makers = {
            target: _maker(target, spill.columns(target), intervals.get(target.source, 0.0))
            for target in spill.targets()
        }
        waiting = self._put.store.dated()
        first = next(waiting, None)
        for end_s, blocks in spill.chunks():
            rows: list[Row] = []
            while first is not None and first[0][0] < end_s:
                rows.append(first)
                first = next(waiting, None)
            for block in blocks:
                rows += _rows(makers[block.target], block)
            rows.sort(key=_order)
            yield from (_numbered(row[1], seqs) for row in rows)
        if first is not None:
            yield _numbered(first[1], seqs)
        yield from (_numbered(record, seqs) for _, record in waiting)

    def _end_s(self) -> float:
        ticks = self.settings.ticks
        interval_s = max([ticks.interval_default_s, *ticks.interval_s.values()])
        wait_s: float = ticks.lateness_intervals * interval_s + self.settings.correlation.clear_s
        return self.last_s + wait_s


def open_capture(
    path: Path, settings: EngineSettings, tz: str | None = None,
    on_progress: Progress | None = None, tz_default: str = "",
) -> Capture:  # fmt: skip
    """Read a capture's files once.

    settings     the engine's; cluster and intervals are replaced by the capture's own
    tz           time zone of log lines that name none; before `capture.json`, before `tz_default`,
                 before UTC
    on_progress  told bytes done and bytes in all
    raises       InputError, one line with the file and the remedy
    """
    if not path.exists():
        raise InputError(f"{path}: no such directory; {REMEDY}")
    if not data_files(path):
        raise InputError(f"{path}: holds no file of a capture; {REMEDY}")
    put = Put()
    try:
        return _opened(path, settings, tz, tz_default, put, on_progress)
    except InputError:
        put.close()
        raise


def _opened(
    path: Path, settings: EngineSettings, tz: str | None, tz_default: str, put: Put,
    on_progress: Progress | None,
) -> Capture:  # fmt: skip
    about = _about(path / "capture.json")
    zone = _zone(path, about.timezone, tz, tz_default, put)
    if not about.cluster:
        put.note(f'no cluster named in capture.json: it is called "{SOURCE}"')
    listing, wiring = _listing(path / "jobs.json", put)
    said = _allocated(path, zone, put)
    FirstPass(
        path, joined(listing, said, 0.0), zone, put, on_progress, said.aliases,
        about.year, wiring,
    ).run()  # fmt: skip
    ends = [*(put.spill.span() or ()), *(put.store.span() or ())]
    if not ends:
        raise InputError(f"{path}: nothing in its files was recognised; {REMEDY}")
    listing = joined(listing, said, min(ends))
    if listing is not None:
        for change in changes(said, listing, min(ends), max(ends)):
            put.store.add(change)
        put.store.flush()
        put.store.sort()
    intervals = {**settings.ticks.interval_s, **put.spill.intervals()}
    intervals.pop(TRAINING, None)
    fitted = msgspec.structs.replace(
        settings,
        cluster=about.cluster or SOURCE,
        ticks=msgspec.structs.replace(settings.ticks, interval_s=intervals),
    )
    return Capture(path.resolve().name, fitted, listing, put)


def _maker(target: Target, columns: list[Column], interval_s: float) -> FrameMaker | StepMaker:
    if target.source == TRAINING:
        return StepMaker(target, columns)
    return FrameMaker(target, columns, interval_s)


def _rows(maker: FrameMaker | StepMaker, block: Block) -> Iterator[Row]:
    if isinstance(maker, StepMaker):
        return (((s.at, KIND_ORDER[Steps], s.node, TRAINING, -1), s) for s in maker.steps(block))
    node, source, kind = block.target.node, block.target.source, KIND_ORDER[Frame]
    return (((frame.at, kind, node, source, 0), frame) for frame in maker.frames(block))


def _order(row: Row) -> Order:
    return row[0]


def _numbered(record: Record | Rejected, seqs: Counter[tuple[str, str]]) -> Record | Rejected:
    """The record at the next place of its stream; frames have theirs."""
    if isinstance(record, (Frame, Rejected)):
        return record
    key = (record.node, record.source)
    seqs[key] += 1
    return msgspec.structs.replace(record, seq=seqs[key] - 1)


def _about(path: Path) -> _About:
    if not path.is_file():
        return _About()
    try:
        about = msgspec.json.decode(_whole(path), type=_About)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f'{path}: {error}; it holds {{"cluster", "timezone", "year"}}') from error
    if about.year is not None and not YEAR_MIN <= about.year <= YEAR_MAX:
        raise InputError(f"{path}: year {about.year} is not between {YEAR_MIN} and {YEAR_MAX}")
    return about


def _listing(path: Path, put: Put) -> tuple[Allocation | None, Wiring]:
    """What `jobs.json` says of jobs and nodes, and of the ports of switches."""
    if not path.is_file():
        return None, {}
    data = _whole(path)
    listing, wiring = read_jobs(data, str(path), 0.0), read_ports(data, str(path))
    strange = unknown_keys(data)
    if strange:
        more = ", ..." if len(strange) > KEYS_SAID else ""
        put.note(f"{path.name} has keys that nobody reads: {', '.join(strange[:KEYS_SAID])}{more}")
    return listing, wiring


def _allocated(path: Path, zone: tzinfo, put: Put) -> Allocated:
    """What `alloc/*` says; notes of what is not whole or not dated."""

    def objects() -> Iterator[Flat]:
        for file in alloc_files(path):
            name = file.relative_to(path).as_posix()
            cut = partial(_cut, put, name)
            yield from read_objects(name, pieces(file, cut, lambda _: None), zone)

    said = read_allocated(objects())
    for refused in said.rejected:
        put.store.add(refused)
    for text in said.partial:
        put.note(f"a listing is not whole, what it lacks is not gone: {text}")
    count = undated(said)
    if count:
        put.note(f"{count} nodes are out in a listing that does not say since when: left open")
    return said


def _cut(put: Put, name: str, why: str) -> None:
    put.torn.append(f"{name}: {why}")


def _whole(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; check the file and its permissions") from error


def _zone(path: Path, said: str, tz: str | None, tz_default: str, put: Put) -> tzinfo:
    name = tz or said or tz_default or "UTC"
    if not tz and not said:
        put.note(f"no time zone named: log lines without one are read as {name}")
    return zone_named(name, str(path / "capture.json") if said and not tz else "--tz")


def _version() -> str:
    try:
        return metadata.version("nodewarden")
    except metadata.PackageNotFoundError:
        return "0"
