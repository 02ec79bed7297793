"""The worker: partitions come and go, batches are folded, snapshots are kept. One a process.

At least once and idempotent: a record is folded again after a crash, and what was said of it
before is not said again. Everything happens under one lock, so that no snapshot sees half a batch.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord
from faust.exceptions import ProducerSendError
from faust.types import TP

from streams.cold import known_before
from streams.live.announce import Announcer
from streams.live.faults import fault_text, is_refusal
from streams.live.loading import keep, read_shard
from streams.live.topics import TopicReader, contiguous
from streams.live.totals import Totals
from streams.live.transport import commit, group_fault
from streams.shard import LogGap, Output, Shard
from streams.verdicts import Decide
from telemetry.codec import encode
from telemetry.errors import NotAccepted, SourceUnavailable
from telemetry.records import Record
from telemetry.settings import Configuration
from telemetry.topics import FINDINGS, INCIDENTS, INVENTORY, STATE, TELEMETRY

LOG = logging.getLogger("nodewarden.stream")
ASK_S = 5.0
AGAIN_S = 1.0  # between two attempts to say something
FRESH_S = 30.0  # what the broker told of the log's end holds so long
IN_FLIGHT = 16  # chunks of a snapshot that are on their way at once

Probe = Callable[[str], None]


class Sender(Protocol):
    """The part of Faust's producer that we use."""

    async def send(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int | None,
        timestamp: float | None, headers: Any,
    ) -> Awaitable[Any]: ...  # fmt: skip


def nothing(_: str) -> None:
    """No probe."""


class StreamWorker:
    """The shards of this worker. `app` and `producer` are Faust's, set when it is built.

    probe   called at named points of the work; tests end the process there
    """

    def __init__(
        self, configuration: Configuration, decide: Decide, instance: str, engine_version: str,
        probe: Probe = nothing,
    ) -> None:  # fmt: skip
        self.configuration = configuration
        self.app: Any = None
        self.shards: dict[int, Shard] = {}
        self.ends: dict[int, int] = {}  # of the partitions, as last seen
        self.begins: dict[int, int] = {}
        self.totals = Totals(progressed_s=time.monotonic())
        self.failed = ""
        self.beat_s = self.looked_s = time.monotonic()  # the loop runs; the broker told the ends
        self.reading = 0  # counts the places that reading began at; batches say theirs
        self._decide = decide
        self._instance = instance
        self._started_s = time.time()
        self._announcer = Announcer(configuration, instance, engine_version, self._started_s)
        self._probe = probe
        self._lock = asyncio.Lock()
        self._generation = -1
        self._saved_s: dict[int, float] = {}

    # -- partitions

    async def assigned(self, partitions: frozenset[TP]) -> Mapping[TP, int] | None:
        """Hold exactly these shards; where each is read on. None where the broker is away."""
        async with self._lock:
            generation = self.app.consumer_generation_id
            if generation not in (self._generation, self._generation + 1):
                # Generations passed without us (or the group was made anew): others may have held
                # what we hold.
                self.shards.clear()
            self._generation = generation
            self.reading += 1
            wanted = {place.partition for place in partitions if place.topic == TELEMETRY}
            for partition in set(self.shards) - wanted:
                del self.shards[partition]
            if not await self._hold(wanted):
                return None
            self.totals.progressed_s = time.monotonic()
            return {TP(TELEMETRY, p): shard.offset for p, shard in self.shards.items()}

    async def _hold(self, wanted: set[int]) -> bool:
        """Load what is missing; False where the broker is away."""
        try:
            async with self._accepted():
                for partition in sorted(wanted - set(self.shards)):
                    self.shards[partition] = await self._load(partition)
        except KafkaError as error:
            LOG.warning("shards cannot be taken over, trying again: %s", error)
            return False
        except SourceUnavailable as error:
            await self._give_up(str(error))
        return True

    async def revoked(self) -> None:
        """The partitions go; what was folded of them is kept for whoever comes next.

        What waits in the channel is not folded any more: it is read again from where we stand.
        """
        async with self._lock:
            self.reading += 1
            await self._save_all()

    async def stop(self) -> None:
        """The process ends in good order."""
        async with self._lock:
            self.reading += 1
            await self._save_all()
            self.shards.clear()

    async def _load(self, partition: int) -> Shard:
        began_s = time.monotonic()
        name, kind = self._announcer.shard(partition)
        async with self._reader() as reader:
            shard, begin, end = await read_shard(
                reader, name, kind, self._decide, partition, self._probe
            )
        self.ends[partition], self.begins[partition] = end, begin
        self._saved_s[partition] = time.monotonic()
        gc.collect()
        gc.freeze()  # what was loaded stays: the collector need not look through it again and again
        self.totals.loads += 1
        self.totals.load_s = time.monotonic() - began_s
        LOG.info(
            "shard %s: %s at offset %d, %d records to catch up",
            name, "cold start" if shard.cold else "goes on", shard.offset, end - shard.offset,
        )  # fmt: skip
        if shard.cold:
            self.totals.cold_starts += 1
            self.totals.skipped += shard.skipped
            LOG.warning(
                "shard %s: cold start: what was before offset %d is lost, %d records unread",
                name, begin, shard.skipped,
            )  # fmt: skip
        return shard

    def _reader(self) -> TopicReader:
        return TopicReader(self.configuration.kafka, self._instance)

    # -- records

    async def batch(self, reading: int, place: TP, records: Sequence[ConsumerRecord]) -> None:
        """Fold records of one partition; returns when all that they said is acknowledged."""
        async with self._lock:
            shard = self.shards.get(place.partition)
            passed = self._generation != self.app.consumer_generation_id
            if shard is None or passed or reading != self.reading:
                return  # they are read again by whoever holds the partition now
            async with self._accepted():
                await self._take(shard, records)

    async def _take(self, shard: Shard, records: Sequence[ConsumerRecord]) -> None:
        """Fold them, and keep a snapshot when it is time."""
        try:
            for part in contiguous(records):
                if part[0].offset > shard.offset:
                    await self._pass_hole(shard, part[0].offset)
                await self._fold(shard, part)
        except LogGap as gap:
            await self._give_up(str(gap))
            return
        now_s = time.monotonic()
        self.totals.progressed_s = now_s
        if now_s - self._saved_s[shard.partition] >= self.configuration.stream.snapshot_s:
            await self._save(shard)

    async def _pass_hole(self, shard: Shard, offset: int) -> None:
        """Records are missing before `offset`. Where a reader of its own finds none there either,
        the hole is the log's; else we lost them, and the fold raises LogGap."""
        if await self._first_from(shard.partition, shard.offset) == offset:
            LOG.info("shard %s: the log has no record before offset %d", shard.name, offset)
            shard.pass_hole(offset)

    async def _first_from(self, partition: int, offset: int) -> int | None:
        async with self._reader() as reader:
            return await reader.first_from(TELEMETRY, partition, offset)

    async def _fold(self, shard: Shard, records: Sequence[ConsumerRecord]) -> None:
        waiting: list[tuple[Output, Awaitable[Any]]] = []
        already = shard.already.muted, shard.already.conflicts
        for record in records:
            for output in shard.take(record.offset, record.timestamp, record.key, record.value):
                waiting.append((output, await self._send(shard, output)))
        for output, future in waiting:
            shard.note_said(output.topic, await self._acknowledged(shard, output, future) + 1)
        shard.settled_offset = shard.offset
        self.totals.records += len(records)
        self.totals.published += len(waiting)
        self.totals.muted += shard.already.muted - already[0]
        self.totals.conflicts += shard.already.conflicts - already[1]
        if waiting:
            self._probe("published")

    async def _send(self, shard: Shard, output: Output) -> Awaitable[Any]:
        partition = shard.partition if output.topic in (FINDINGS, INCIDENTS) else 0
        producer: Sender = self.app.producer
        while True:
            try:
                return await producer.send(
                    output.topic, output.key, output.value, partition, None, None
                )
            except (KafkaError, ProducerSendError) as error:
                self._check_accepted(error)
                LOG.warning("%s: cannot send, trying again: %r", output.topic, error)
                await asyncio.sleep(AGAIN_S)

    async def _acknowledged(self, shard: Shard, output: Output, sent: Awaitable[Any]) -> int:
        """The output's offset. A broker that is away is waited for: the fold has gone on."""
        while True:
            try:
                metadata = await sent
            except KafkaError as error:
                self._check_accepted(error)
                LOG.warning("%s: not acknowledged, sent again: %r", output.topic, error)
                await asyncio.sleep(AGAIN_S)
                sent = await self._send(shard, output)
            else:
                return int(metadata.offset)

    # -- snapshots

    async def _save_all(self) -> None:
        for shard in self.shards.values():
            # What was folded and not told (a batch that failed) is folded again by the next one.
            if shard.offset == shard.settled_offset > shard.saved_offset:
                await self._save(shard)

    async def _save(self, shard: Shard) -> None:
        """All chunks acknowledged, then the marker that makes them a snapshot.

        The commit before it is refused where the group has given the shard to another worker.
        """
        if not await commit(self.app, {TP(TELEMETRY, shard.partition): shard.offset}):
            LOG.warning("shard %s: another worker has it: no snapshot is kept", shard.name)
            return
        producer: Sender = self.app.producer
        for key in shard.stale:
            await (await producer.send(STATE, key, None, shard.partition, None, None))
        shard.stale.clear()
        waiting: list[Awaitable[Any]] = []
        held: tuple[bytes, bytes] | None = None
        for key, value in shard.save():
            if held is not None:
                self._probe("chunk")
                waiting.append(
                    await producer.send(STATE, *held, shard.partition, None, None)
                )  # fmt: skip
                self.totals.snapshot_bytes += len(held[1])
            if len(waiting) >= IN_FLIGHT:
                await asyncio.gather(*waiting)
                waiting.clear()
            held = key, value
        await asyncio.gather(*waiting)
        assert held is not None  # the marker is always there, and last
        await (await producer.send(STATE, *held, shard.partition, None, None))
        self._probe("marker")
        self.totals.snapshots += 1
        self._saved_s[shard.partition] = time.monotonic()

    # -- its own state, for metrics and the watchdog

    def unsaved_s(self, partition: int, now_s: float) -> float:
        """Time since a shard's last snapshot at monotonic `now_s`; 0 where it holds all."""
        shard, saved_s = self.shards.get(partition), self._saved_s.get(partition)
        if shard is None or saved_s is None or shard.offset <= shard.saved_offset:
            return 0.0
        return max(now_s - saved_s, 0.0)

    def lag(self) -> int:
        """Records that wait; 0 where the broker has not told lately how far the log goes."""
        if time.monotonic() - self.looked_s > FRESH_S:
            return 0
        shards = list(self.shards.items())
        return sum(max(self.ends.get(p, 0) - shard.offset, 0) for p, shard in shards)

    def stood_still_s(self, now_s: float) -> float:
        """Seconds since records were last folded, on the monotonic clock."""
        return now_s - self.totals.progressed_s

    def stuck_s(self, now_s: float) -> float:
        """Seconds since the event loop last did something of its own, on the monotonic clock."""
        return now_s - self.beat_s

    async def look_at_group(self) -> None:
        """End where the group is over for us: nobody else would notice while no record is read.

        It never waits, so that it also tells that the event loop runs.
        """
        self.beat_s = time.monotonic()
        fault = group_fault(self.app)
        if fault is None or self.failed:
            return
        refused = is_refusal(fault)
        await self._give_up(
            fault_text(self.configuration.kafka, fault)
            if refused
            else f"the consumer group failed: {fault}"
        )

    async def look_at_ends(self) -> None:
        """Ask the broker how far the log goes; a broker that is away tells nothing."""
        places = [TP(TELEMETRY, partition) for partition in self.shards]
        if not places:
            return
        consumer = self.app.consumer
        try:
            ends = await asyncio.wait_for(consumer.highwaters(*places), ASK_S)
            begins = await asyncio.wait_for(consumer.earliest_offsets(*places), ASK_S)
        except (TimeoutError, KafkaError):
            return
        self.looked_s = time.monotonic()
        self.ends.update({place.partition: end for place, end in ends.items()})
        self.begins.update({place.partition: begin for place, begin in begins.items()})

    # -- settings

    async def announce(self) -> None:
        """Write our settings into the log of each live shard that runs with others.

        They take force when their record comes by, here and in every replay.
        """
        async with self._accepted():
            await self._announce()

    async def _announce(self) -> None:
        for partition, shard in list(self.shards.items()):
            if shard.offset < self.ends.get(partition, 0):
                continue  # what stands in the log may say so already
            record = self._announcer.record(shard, time.time())
            if record is not None:
                await self._write(shard, record)
            if shard.cold:
                shard.cold = False
                await self._tell_inventory(shard)

    async def _tell_inventory(self, shard: Shard) -> None:
        """After a cold start: who runs where, as the inventory topic has it, into the log."""
        if shard.kind != "live" or self._announcer.live_shards() != 1:
            LOG.info("shard %s: waits for the next full listing of jobs and nodes", shard.name)
            return
        stored: dict[str, bytes] = {}
        async with self._reader() as reader:
            await reader.read(INVENTORY, 0, 0, lambda record: keep(stored, record))
        for known in known_before(stored, time.time(), self._started_s):
            await self._write(shard, known)

    async def _write(self, shard: Shard, record: Record) -> None:
        """One record of ours into the shard's log."""
        producer: Sender = self.app.producer
        headers = [("kind", str(record.__struct_config__.tag).encode())]
        sent = await producer.send(
            TELEMETRY, shard.name.encode(), encode(record), shard.partition, None, headers
        )
        await sent

    def adopt(self, configuration: Configuration) -> None:
        """A changed settings file: the engine's part is announced, the rest needs a restart."""
        engine = configuration.engine
        kept = msgspec.structs.replace(self.configuration, engine=engine)
        if kept != configuration:
            LOG.warning("settings outside [engine] changed: they take force at the next start")
        self.configuration = kept
        self._announcer.adopt(kept)

    async def refused(self, error: BaseException) -> None:
        """End where the broker does not accept us, for that would be for good; else raise it."""
        async with self._accepted():
            raise error

    @asynccontextmanager
    async def _accepted(self) -> AsyncIterator[None]:
        """The process ends, and says why, where the broker does not accept what the block does."""
        try:
            yield
        except NotAccepted as error:
            await self._give_up(str(error))
        except KafkaError as error:
            if not is_refusal(error):
                raise
            await self._give_up(fault_text(self.configuration.kafka, error))

    def _check_accepted(self, error: Exception) -> None:
        """Raises NotAccepted where trying again does not help."""
        for one in (error, error.__cause__):
            if one is not None and is_refusal(one):
                raise NotAccepted(fault_text(self.configuration.kafka, one)) from error

    async def _give_up(self, why: str) -> None:
        self.failed = why
        LOG.error("%s; the process ends, the next one starts at a snapshot", why)
        self.shards.clear()
        await self.app.crash(LogGap(why))
