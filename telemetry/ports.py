"""What the core asks of the world. Adapters live at the edges, fakes in `telemetry.testing`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from telemetry.archive_line import ArchiveLine

Place = tuple[str, int]  # topic and partition


class Clock(Protocol):
    """Time, for drivers and services; the fold has none."""

    def time_s(self) -> float:
        """Unix seconds: what is written into records."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go back: what durations are measured with."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait; at once where `seconds` is not positive."""
        ...


class Publisher(Protocol):
    """Hands records to the log. Raises PublishError where one could not be handed over."""

    def publish(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Queue one record; a value of None is a tombstone."""
        ...

    def flush(self) -> None:
        """Return when everything published so far is acknowledged."""
        ...


class StateStore(Protocol):
    """Keeps the latest value of each key; what a compacted topic is."""

    def put(self, key: str, value: bytes) -> None:
        """Replace the value of `key`; an empty value forgets it."""
        ...

    def get_all(self, prefix: str) -> Mapping[str, bytes]:
        """All keys that start with `prefix`, in the order of the keys."""
        ...


class LogReader(Protocol):
    """Reads topics without a consumer group: the reader itself says where it stands.

    Raises SourceUnavailable where the broker does not answer.
    """

    def partitions(self, topic: str) -> Sequence[int]:
        """The topic's partitions, sorted; empty where the topic does not exist."""
        ...

    def bounds(self, places: Sequence[Place]) -> Mapping[Place, tuple[int, int]]:
        """First kept offset and the offset that the next record will get."""
        ...

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Read these partitions from these offsets on, and no others."""
        ...

    def poll(self, timeout_s: float) -> Sequence[ArchiveLine]:
        """What came, of a partition in offset order; empty when the time is over.

        Raises OffsetGone where a position lies before what is kept; after any error the reader
        may stand anywhere: assign.
        """
        ...

    def positions(self) -> Mapping[Place, int]:
        """Of each assigned partition the offset to read on from: past what the polls gave, and past
        what nobody gets to see (the marks of transactions, what was taken back or compacted).
        """
        ...

    def close(self) -> None:
        """Leave."""
        ...
