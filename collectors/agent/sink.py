"""Where the agent's records go: an outbox to Kafka, or lines on standard output."""

from __future__ import annotations

from typing import IO, Protocol

import msgspec
from msgspec import structs

from telemetry.codec import encode
from telemetry.ports import Clock
from telemetry.records import Record, Rejected

STREAMS_MAX = 64


class Sink(Protocol):
    """Takes records without a place in their stream and gives them one.

    `started_at`, `seq` and `sent_at` are the sink's. Used by one thread. `put` neither blocks nor fails: what cannot be kept is dropped, telemetry
    before events, and counted by the sink.
    """

    def put(self, record: Record) -> int:
        """Take one record; its ticket: 1, 2, 3, ... in the order of the calls."""
        ...

    def reject(self, rejected: Rejected) -> None:
        """Keep what could not be used, as far as there is room."""
        ...

    def poll(self) -> None:
        """Move on; called at least once a second."""
        ...

    def settled(self) -> int:
        """The highest ticket up to which all is acknowledged, on disk, or dropped and counted.

        Only then are positions saved: after a kill more is read again, nothing is left out.
        """
        ...

    def close(self, timeout_s: float) -> None:
        """Hand over what can be handed over in `timeout_s`, keep the rest on disk."""
        ...


class LineSink:
    """Prints records as JSON lines, numbered as an outbox would."""

    def __init__(self, out: IO[str], clock: Clock) -> None:
        self._out, self._clock = out, clock
        self._started_at = clock.time_s()
        self._next: dict[tuple[str, str], int] = {}
        self._put = 0

    def put(self, record: Record) -> int:
        """Print it."""
        stream = (record.node, record.source)
        seq = self._next.get(stream, 0)
        if stream in self._next or len(self._next) < STREAMS_MAX:
            self._next[stream] = seq + 1
        numbered = structs.replace(
            record, started_at=self._started_at, seq=seq, sent_at=self._clock.time_s()
        )
        self._out.write(encode(numbered).decode() + "\n")
        self._put += 1
        return self._put

    def reject(self, rejected: Rejected) -> None:
        """Print it too."""
        self._out.write(msgspec.json.encode(rejected).decode() + "\n")

    def poll(self) -> None:
        """Let a reader see what was printed."""
        self._out.flush()

    def settled(self) -> int:
        """Everything: what was printed is gone."""
        return self._put

    def close(self, timeout_s: float) -> None:
        """Print what is buffered."""
        self._out.flush()
