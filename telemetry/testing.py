"""Fakes of the ports, for tests and for the embedded driver's dry parts. No I/O, no real time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from telemetry.archive_line import ArchiveLine
from telemetry.errors import OffsetGone, PublishError, SourceUnavailable
from telemetry.ports import Place
from telemetry.topics import TIMESTAMP_TYPE


class ManualClock:
    """A clock that moves when told; sleeping moves it too."""

    def __init__(self, now_s: float = 1_700_000_000.0) -> None:
        self._now_s = now_s
        self._monotonic_s = 0.0

    def time_s(self) -> float:
        """Unix seconds."""
        return self._now_s

    def monotonic_s(self) -> float:
        """Seconds since the clock was made; untouched by `set`."""
        return self._monotonic_s

    def sleep(self, seconds: float) -> None:
        """Move both times at once."""
        self.advance(max(seconds, 0.0))

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        assert seconds >= 0.0
        self._now_s += seconds
        self._monotonic_s += seconds

    def set(self, now_s: float) -> None:
        """Correct the wall clock, also backwards, as NTP does."""
        self._now_s = now_s


class Published(msgspec.Struct, frozen=True):
    """One record as `MemoryPublisher` took it."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int | None
    headers: tuple[tuple[str, bytes], ...]


class MemoryPublisher:
    """Keeps what was published; `refuse` makes the next ones fail as a lost broker would."""

    def __init__(self) -> None:
        self.records: list[Published] = []
        self.flushed = 0
        self._refusals = 0

    def refuse(self, times: int) -> None:
        """Let the next `times` records fail."""
        self._refusals = times

    def publish(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Keep the record; raises PublishError while refusing."""
        if self._refusals > 0:
            self._refusals -= 1
            raise PublishError(f"{topic}: refused by the test")
        self.records.append(Published(topic, value, key, partition, tuple(headers)))

    def flush(self) -> None:
        """Count everything published so far as acknowledged."""
        self.flushed = len(self.records)

    def of(self, topic: str) -> list[Published]:
        """What went to `topic`, in order."""
        return [record for record in self.records if record.topic == topic]


class MemoryStateStore:
    """A compacted topic in memory; `writes` keeps every put in order, for tests that cut it."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, bytes]] = []

    def put(self, key: str, value: bytes) -> None:
        """Replace the value of `key`; an empty value forgets it."""
        self.writes.append((key, value))

    def get_all(self, prefix: str) -> Mapping[str, bytes]:
        """All keys that start with `prefix`, in the order of the keys."""
        latest = {key: value for key, value in self.writes if key.startswith(prefix)}
        return {key: latest[key] for key in sorted(latest) if latest[key]}


class MemoryLog:
    """A broker in memory: topics with partitions, records with offsets. `reader()` reads it."""

    def __init__(self, topics: Mapping[str, int], now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms  # stamped on what is appended; tests move it
        self._records: dict[Place, dict[int, ArchiveLine]] = {}
        self._bounds: dict[Place, tuple[int, int]] = {}
        self._refusals = 0
        for topic, partitions in topics.items():
            self.create(topic, partitions)

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic, or give it more partitions."""
        for place in ((topic, number) for number in range(partitions)):
            self._records.setdefault(place, {})
            self._bounds.setdefault(place, (0, 0))

    def append(
        self,
        topic: str,
        value: bytes | None,
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> int:
        """Add one record; returns its offset."""
        place = (topic, partition)
        first, end = self._bounds[place]
        self._records[place][end] = ArchiveLine(
            topic, partition, end, self.now_ms, TIMESTAMP_TYPE, tuple(headers), key, value
        )
        self._bounds[place] = (first, end + 1)
        return end

    def trim(self, topic: str, partition: int, first: int) -> None:
        """Forget what lies before offset `first`, as retention does."""
        place = (topic, partition)
        first_now, end = self._bounds[place]
        self._bounds[place] = (max(first_now, min(first, end)), max(first, end))
        for offset in [offset for offset in self._records[place] if offset < first]:
            del self._records[place][offset]

    def compact(self, topic: str, partition: int, offsets: Sequence[int]) -> None:
        """Forget these offsets and leave the first kept one where it is, as compaction does."""
        for offset in offsets:
            self._records[topic, partition].pop(offset, None)

    def refuse(self, times: int) -> None:
        """Let the next `times` calls of any reader fail as those of a lost broker would."""
        self._refusals = times

    def reader(self, records_max: int = 500) -> MemoryLogReader:
        """A new `LogReader`; one poll gives at most `records_max` records."""
        return MemoryLogReader(self, records_max)

    def answer(self) -> None:
        """Raise SourceUnavailable while refusing."""
        if self._refusals > 0:
            self._refusals -= 1
            raise SourceUnavailable("the broker was taken away by the test")

    def places(self, topic: str) -> list[Place]:
        """The topic's partitions."""
        return sorted(place for place in self._bounds if place[0] == topic)

    def bounds(self, place: Place) -> tuple[int, int]:
        """First kept offset and the next one."""
        return self._bounds[place]

    def records(self, place: Place, offset: int) -> Iterator[ArchiveLine]:
        """What is kept from `offset` on, in order."""
        kept = self._records[place]
        return (kept[at] for at in sorted(kept) if at >= offset)


class MemoryLogReader:
    """`LogReader` over a `MemoryLog`."""

    def __init__(self, log: MemoryLog, records_max: int) -> None:
        self._log = log
        self._records_max = records_max
        self._positions: dict[Place, int] = {}
        self.closed = False

    def partitions(self, topic: str) -> Sequence[int]:
        """The topic's partitions, sorted; empty where the topic does not exist."""
        self._log.answer()
        return [number for _, number in self._log.places(topic)]

    def bounds(self, places: Sequence[Place]) -> Mapping[Place, tuple[int, int]]:
        """First kept offset and the offset that the next record will get."""
        self._log.answer()
        return {place: self._log.bounds(place) for place in places}

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Read these partitions from these offsets on, and no others."""
        self._positions = dict(positions)

    def poll(self, timeout_s: float) -> Sequence[ArchiveLine]:
        """What is there; never waits. Raises OffsetGone as Kafka's reader does."""
        self._log.answer()
        for place, offset in self._positions.items():
            if offset < self._log.bounds(place)[0]:
                raise OffsetGone(f"{place[0]}/{place[1]}@{offset}: no longer kept")
        found: list[ArchiveLine] = []
        for place in sorted(self._positions):
            for line in self._log.records(place, self._positions[place]):
                if len(found) >= self._records_max:
                    return found
                found.append(line)
                self._positions[place] = line.offset + 1
            self._positions[place] = max(self._positions[place], self._log.bounds(place)[1])
        return found

    def positions(self) -> Mapping[Place, int]:
        """Where each partition is read on from."""
        return dict(self._positions)

    def close(self) -> None:
        """Leave."""
        self.closed = True
