"""The way out of the node: numbers the sources' records, sends them, keeps them while nobody does.

Records leave in the order in which they were put. While the broker takes them they go straight to
the link; else to the spool, which is drained in order when it takes them again. Whatever is under
way behind a record on disk is on disk too, so that a lost connection is only a step back in it.
Never waits for the broker. One thread.
"""

from __future__ import annotations

from collections import Counter, deque

import msgspec

from collectors.link import Link, Message
from collectors.outbox_metrics import OutboxMetrics
from collectors.spool import Spool
from telemetry.codec import decode, encode
from telemetry.ports import Clock
from telemetry.records import Beat, Frame, Hardware, Record, Rejected, Steps
from telemetry.topics import INVENTORY, REJECTED, TELEMETRY

SYNC_S = 0.5  # at most so much later a record on disk is safe
PATIENCE_S = 10.0  # with records under way and none acknowledged, the broker is away
STREAMS_MAX = 10_000
_MAY_DROP = (Frame, Steps, Beat)
_REJECTED = "rejected"  # goes to the topic of that name, outside all streams
_INVENTORY = "inventory"  # what a node is made of, once more, for whoever starts cold


class Shard(msgspec.Struct, frozen=True):
    """Where the records go: the shard's name is their key, its position their partition."""

    name: str
    partition: int


class _UnderWay(msgspec.Struct):
    """A record that the link has taken.

    order  its place on disk; None where it has none, 0 where there was no room for it
    """

    message: Message
    kind: str
    keep: bool
    order: int | None


class Outbox:
    """`put` gives a ticket; a source saves its position once `safe` has reached the ticket."""

    def __init__(
        self,
        link: Link,
        spool: Spool,
        clock: Clock,
        shard: Shard,
        metrics: OutboxMetrics,
        patience_s: float = PATIENCE_S,
        streams_max: int = STREAMS_MAX,
    ) -> None:
        self._link = link
        self._spool = spool
        self._clock = clock
        self._shard = shard
        self._metrics = metrics
        self._patience_s = patience_s
        self._streams_max = streams_max
        self._seqs: dict[tuple[str, str, float], int] = {}
        self._under_way: deque[_UnderWay] = deque()  # those on disk first
        self._heard_s = clock.monotonic_s()
        self._ticket = 0
        self._safe = 0
        self._sync_due_s = self._heard_s
        self._said_dropped: Counter[str] = Counter()
        self._said_replaced = 0
        self._said_faults = 0

    @property
    def safe(self) -> int:
        """Every record up to this ticket is acknowledged, on disk, or counted as dropped."""
        return self._safe

    def put(self, record: Record, *, keep: bool | None = None) -> int:
        """Number the record and let it go; its ticket, one more than the last.

        `keep` is never dropped for later records; left out, it is everything but frames, steps and
        beats. `seq` and `sent_at` are set here, once: a record that waits on disk keeps both.
        """
        kept = not isinstance(record, _MAY_DROP) if keep is None else keep
        numbered = msgspec.structs.replace(
            record, seq=self._next_seq(record), sent_at=self._clock.time_s(), spooled=False
        )
        self._ticket += 1
        value = encode(numbered)
        self._go(value, _kind(record), kept)
        if isinstance(record, Hardware):
            self._go(value, _INVENTORY, True)
        return self._ticket

    def resume(self, stream: tuple[str, str, float], seq: int) -> None:
        """Number the next record of the stream `seq`: it goes on where a process before left it."""
        self._seqs[stream] = seq

    def reject(self, rejected: Rejected) -> None:
        """Let what a source could not use go to the topic of the rejected; it makes room like a
        frame, and has no ticket."""
        self._go(msgspec.json.encode(rejected), _REJECTED, False)

    def pump(self) -> None:
        """Take note of what was acknowledged and send what waits; at least every second."""
        self._settle()
        self._lose_patience()
        self._drain()
        if self._clock.monotonic_s() >= self._sync_due_s:
            self._sync()
        self._make_safe()

    def close(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` for what is under way, then keep it on disk for the next start.

        The link and the spool are closed.
        """
        end_s = self._clock.monotonic_s() + timeout_s
        self.pump()
        while self._under_way and self._clock.monotonic_s() < end_s:
            self._clock.sleep(0.02)
            self.pump()
        self._to_disk_under_way()
        self._sync()
        self._make_safe()
        self._link.close()
        self._spool.close()

    def _next_seq(self, record: Record) -> int:
        stream = (record.node, record.source, record.started_at)
        seq = self._seqs.get(stream, 0)
        assert seq or len(self._seqs) < self._streams_max, "a stream is one source, not one record"
        self._seqs[stream] = seq + 1
        return seq

    def _go(self, value: bytes, kind: str, keep: bool) -> None:
        message = self._message(value, kind)
        if self._spool.peek() is not None or not self._offer(message, kind, keep, None):
            self._to_disk_under_way()
            self._to_disk(message, kind, keep)

    def _message(self, value: bytes, kind: str) -> Message:
        if kind == _REJECTED:
            return Message(REJECTED, value, None, 0)
        if kind == _INVENTORY:
            record = decode(value, "outbox")
            assert isinstance(record, Hardware)
            return Message(INVENTORY, value, f"hw/{record.node}".encode(), 0)
        return Message(
            TELEMETRY, value, self._shard.name.encode(), self._shard.partition,
            (("kind", kind.encode()),),
        )  # fmt: skip

    def _offer(self, message: Message, kind: str, keep: bool, order: int | None) -> bool:
        if not self._link.offer(message):
            return False
        if not self._under_way:
            self._heard_s = self._clock.monotonic_s()
        self._under_way.append(_UnderWay(message, kind, keep, order))
        self._metrics.sent.labels(kind).inc()
        return True

    def _to_disk(self, message: Message, kind: str, keep: bool) -> int | None:
        self._metrics.spooled.labels(kind).inc()
        return self._spool.append(_waited(message.value or b""), kind, keep=keep)

    def _to_disk_under_way(self) -> None:
        """Give everything under way its place on disk, counted there as read."""
        direct = [entry for entry in self._under_way if entry.order is None]
        for entry in direct:
            entry.order = self._to_disk(entry.message, entry.kind, entry.keep) or 0
        if direct:
            self._spool.skip()

    def _settle(self) -> None:
        for settled in self._link.settled():
            entry = self._under_way.popleft()
            assert entry.message is settled.message, "the link settles in the order of offers"
            self._heard_s = self._clock.monotonic_s()
            if settled.fault is None:
                self._metrics.acknowledged.labels(entry.kind).inc()
            else:
                self._metrics.dropped.labels(entry.kind, "refused").inc()
            if entry.order is not None:
                self._spool.ack(entry.order)

    def _lose_patience(self) -> None:
        silent_s = self._clock.monotonic_s() - self._heard_s
        if not self._under_way or silent_s < self._patience_s:
            return
        self._metrics.errors.labels("silent").inc()
        self._to_disk_under_way()
        self._link.withdraw()
        self._under_way.clear()
        self._spool.rewind()

    def _drain(self) -> None:
        while (entry := self._spool.peek()) is not None:
            message = self._message(entry.payload, entry.kind)
            if not self._offer(message, entry.kind, True, entry.order):
                return
            self._spool.advance()

    def _sync(self) -> None:
        """The disk is slow, so not at every turn of the agent's loop."""
        self._spool.sync()
        self._sync_due_s = self._clock.monotonic_s() + SYNC_S

    def _make_safe(self) -> None:
        if not self._spool.is_dirty:
            direct = sum(entry.order is None for entry in self._under_way)
            self._safe = max(self._safe, self._ticket - direct)
        self._say()

    def _say(self) -> None:
        for kind, count in self._spool.dropped.items():
            more = count - self._said_dropped[kind]
            self._metrics.dropped.labels(kind, "full").inc(more)
        self._said_dropped = Counter(self._spool.dropped)
        self._metrics.errors.labels("producer").inc(self._link.replaced - self._said_replaced)
        self._said_replaced = self._link.replaced
        self._metrics.errors.labels("sync").inc(self._spool.sync_faults - self._said_faults)
        self._said_faults = self._spool.sync_faults
        self._metrics.under_way.set(len(self._under_way))
        self._metrics.spool_bytes.set(self._spool.size_bytes)


def _waited(value: bytes) -> bytes:
    """The record as it is kept on disk: merely delayed, it says nothing about the node's clock."""
    record = decode(value, "outbox")
    if isinstance(record, Rejected):
        return value
    return encode(msgspec.structs.replace(record, spooled=True))


def _kind(record: Record) -> str:
    tag = record.__struct_config__.tag
    assert isinstance(tag, str)
    return tag
