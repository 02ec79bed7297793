"""What the central collector's loop asks of its sources."""

from __future__ import annotations

from typing import Protocol

import msgspec

from telemetry.records import Record, Rejected

Stream = tuple[str, str, float]


class Said(msgspec.Struct):
    """What a source has to say now; records have their `started_at`."""

    records: list[Record] = []
    rejected: list[Rejected] = []
    notes: list[str] = []


class Source(Protocol):
    """Used by one thread; may have threads of its own."""

    def streams(self) -> dict[Stream, int]:
        """Streams that go on where a process before this one left them, and their next numbers."""
        ...

    def poll(self) -> Said | None:
        """What there is to say; None for nothing. Never blocks; raises SettingsError."""
        ...

    def reached(self, ticket: int) -> None:
        """All that was polled is put, up to this ticket of the sink."""
        ...

    def settle(self, safe: int) -> None:
        """Everything up to this ticket is acknowledged, on disk, or dropped and counted."""
        ...

    def finish(self) -> Said | None:
        """What there still is to say at the end; not polled again."""
        ...

    def close(self) -> None:
        """Give everything back. Not to be polled again."""
        ...
