"""Whole snapshots of a fold as bytes under keys, and folds made from them again.

Two slots, a and b: one is written while the other stands; its closing marker counts and hashes the
chunks, and names the segments it needs. A torn snapshot is not used: the one before it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping

import msgspec

from detectors.base import FindingBook
from streams.counters import Counters, Coverage
from streams.fold import Fold
from streams.inventory import InventoryState
from streams.progress import JobProgress
from streams.skew import Skew
from streams.speakers import Stream
from streams.spool import SpoolWatch
from streams.ticks import SourceTicks
from streams.ticks_state import (
    Segment,
    SourceState,
    apply_segment,
    restore_source,
    source_state,
    take_segment,
)
from streams.verdicts import Docket
from telemetry.errors import SnapshotError
from telemetry.findings import Finding
from telemetry.settings import EngineSettings

FORMAT = 2
CHUNK_BYTES = 900_000
RING = 64  # segments kept
NEEDED = 16  # a snapshot that would need more segments starts with a whole one
# Whoever takes over leaves so many numbers free: a worker that lost the shard without knowing goes
# on from the same snapshot, and what it still writes must not stand where ours do.
LEAP = 21


class SequenceState(msgspec.Struct):
    """One stream's window."""

    node: str
    source: str
    started_at: float
    highest: int
    bits: bytes
    lost: int


class SkewState(msgspec.Struct):
    """One node's clock."""

    node: str
    boot_id: str
    buckets: list[tuple[int, float]]
    disagreed: int


class FoldState(msgspec.Struct):
    """A fold at one offset, but for its windows."""

    offset: int
    now: float
    next_beat: float
    beats: bool
    ready: bool
    ended: bool
    piece: tuple[float, str, float | None] | None
    last_at: float | None
    swept: int
    settings: EngineSettings
    digest: str
    counters: Counters
    coverage: Coverage | None
    streams: list[SequenceState]
    skews: list[SkewState]
    inventory: InventoryState
    groups: list[tuple[str, int, int]]
    groups_given: int
    sources: dict[str, SourceState]
    spool: SpoolWatch
    progress: list[tuple[str, JobProgress]]
    docket: Docket
    findings: list[Finding]
    findings_cleared: list[str]
    findings_dropped: int
    detectors: dict[str, bytes]
    correlator: bytes


class SegmentMark(msgspec.Struct):
    """One segment that a snapshot needs."""

    number: int
    chunks: int
    sha256: str


class Marker(msgspec.Struct):
    """Closes a slot."""

    format: int
    number: int
    offset: int
    chunks: int
    sha256: str
    segments: list[SegmentMark]
    said: dict[str, int] = {}  # topic -> next offset of what was said, up to `offset`


def fold_state(fold: Fold) -> FoldState:
    """Everything that the fold knows, but for the windows of its sources."""
    return FoldState(
        offset=fold.offset, now=fold.now, next_beat=fold.next_beat, beats=fold.beats,
        ready=fold.ready, ended=fold.ended, piece=fold.piece,
        last_at=fold.last_at, swept=fold.swept, settings=fold.settings, digest=fold.digest,
        counters=fold.counters, coverage=fold.coverage,
        streams=[
            SequenceState(*key, w.highest, w.bits.to_bytes(128, "little"), w.lost)
            for key, w in fold.speakers.streams.items()
        ],
        skews=[
            SkewState(node, clock.boot_id, clock.buckets, clock.disagreed)
            for node, clock in fold.speakers.clocks.items()
        ],
        inventory=fold.inventory.snapshot(),
        groups=[(job, stage, number) for (job, stage), number in fold.groups.numbers.items()],
        groups_given=fold.groups.given,
        sources={name: source_state(source) for name, source in fold.sources.items()},
        spool=fold.spool,
        progress=list(fold.progress.jobs.items()),
        docket=fold.judge.docket,
        findings=fold.book.snapshot(), findings_cleared=fold.book.cleared(),
        findings_dropped=fold.book.dropped,
        detectors={d.name: msgspec.msgpack.encode(d.snapshot()) for d in fold.detectors},
        correlator=msgspec.msgpack.encode(fold.correlator.snapshot()),
    )  # fmt: skip


def restore_fold(fold: Fold, state: FoldState) -> None:
    """Fill a fresh fold; the windows of its sources come from segments."""
    fold.adopt_settings(state.settings, state.digest)
    fold.offset, fold.now, fold.next_beat = state.offset, state.now, state.next_beat
    fold.beats, fold.ready, fold.ended = state.beats, state.ready, state.ended
    fold.piece, fold.last_at, fold.swept = state.piece, state.last_at, state.swept
    fold.counters, fold.coverage = state.counters, state.coverage
    for s in state.streams:
        stream = Stream(s.highest, int.from_bytes(s.bits, "little"), s.lost)
        fold.speakers.streams[s.node, s.source, s.started_at] = stream
    for kept in state.skews:
        clock = fold.speakers.clocks[kept.node] = Skew(state.settings.ticks)
        clock.restore(kept.buckets)
        clock.boot_id, clock.disagreed = kept.boot_id, kept.disagreed
    fold.inventory.restore(state.inventory)
    fold.groups.numbers = {(job, stage): number for job, stage, number in state.groups}
    fold.groups.given = state.groups_given
    for name, source in state.sources.items():
        fold.sources[name] = SourceTicks(
            name, source.interval_s, state.settings, fold.inventory.in_service
        )
        restore_source(fold.sources[name], source)
        for node in source.names:
            fold.be_patient(node, source.interval_s)
    fold.spool = state.spool
    fold.progress.jobs.update(state.progress)
    fold.judge.docket = state.docket
    fold.book = FindingBook(state.settings.cluster)
    fold.book.restore(state.findings, state.findings_cleared)
    fold.book.dropped = state.findings_dropped
    for detector in fold.detectors:
        if detector.name in state.detectors:
            detector.restore(msgspec.msgpack.decode(state.detectors[detector.name]))
    fold.correlator.restore(msgspec.msgpack.decode(state.correlator))


class Snapshots:
    """Writes a shard's snapshots; one a shard, from the first or from what `load` found."""

    def __init__(self, shard: str) -> None:
        self.shard = shard
        self.number = 0  # of the next snapshot
        self.segment = 0  # number of the next segment
        self.needed: list[tuple[SegmentMark, dict[str, int]]] = []  # with the newest tick a source
        self.since: dict[str, int] = {}
        self.sources: dict[str, SourceTicks] = {}  # what the segments so far are of
        self.said: dict[str, int] = {}  # topic -> where what is said from here on begins

    def take(self, fold: Fold) -> Iterator[tuple[str, bytes]]:
        """The puts of one snapshot, in the order in which they must be acknowledged."""
        whole = not self.needed or len(self.needed) >= NEEDED
        # A source that was dropped and made anew (a new piece of history, another interval) has
        # nothing in common with the segments of the one before it.
        same = self.sources.keys() == fold.sources.keys() and all(
            self.sources[name] is source for name, source in fold.sources.items()
        )
        if whole or not same or set(fold.sources) != set(self.since):
            self.needed, self.since = [], {}
        self.sources = dict(fold.sources)
        segments = {
            name: take_segment(source, self.since.get(name))
            for name, source in fold.sources.items()
        }
        newest = {
            name: source.windows.newest
            for name, source in fold.sources.items()
            if source.windows.newest is not None
        }
        body = msgspec.msgpack.encode(segments)
        prefix = f"{self.shard}/segment/{self.segment % RING}"
        chunks = list(_chunks(body))
        for i, chunk in enumerate(chunks):
            yield f"{prefix}/{i}", chunk
        self.needed.append((SegmentMark(self.segment, len(chunks), _sha256(body)), newest))
        self.segment += 1
        self.since = newest
        self._forget_old(fold)
        yield from self._slot(msgspec.msgpack.encode(fold_state(fold)), fold.offset)

    def _slot(self, body: bytes, offset: int) -> Iterator[tuple[str, bytes]]:
        slot = "ab"[self.number % 2]
        chunks = list(_chunks(body))
        for i, chunk in enumerate(chunks):
            yield f"{self.shard}/{slot}/{i}", chunk
        marker = Marker(
            format=FORMAT, number=self.number, offset=offset, chunks=len(chunks),
            sha256=_sha256(body), segments=[mark for mark, _ in self.needed],
            said=dict(self.said),
        )  # fmt: skip
        self.number += 1
        yield f"{self.shard}/{slot}/marker", msgspec.msgpack.encode(marker)

    def _forget_old(self, fold: Fold) -> None:
        """Segments all of whose ticks have left the windows are needed no more."""

        def live(newest: Mapping[str, int]) -> bool:
            return any(
                name in newest
                and source.windows.newest is not None
                and newest[name] > source.windows.newest - source.windows.ticks
                for name, source in fold.sources.items()
            )

        while len(self.needed) > 1 and not live(self.needed[0][1]):
            self.needed.pop(0)


def load(
    shard: str, stored: Mapping[str, bytes], make: Callable[[], Fold]
) -> tuple[Fold, Snapshots] | None:
    """The newest snapshot that is whole, in a fold that `make` made; None without one.

    The fold's next record is the one at its `offset` + 1.
    """
    # By offset: a worker that lost its shard without knowing may have written an older one since.
    for marker in sorted(_markers(shard, stored), key=lambda m: (-m.offset, -m.number)):
        try:
            state, segments = _read(shard, stored, marker)
            fold = make()
            _fill_fold(fold, state, segments)
        except (SnapshotError, msgspec.DecodeError, msgspec.ValidationError):
            continue  # torn, or overwritten half-way: the one before it is tried
        snapshots = Snapshots(shard)
        snapshots.number = marker.number + 1
        # Neither the other slot's segments nor a forgotten worker's: go on behind the newest.
        snapshots.segment = marker.segments[-1].number + LEAP
        snapshots.said = dict(marker.said)
        return fold, snapshots
    return None


def _markers(shard: str, stored: Mapping[str, bytes]) -> Iterator[Marker]:
    for slot in "ab":
        data = stored.get(f"{shard}/{slot}/marker")
        if data is None:
            continue
        try:
            marker = msgspec.msgpack.decode(data, type=Marker)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            continue
        if marker.format == FORMAT and marker.segments:
            yield marker


def _read(
    shard: str, stored: Mapping[str, bytes], marker: Marker
) -> tuple[FoldState, list[dict[str, Segment]]]:
    slot = "ab"[marker.number % 2]
    body = _join(stored, f"{shard}/{slot}", marker.chunks, marker.sha256)
    segments = [
        _join(stored, f"{shard}/segment/{mark.number % RING}", mark.chunks, mark.sha256)
        for mark in marker.segments
    ]
    return (
        msgspec.msgpack.decode(body, type=FoldState),
        [msgspec.msgpack.decode(data, type=dict[str, Segment]) for data in segments],
    )


def _fill_fold(fold: Fold, state: FoldState, segments: list[dict[str, Segment]]) -> None:
    restore_fold(fold, state)
    for segment in segments:
        for name, part in segment.items():
            if name in fold.sources:
                apply_segment(fold.sources[name], part)
    for name, source in fold.sources.items():
        if source.windows.newest != state.sources[name].newest:
            raise SnapshotError(f"the windows of {name} do not reach its newest tick")
    fold.look_at_due()


def _join(stored: Mapping[str, bytes], prefix: str, chunks: int, sha256: str) -> bytes:
    parts = [stored.get(f"{prefix}/{i}") for i in range(chunks)]
    body = b"".join(part for part in parts if part is not None)
    if None in parts or _sha256(body) != sha256:
        raise SnapshotError(f"{prefix} is torn")
    return body


def _chunks(body: bytes) -> Iterator[bytes]:
    for start in range(0, max(len(body), 1), CHUNK_BYTES):
        yield body[start : start + CHUNK_BYTES]


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
