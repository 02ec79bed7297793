"""Faust's transport with our own place in the log: no commit decides where we read on.

The only module that touches what Faust does not document; tests/contract/test_faust.py fails when
it changes. Why so: stock Faust seeks to the committed offset beside our own seek, and whole batches
cost a tenth of one message at a time (docs/decisions/0008).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, cast

from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord
from faust.transport.drivers.aiokafka import (
    AIOKafkaConsumerThread,
    Consumer,
    Producer,
    Transport,
)
from faust.types import TP

POLL_S = 1.0
# Faust's 1,500 is how long the fetch that is under way when we seek holds up the first record.
FETCH_WAIT_MS = 100


class Driver(Protocol):
    """What the worker does with partitions and batches."""

    async def assigned(self, partitions: frozenset[TP]) -> Mapping[TP, int]:
        """Get ready for exactly these partitions; the offset to read each from."""
        ...

    async def batch(self, generation: int, place: TP, records: Sequence[ConsumerRecord]) -> bool:
        """Take records of one partition, in offset order; False where they were not taken, and
        all that was read has to be read again."""
        ...

    async def refused(self, error: BaseException) -> None:
        """The broker does not let us read; raises what it is not about."""
        ...


class _Thread(AIOKafkaConsumerThread):
    """Its fetches wait less for news: a new owner of a shard waits for the one before its seek."""

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        return consumer


class SeekingConsumer(Consumer):
    """Reads each partition from where the fold stands, in batches."""

    driver: ClassVar[Driver]

    def _new_consumer_thread(self) -> _Thread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)

    async def perform_seek(self) -> None:
        """Faust would seek to the committed offset; our own seek follows, and nothing else."""

    async def _drain_messages(self, fetcher: Any) -> None:
        try:
            await self._drain(fetcher)
        except asyncio.CancelledError:
            # Cancelled by its own stop: raised in a rebalance, Faust would take it for a crash, and
            # a worker that leaves in one would hang.
            if not (self._stopped.is_set() or fetcher._stopped.is_set()):
                raise

    async def _drain(self, fetcher: Any) -> None:
        ready_for: int | None = None  # the generation whose partitions stand where they should
        while not (self._stopped.is_set() or fetcher._stopped.is_set()):
            if not self.flow_active:
                await self.wait(cast(Any, self.can_resume_flow))
                ready_for = None
                continue
            generation = self.app.consumer_generation_id
            if generation != ready_for:
                positions = await self.driver.assigned(frozenset(self.assignment()))
                if generation == self.app.consumer_generation_id and self.flow_active:
                    await self.seek_wait(positions)
                    ready_for = generation
                continue
            try:
                records, _ = await self._wait_next_records(POLL_S)
            except KafkaError as error:
                await self.driver.refused(error)
                return
            if generation != self.app.consumer_generation_id or self._interrupted():
                ready_for = None  # aiokafka may have read ahead from another place
                continue
            for read, batch in (records or {}).items():
                place = TP(read.topic, read.partition)
                if not await self.driver.batch(generation, place, batch):
                    ready_for = None
                    break

    def _interrupted(self) -> bool:
        return bool(not self.flow_active or self.app.rebalancing)


class AcknowledgedProducer(Producer):
    """Every record is on all replicas, once, before it counts as sent."""

    def _settings_extra(self) -> Mapping[str, Any]:
        return {"acks": "all", "enable_idempotence": True}


def transport_for(driver: Driver) -> type[Transport]:
    """A transport whose consumer hands everything to `driver`."""

    class DrivenConsumer(SeekingConsumer):
        pass

    DrivenConsumer.driver = driver

    class DrivenTransport(Transport):
        Consumer = DrivenConsumer
        Producer = AcknowledgedProducer

    return DrivenTransport


async def commit(app: Any, positions: Mapping[TP, int]) -> bool:
    """Tell the group where we stand, for tools that show lag; nothing reads it back.

    False where the group no longer knows us as the one who holds these partitions.
    """
    return bool(await app.consumer._commit(dict(positions)))
