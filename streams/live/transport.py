"""Faust's transport with our own place in the log: no commit decides where we read on.

The only module that touches what Faust does not document; tests/contract/test_faust.py fails when
it changes. Why so: stock Faust seeks to the committed offset beside our own seek, and whole batches
cost a tenth of one message at a time (docs/decisions/0008).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, cast

from aiokafka.errors import ConsumerStoppedError, IllegalStateError, KafkaError
from aiokafka.structs import ConsumerRecord
from faust.transport.drivers.aiokafka import (
    AIOKafkaConsumerThread,
    Consumer,
    Producer,
    Transport,
)
from faust.types import TP

POLL_S = 1.0
AGAIN_S = 1.0  # between two attempts to get ready
# Faust's 1,500 is how long the fetch that is under way when we seek holds up the first record.
FETCH_WAIT_MS = 100


class Driver(Protocol):
    """What the worker does with partitions and batches."""

    async def assigned(self, partitions: frozenset[TP]) -> Mapping[TP, int] | None:
        """Get ready for exactly these partitions; the offset to read each from, None where they
        cannot be had now and are to be asked for again."""
        ...

    async def batch(self, place: TP, records: Sequence[ConsumerRecord]) -> bool:
        """Take records of one partition, in offset order; False where they may not have been
        taken, and all that was read has to be read again."""
        ...

    async def refused(self, error: BaseException) -> None:
        """The broker does not let us read; raises what it is not about."""
        ...


class _Thread(AIOKafkaConsumerThread):
    """Fetches that wait less for news, commits that may come late, a look at the group, an end.

    A new owner of a shard waits for the fetch before its seek.
    """

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        return consumer

    async def on_thread_stop(self) -> None:
        """aiokafka cancels its fetches and awaits them; where one waited for a broker that is away
        that ends the thread here, and Faust would wait a minute for its end."""
        try:
            await super().on_thread_stop()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        """Faust leaves out what we no longer hold, and ends where nothing is left."""
        if not offsets.keys() <= self.assignment():
            return False
        return bool(await super()._commit(offsets))

    def group_fault(self) -> BaseException | None:
        """What ended aiokafka's part in the group, if anything did; from any thread."""
        coordinator = None if self._consumer is None else self._consumer._coordinator
        if coordinator is None:
            return None
        task: asyncio.Task[None] = coordinator._coordination_task
        if not task.done():
            pending: BaseException | None = coordinator._pending_exception
            return pending
        return KafkaError("it was cancelled") if task.cancelled() else task.exception()


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
        except ConsumerStoppedError:
            # A stop in the middle of a rebalance closes aiokafka's consumer before our own end.
            if not self.app.should_stop:
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
                if positions is None:
                    await self.sleep(AGAIN_S)
                elif await self._placed(generation, positions):
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
                if not await self.driver.batch(place, batch):
                    ready_for = None
                    break

    async def _placed(self, generation: int, positions: Mapping[TP, int]) -> bool:
        """Whether each partition stands where it should; not where they moved on meanwhile."""
        if generation != self.app.consumer_generation_id or not self.flow_active:
            return False
        try:
            await self.seek_wait(positions)
        except (IllegalStateError, TimeoutError):
            return False
        return True

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


def group_fault(app: Any) -> BaseException | None:
    """What ended our part in the group, if anything did.

    aiokafka hands it to whoever waits for records, and waits until somebody took it. In a
    rebalance, or when the fold is slow, nobody waits for records: nothing would be said, and the
    worker would never get partitions again.
    """
    fault: BaseException | None = app.consumer._thread.group_fault()
    return fault


async def commit(app: Any, positions: Mapping[TP, int]) -> bool:
    """Tell the group where we stand, for tools that show lag; nothing reads it back.

    False where the group no longer knows us as the one who holds these partitions.
    """
    return bool(await app.consumer._commit(dict(positions)))
