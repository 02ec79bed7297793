"""What a worker reads back when it takes a shard over: its snapshots and what it said."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import ConsumerRecord

from telemetry.broker_security import client_options
from telemetry.errors import SourceUnavailable
from telemetry.settings import KafkaSettings

FETCH_BYTES = 8_000_000
# At the end of a partition a fetch waits for more, and the broker answers nothing else on that
# connection meanwhile: with Kafka's 500 ms a load took four seconds.
FETCH_WAIT_MS = 5
BACKOFF_MS = 10  # so long an assignment waits for its first fetch, too: 100 ms by default


class TopicReader:
    """Reads partitions to their end, without a group; an async context manager."""

    def __init__(self, settings: KafkaSettings, client_id: str) -> None:
        self._timeout_s = timeout_s = settings.request_timeout_s
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=list(settings.brokers),
            client_id=client_id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            request_timeout_ms=round(timeout_s * 1000.0),
            max_partition_fetch_bytes=FETCH_BYTES,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            retry_backoff_ms=BACKOFF_MS,
            **client_options(settings),
        )

    async def __aenter__(self) -> TopicReader:
        try:
            await self._consumer.start()
        except BaseException:
            await self._consumer.stop()  # else it says itself that nobody closed it
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """First kept offset, and the one that the next record will get."""
        place = TopicPartition(topic, partition)
        begin = await self._consumer.beginning_offsets([place])
        end = await self._consumer.end_offsets([place])
        return begin[place], end[place]

    async def first_from(self, topic: str, partition: int, offset: int) -> int | None:
        """Offset of the first record from `offset` on; None where what stood there was deleted, or
        none comes in time."""
        begin, _ = await self.bounds(topic, partition)
        if offset < begin:
            return None
        place = TopicPartition(topic, partition)
        self._consumer.assign([place])
        self._consumer.seek(place, offset)
        found = await self._consumer.getmany(place, timeout_ms=round(self._timeout_s * 1_000.0))
        records = found.get(place, ())
        return int(records[0].offset) if records else None

    async def read(
        self, topic: str, partition: int, from_offset: int,
        take: Callable[[ConsumerRecord], None],
    ) -> int:  # fmt: skip
        """Hand all records from `from_offset` to the end to `take`; the end's offset.

        Raises SourceUnavailable where none comes for the time-out: a load that hangs is no lag, so
        no watchdog would see it.
        """
        place = TopicPartition(topic, partition)
        begin, end = await self.bounds(topic, partition)
        start = max(begin, from_offset)
        if start >= end:
            return end
        self._consumer.assign([place])
        self._consumer.seek(place, start)
        heard_s = time.monotonic()
        while await self._consumer.position(place) < end:
            found = await self._consumer.getmany(place, timeout_ms=1_000)
            for record in found.get(place, ()):
                take(record)
            if found:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > self._timeout_s:
                raise SourceUnavailable(
                    f"{topic}/{partition}: nothing read for {self._timeout_s:g} s"
                )
        return end


def contiguous(records: Sequence[ConsumerRecord]) -> Iterator[Sequence[ConsumerRecord]]:
    """The records, cut wherever an offset does not follow the one before it."""
    if not records:
        return
    if records[-1].offset - records[0].offset == len(records) - 1:
        yield records
        return
    start = 0
    for place in range(1, len(records) + 1):
        if place == len(records) or records[place].offset != records[place - 1].offset + 1:
            yield records[start:place]
            start = place
