"""Every topic into an archive, without a gap and without a repeat through any kill.

What is on the disk is the position: the archiver goes on after the last whole record of each
partition, and commits nothing anywhere. What the broker deleted before it was read is a gap, said
in the log and counted. Offsets that compaction or transactions left out are none.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from streams.archive_metrics import ArchiveMetrics
from streams.archive_settler import Settler
from telemetry.archive import ArchiveFile, ArchiveWriter, Opener, archive_files, open_file
from telemetry.archive_line import ArchiveLine
from telemetry.archive_repair import repair
from telemetry.errors import InputError, OffsetGone
from telemetry.ports import Clock, LogReader, Place
from telemetry.settings import ArchiveSettings
from telemetry.topics import TOPICS

DISCOVER_EVERY_S = 30.0  # topics and partitions that came into being
BOUNDS_EVERY_S = 5.0
PLACES_MAX = 1_024
GAPS_MAX = 1_000
ALL_TOPICS = tuple(topic.name for topic in TOPICS)

_log = logging.getLogger("nodewarden.archive")


class Gap(msgspec.Struct, frozen=True):
    """Offsets [first, until) that the archive will never have."""

    topic: str
    partition: int
    first: int
    until: int
    reason: str


@dataclass(slots=True)
class _Position:
    """One partition: the next offset wanted, and the file that grows."""

    writer: ArchiveWriter
    next: int
    file: ArchiveFile | None = None
    opened_s: float = 0.0
    counted_bytes: int = 0


class Archiver:
    """Reads topics and writes their archive. `start`, then `step` again and again, then `stop`.

    opener  opens the files; tests let it die at a certain byte
    """

    def __init__(
        self, reader: LogReader, settler: Settler, settings: ArchiveSettings, clock: Clock,
        metrics: ArchiveMetrics, *, topics: Sequence[str] = ALL_TOPICS, opener: Opener = open_file,
    ) -> None:  # fmt: skip
        self._reader = reader
        self._settler = settler
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._topics = topics
        self._opener = opener
        self._recovered: dict[Place, _Position] = {}
        self._positions: dict[Place, _Position] = {}
        self._astray = False  # the reader may stand elsewhere than we
        self._jumps: dict[Place, tuple[int, int]] = {}  # not yet judged, [first, until)
        self._synced_at = self._bounds_at = clock.monotonic_s()
        self._discovered_at = 0.0
        self.records = 0
        self.gaps: list[Gap] = []

    def start(self) -> None:
        """Repair what a kill left, and stand where it ended.

        Raises SourceUnavailable where broker or store do not answer, InputError where the archive
        is another log's.
        """
        stored = self._settler.store.newest()
        for place, offset in stored.items():
            self._recovered[place] = _Position(self._writer(place), offset + 1)
        for place, files in self._local().items():
            self._recover(place, files, stored.get(place))
        self._discover()

    def step(self, timeout_s: float) -> int:
        """Take what comes within `timeout_s`, and do what is due; returns how many records came.

        Raises SourceUnavailable; nothing is lost, call again. After an OSError the process has to
        end: a frame may be torn, and the next start cuts it.
        """
        now_s = self._clock.monotonic_s()
        if now_s - self._discovered_at >= DISCOVER_EVERY_S:
            self._sync()
            self._discover()
        lines: Sequence[ArchiveLine] = ()
        if self._settler.is_full:
            self._clock.sleep(timeout_s)
        else:
            lines = self._poll(min(timeout_s, self._settings.sync_s))
        self._take(lines)
        self._ask(look=now_s - self._bounds_at >= BOUNDS_EVERY_S)
        return len(lines)

    def _ask(self, *, look: bool) -> None:
        """Questions to the broker; an answer may take as long as the request timeout."""
        if not self._jumps and not look:
            self.sync_if_due()
            return
        self._sync()
        self._judge()
        if look:
            self._look()

    def sync_if_due(self) -> None:
        """Everything onto the disk when `sync_s` passed; files that are old enough are closed."""
        if self._clock.monotonic_s() - self._synced_at >= self._settings.sync_s:
            self._sync()

    def _sync(self) -> None:
        now_s = self._clock.monotonic_s()
        for (topic, _), position in self._positions.items():
            writer = position.writer
            writer.sync()
            self._metrics.written_bytes.labels(topic).inc(
                writer.written_bytes - position.counted_bytes
            )
            position.counted_bytes = writer.written_bytes
            self._age(position, now_s)
        self._synced_at = now_s
        self._metrics.last_sync_s.set(self._clock.time_s())

    def stop(self) -> None:
        """Everything onto the disk; files stay open for the next start to go on in."""
        for position in (*self._positions.values(), *self._recovered.values()):
            position.writer.suspend()
        self._metrics.last_sync_s.set(self._clock.time_s())

    # -- where a kill left us

    def _local(self) -> dict[Place, list[ArchiveFile]]:
        found: dict[Place, list[ArchiveFile]] = {}
        for file in archive_files(self._settler.store.work_dir, None):
            if file.topic in self._topics:
                found.setdefault((file.topic, file.partition), []).append(file)
        return found

    def _recover(self, place: Place, files: list[ArchiveFile], stored: int | None) -> None:
        work_dir = self._settler.store.work_dir
        if stored is not None:
            stale = [file for file in files if file.first_offset <= stored]
            for file in stale:
                path = work_dir / file.relative
                path.rename(path.with_name(f"{path.name}.superseded"))
                _log.warning("file_superseded file=%s stored_offset=%d", file.relative, stored)
            files = files[len(stale) :]
        if not files:
            return
        for file in files[:-1]:
            self._settler.offer(file)
        newest = files[-1]
        closed = self._settler.store.has(newest)
        repaired = repair(work_dir, newest)
        if repaired.cut_bytes:
            _log.warning(
                "tail_cut file=%s bytes=%d kept_as=%s",
                newest.relative, repaired.cut_bytes, repaired.damaged,
            )  # fmt: skip
        writer = self._writer(place)
        if not closed:
            writer.resume(repaired.extent)
        last = repaired.extent.last_offset
        self._recovered[place] = _Position(
            writer, newest.first_offset if last is None else last + 1
        )

    def _discover(self) -> None:
        places = [
            (topic, number) for topic in self._topics for number in self._reader.partitions(topic)
        ]
        fresh = [place for place in places if place not in self._positions]
        if len(places) > PLACES_MAX:
            raise InputError(f"{len(places)} partitions, at most {PLACES_MAX} go into one archive")
        if fresh:
            for place, bounds in self._reader.bounds(fresh).items():
                self._positions[place] = self._placed(place, *bounds)
                self._recovered.pop(place, None)
            self._assign()
        self._discovered_at = self._clock.monotonic_s()

    def _placed(self, place: Place, first: int, end: int) -> _Position:
        topic, number = place
        position = self._recovered.get(place)
        if position is None:
            _log.info("partition_new topic=%s partition=%d offset=%d", topic, number, first)
            return _Position(self._writer(place), first)
        if position.next > end:
            raise InputError(
                f"{self._settler.store.work_dir}: holds {topic}/{number} up to offset"
                f" {position.next - 1}, the broker ends at {end}: another cluster's archive, or the"
                " topic was made anew; choose an empty directory"
            )
        if first > position.next:
            self._gap(place, position.next, first, "deleted")
            position.next = first
        _log.info("partition_go_on topic=%s partition=%d offset=%d", topic, number, position.next)
        return position

    def _assign(self) -> None:
        self._reader.assign({place: found.next for place, found in self._positions.items()})

    # -- what comes

    def _poll(self, timeout_s: float) -> Sequence[ArchiveLine]:
        """After a failed poll the reader may have gone on without telling: it is placed anew."""
        if self._astray:
            self._assign()
        self._astray = True
        try:
            lines = self._reader.poll(timeout_s)
        except OffsetGone:
            self._sync()
            self._give_up_deleted()
            return ()
        self._astray = False
        return lines

    def _take(self, lines: Sequence[ArchiveLine]) -> None:
        for line in lines:
            place = (line.topic, line.partition)
            position = self._positions[place]
            if line.offset < position.next:
                self._metrics.repeated.labels(line.topic).inc()
                continue
            if line.offset > position.next:
                self._jumps.setdefault(place, (position.next, line.offset))
            self._append(place, position, line)
            position.next = line.offset + 1

    def _append(self, place: Place, position: _Position, line: ArchiveLine) -> None:
        try:
            position.writer.append(
                line.offset, line.timestamp_ms, line.value, line.key, line.headers,
                line.timestamp_type,
            )  # fmt: skip
        except InputError as error:
            _log.error("record_refused error=%s", error)
            self._gap(place, line.offset, line.offset + 1, "too_large")
        else:
            self.records += 1
            self._metrics.records.labels(line.topic).inc()

    def _judge(self) -> None:
        """A jump is a gap as far as the broker deleted what lies before its first offset."""
        if not self._jumps:
            return
        for place, (first_kept, _) in self._reader.bounds(list(self._jumps)).items():
            first, until = self._jumps[place]
            if first_kept > first:
                self._gap(place, first, min(first_kept, until), "deleted")
        self._jumps.clear()

    def _look(self) -> None:
        """How far behind we are."""
        for place, (_, end) in self._reader.bounds(list(self._positions)).items():
            behind = max(end - self._positions[place].next, 0)
            self._metrics.lag.labels(*place).set(behind)
        self._bounds_at = self._clock.monotonic_s()

    def _give_up_deleted(self) -> None:
        """Go on at what the broker still has."""
        for place, (first, _) in self._reader.bounds(list(self._positions)).items():
            position = self._positions[place]
            if first > position.next:
                self._gap(place, position.next, first, "deleted")
                position.next = first

    def _gap(self, place: Place, first: int, until: int, reason: str) -> None:
        topic, number = place
        self._metrics.gaps.labels(topic, number, reason).inc()
        self._metrics.gap_records.labels(topic, number, reason).inc(until - first)
        _log.error(
            "gap topic=%s partition=%d first=%d until=%d reason=%s: these records are in no file"
            " and never will be", topic, number, first, until, reason,
        )  # fmt: skip
        if len(self.gaps) < GAPS_MAX:
            self.gaps.append(Gap(topic, number, first, until, reason))

    def _age(self, position: _Position, now_s: float) -> None:
        """Close a file that was open long enough, also where nothing more comes."""
        writer = position.writer
        if not writer.is_open or not writer.extent.lines:
            return
        if position.file != writer.extent.file:
            position.file, position.opened_s = writer.extent.file, now_s
        elif now_s - position.opened_s >= self._settings.roll_s:
            writer.close()

    def _writer(self, place: Place) -> ArchiveWriter:
        settings = self._settings
        return ArchiveWriter(
            self._settler.store.work_dir, *place,
            roll_bytes=settings.roll_bytes, roll_s=settings.roll_s,
            flush_bytes=settings.flush_bytes,
            on_closed=self._settler.offer, opener=self._opener,
        )  # fmt: skip
