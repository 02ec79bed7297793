"""What the core asks of the world. Adapters live at the edges, fakes in `telemetry.testing`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


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
