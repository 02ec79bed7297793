"""Where the agent's records go: an outbox to Kafka, or lines on standard output."""

from __future__ import annotations

from collections import Counter
from typing import IO, Protocol

import msgspec
from msgspec import structs

from telemetry.codec import encode
from telemetry.ports import Clock
from telemetry.records import Record, Rejected

STREAMS_MAX = 64


class Sink(Protocol):
    """Takes records without a place in their stream and gives them one: `collectors.outbox`.

    `seq` and `sent_at` are the sink's to set. Used by one thread. `put` neither blocks nor fails:
    what cannot be kept is dropped, telemetry before events, and counted.
    """

    @property
    def safe(self) -> int:
        """Every record up to this ticket is acknowledged, on disk, or counted as dropped.

        Only then are positions saved: after a kill more is read again, nothing is left out.
        """
        ...

    def put(self, record: Record) -> int:
        """Take one record; its ticket, one more than the last."""
        ...

    def resume(self, stream: tuple[str, str, float], seq: int) -> None:
        """Number the next record of the stream (node, source, started_at) `seq`."""
        ...

    def reject(self, rejected: Rejected) -> None:
        """Take what could not be used."""
        ...

    def pump(self) -> None:
        """Move on; called at least once a second."""
        ...

    def close(self, timeout_s: float) -> None:
        """Hand over what can be handed over in `timeout_s`, keep the rest for the next start."""
        ...


class LineSink:
    """Prints records as JSON lines, numbered as an outbox would."""

    def __init__(self, out: IO[str], clock: Clock, streams_max: int = STREAMS_MAX) -> None:
        self._out, self._clock, self._streams_max = out, clock, streams_max
        self._next: Counter[tuple[str, str, float]] = Counter()
        self._put = 0

    @property
    def safe(self) -> int:
        """Everything: what was printed is gone."""
        return self._put

    def put(self, record: Record) -> int:
        """Print it."""
        stream = (record.node, record.source, record.started_at)
        assert stream in self._next or len(self._next) < self._streams_max
        numbered = structs.replace(record, seq=self._next[stream], sent_at=self._clock.time_s())
        self._next[stream] += 1
        self._out.write(encode(numbered).decode() + "\n")
        self._put += 1
        return self._put

    def resume(self, stream: tuple[str, str, float], seq: int) -> None:
        """Go on at `seq`."""
        self._next[stream] = seq

    def reject(self, rejected: Rejected) -> None:
        """Print it too."""
        self._out.write(msgspec.json.encode(rejected).decode() + "\n")

    def pump(self) -> None:
        """Let a reader see what was printed."""
        self._out.flush()

    def close(self, timeout_s: float) -> None:
        """Print what is buffered."""
        self._out.flush()
