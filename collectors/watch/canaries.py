"""Canaries into each live shard, and which of them came back. No thread, no reading.

A name is drawn by chance for each canary, so that only those count that were sent from here.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from collectors.watch.metrics import WatchMetrics
from telemetry.canary import Heard, canary
from telemetry.codec import encode
from telemetry.ports import Clock, Publisher
from telemetry.records import Event
from telemetry.settings import WatchSettings
from telemetry.topics import TELEMETRY

WAITING_MAX = 64  # canaries of one shard that are remembered
NAME_BYTES = 8


class LiveShard(NamedTuple):
    """A live shard and its partition."""

    name: str
    partition: int


@dataclass
class _Way:
    """What is known of one shard's canaries; times are monotonic."""

    seq: int = 0
    sent_s: float = -math.inf
    seen_s: float | None = None
    delay_s: float = 0.0  # of the newest that came back
    waiting: dict[str, float] = field(default_factory=dict)  # entity -> when it was sent, in order
    late: set[str] = field(default_factory=set)  # of these, counted as late


def drawn() -> str:
    """The name of a canary: nobody can guess it."""
    return secrets.token_hex(NAME_BYTES)


class Canaries:
    """`send`, `heard` and `look` again and again, from one thread.

    `faults` may be asked from another, and is worked out then: where the first one hangs, canaries
    are late all the same.
    """

    def __init__(
        self, shards: Sequence[LiveShard], publisher: Publisher, settings: WatchSettings,
        clock: Clock, metrics: WatchMetrics, draw: Callable[[], str] = drawn,
    ) -> None:  # fmt: skip
        self._shards = list(shards)
        self._publisher = publisher
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._draw = draw
        self._started_at = clock.time_s()
        self._ways = {shard.name: _Way() for shard in shards}
        self._lock = threading.Lock()  # of the ways; never held while anything is waited for
        self._unsettled = False
        metrics.canary_s.set(settings.canary_s)
        metrics.limit_s.set(settings.canary_late_s)
        for shard in self._ways:
            metrics.late.labels(shard)
            metrics.foreign.labels(shard)
        self.look()

    @property
    def faults(self) -> list[str]:
        """Why the way through the engine does not count as open now; empty where it does."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            found = [self._fault(shard, way, now_s) for shard, way in self._ways.items()]
        return [fault for fault in found if fault]

    def send(self) -> None:
        """Send what is due. Raises PublishError: what was not taken is handed over again later."""
        for shard in self._shards:
            record = self._due(shard)
            if record is None:
                continue
            self._unsettled = True
            self._publisher.publish(
                TELEMETRY, encode(record), key=shard.name.encode(), partition=shard.partition,
                headers=[("kind", b"event")],
            )  # fmt: skip
        if self._unsettled:
            self._publisher.flush()
            self._unsettled = False

    def heard(self, shard: str, found: Heard) -> None:
        """A canary came out of the engine."""
        with self._lock:
            way = self._ways.get(shard)
            if way is None or found.entity not in way.waiting:
                self._metrics.foreign.labels(shard).inc()
            else:
                self._came_back(shard, way, found.entity)

    def look(self) -> None:
        """See what is late by now."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            for shard, way in self._ways.items():
                for entity, sent_s in way.waiting.items():
                    if now_s - sent_s > self._settings.canary_late_s:
                        self._note_late(shard, way, entity)
                oldest_s = next(iter(way.waiting.values()), now_s)
                self._metrics.waiting_s.labels(shard).set(now_s - oldest_s)

    def _due(self, shard: LiveShard) -> Event | None:
        """The next canary, which is waited for from now on; None before its time."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            way = self._ways[shard.name]
            if now_s - way.sent_s < self._settings.canary_s:
                return None
            seq, way.seq = way.seq, way.seq + 1
            record = canary(self._draw(), self._clock.time_s(), self._started_at, seq)
            way.sent_s = way.waiting[record.entity] = now_s
            if len(way.waiting) > WAITING_MAX:
                gone = next(iter(way.waiting))
                del way.waiting[gone]
                way.late.discard(gone)
        self._metrics.canaries.labels(shard.name).inc()
        return record

    def _came_back(self, shard: str, way: _Way, entity: str) -> None:
        now_s, limit_s = self._clock.monotonic_s(), self._settings.canary_late_s
        delay_s = now_s - way.waiting[entity]
        way.seen_s, way.delay_s = now_s, delay_s
        if delay_s > limit_s:
            way.sent_s = -math.inf  # whether it is well by now, the next one tells, at once
        self._metrics.delay_s.labels(shard).set(delay_s)
        self._metrics.seen_s.labels(shard).set(self._clock.time_s())
        # They leave as they came in: what was sent before this one was lost on the way.
        for older in list(way.waiting):
            if older != entity or delay_s > limit_s:
                self._note_late(shard, way, older)
            del way.waiting[older]
            way.late.discard(older)
            if older == entity:
                break

    def _note_late(self, shard: str, way: _Way, entity: str) -> None:
        if entity not in way.late:
            way.late.add(entity)
            self._metrics.late.labels(shard).inc()

    def _fault(self, shard: str, way: _Way, now_s: float) -> str:
        """What is not well, empty where canaries come back in time."""
        limit_s = self._settings.canary_late_s
        waits_s = now_s - next(iter(way.waiting.values()), now_s)
        if waits_s > limit_s:
            return f"shard {shard}: a canary has not come back for {waits_s:.0f} s"
        if way.seen_s is None:
            return f"shard {shard}: no canary has come back yet"
        if way.delay_s > limit_s:
            return f"shard {shard}: the last canary took {way.delay_s:.0f} s"
        since_s = now_s - way.seen_s
        if since_s > self._settings.canary_s + limit_s:
            return f"shard {shard}: the last canary came back {since_s:.0f} s ago"
        return ""
