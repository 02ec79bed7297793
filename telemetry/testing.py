"""Fakes of the ports, for tests and for the embedded driver's dry parts. No I/O, no real time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from telemetry.errors import PublishError


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
