"""The worker without Kafka: what it keeps, and what it must not keep."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable
from typing import Any, NamedTuple

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, KafkaConnectionError, KafkaError
from aiokafka.structs import ConsumerRecord
from faust.types import TP

from actions.policy import verdict
from streams.live.worker import StreamWorker
from streams.shard import Shard
from telemetry.errors import SourceUnavailable
from telemetry.settings import Configuration, StreamSettings
from telemetry.topics import FINDINGS, STATE, TELEMETRY
from tests.unit.test_shard import Line, log

PLACE = TP(TELEMETRY, 0)


class Metadata(NamedTuple):
    """What a broker answers."""

    offset: int


class Producer:
    """Acknowledges at once, but for a topic that fails."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes | None]] = []
        self.failing = ""

    async def send(
        self, topic: str, key: bytes | None, _value: bytes | None, *_: Any
    ) -> Awaitable[Metadata]:
        if topic == self.failing:
            raise RuntimeError("the detector, the disk, anything")
        self.sent.append((topic, key))
        done: asyncio.Future[Metadata] = asyncio.get_running_loop().create_future()
        done.set_result(Metadata(len(self.sent) - 1))
        return done

    def keys(self, topic: str) -> list[bytes | None]:
        """What went to a topic."""
        return [key for to, key in self.sent if to == topic]


class Thread:
    """Has an error of the group, if any."""

    error: KafkaError | None = None

    def group_fault(self) -> KafkaError | None:
        return self.error


class Consumer:
    """Takes commits, as long as the group knows us."""

    def __init__(self) -> None:
        self.known = True
        self._thread = Thread()

    async def _commit(self, _offsets: dict[TP, int]) -> bool:
        return self.known


class App:
    """The part of Faust's app that the worker uses."""

    def __init__(self) -> None:
        self.producer = Producer()
        self.consumer = Consumer()
        self.consumer_generation_id = 1
        self.crashed: BaseException | None = None

    async def crash(self, why: BaseException) -> None:
        self.crashed = why


def made() -> tuple[StreamWorker, App]:
    """A worker that holds the live shard from its first record on."""
    chosen = Configuration(stream=StreamSettings(snapshot_s=3_600.0))
    worker, app = StreamWorker(chosen, verdict, "w", "0"), App()
    worker.app = app
    worker._generation, worker.reading = 1, 1
    worker.shards[0] = Shard("main", "live", verdict, 0)
    worker._saved_s[0] = time.monotonic()
    return worker, app


def record(line: Line) -> ConsumerRecord[bytes, bytes]:
    offset, at_ms, key, value = line
    return ConsumerRecord(
        TELEMETRY, 0, offset, at_ms, 1, key, value, None, len(key or b""), len(value or b""), ()
    )


async def feed(worker: StreamWorker, first: int, last: int) -> None:
    await worker.batch(1, PLACE, [record(line) for line in log()[first:last]])


def test_a_stop_keeps_what_was_folded() -> None:
    async def life() -> App:
        worker, app = made()
        await feed(worker, 0, 400)
        await worker.stop()
        return app

    assert asyncio.run(life()).producer.keys(STATE)[-1] == b"main/a/marker"


def test_what_was_folded_but_not_told_is_not_kept() -> None:
    """Else the next worker would go on behind a finding that nobody was told."""

    async def life() -> App:
        worker, app = made()
        await feed(worker, 0, 200)
        app.producer.failing = FINDINGS
        with pytest.raises(RuntimeError):
            await feed(worker, 200, 400)
        app.producer.failing = ""
        await worker.stop()
        return app

    assert asyncio.run(life()).producer.keys(STATE) == []


def test_a_worker_that_the_group_forgot_keeps_nothing() -> None:
    async def life() -> App:
        worker, app = made()
        await feed(worker, 0, 400)
        app.consumer.known = False
        await worker.revoked()
        return app

    assert asyncio.run(life()).producer.keys(STATE) == []


def test_a_gap_in_the_offsets_ends_the_process_and_keeps_nothing_k8() -> None:
    async def life() -> tuple[StreamWorker, App]:
        worker, app = made()
        tells(worker, 100)
        await feed(worker, 0, 100)
        await feed(worker, 101, 200)
        await worker.stop()
        return worker, app

    worker, app = asyncio.run(life())
    assert worker.failed.endswith("101 follows 99")
    assert app.crashed is not None
    assert app.producer.keys(STATE) == []


@pytest.mark.parametrize("within", [False, True])
def test_a_hole_that_is_the_logs_own_is_passed_k8(within: bool) -> None:
    """A transaction's marker takes an offset and is no record; else each restart met it again."""

    async def life() -> tuple[StreamWorker, App]:
        worker, app = made()
        tells(worker, 100)
        records = [record(line) for line in log()[:200]]
        moved = [
            r if r.offset < 99 else dataclasses.replace(r, offset=r.offset + 1) for r in records
        ]
        cut = 150 if within else 99
        await worker.batch(1, PLACE, moved[:cut])
        await worker.batch(1, PLACE, moved[cut:])
        return worker, app

    worker, app = asyncio.run(life())
    assert (worker.failed, app.crashed) == ("", None)
    assert worker.shards[0].offset == 201
    assert worker.shards[0].fold.counters.records == 200


def tells(worker: StreamWorker, offset: int) -> None:
    """What a reader of its own finds first, wherever it looks."""

    async def first_from(_partition: int, _offset: int) -> int | None:
        return offset

    worker._first_from = first_from  # type: ignore[assignment]


def test_a_batch_of_an_older_generation_is_read_again_by_the_next_owner_k10_k14() -> None:
    """Of a buffer that was full at the moment of a rebalance nothing is folded out of order."""

    async def life() -> int:
        worker, app = made()
        await feed(worker, 0, 100)
        app.consumer_generation_id = 2
        await feed(worker, 100, 200)  # read in generation 1
        return worker.shards[0].offset

    assert asyncio.run(life()) == 100


def test_a_batch_that_was_read_before_the_partitions_went_is_not_folded_when_they_come_back() -> (
    None
):
    """Of several that wait one is dropped: those behind it would leave a gap."""

    async def life() -> tuple[int, int]:
        worker, _ = made()
        await feed(worker, 0, 100)
        await worker.revoked()
        await feed(worker, 100, 200)
        between = worker.shards[0].offset
        await worker.assigned(frozenset({PLACE}))  # the same generation: nobody else had them
        await feed(worker, 200, 300)
        return between, worker.shards[0].offset

    assert asyncio.run(life()) == (100, 100)


@pytest.mark.parametrize(("generation", "kept"), [(1, True), (2, True), (3, False), (0, False)])
def test_a_shard_stays_only_where_no_generation_passed_without_us(
    generation: int, kept: bool
) -> None:
    async def life() -> bool:
        worker, app = made()
        shard = worker.shards[0]
        worker._load = loads  # type: ignore[method-assign]
        app.consumer_generation_id = generation
        await worker.assigned(frozenset({PLACE}))
        return worker.shards[0] is shard

    assert asyncio.run(life()) is kept


async def loads(partition: int) -> Shard:
    """A shard taken over."""
    return Shard("main", "live", verdict, partition)


def test_a_broker_that_is_away_when_a_shard_is_taken_over_is_asked_again() -> None:
    async def life() -> tuple[Any, Any, StreamWorker, App]:
        worker, app = made()
        worker.shards.clear()

        async def away(partition: int) -> Shard:
            raise KafkaConnectionError("nobody there")

        worker._load = away  # type: ignore[method-assign]
        first = await worker.assigned(frozenset({PLACE}))
        worker._load = loads  # type: ignore[method-assign]
        return first, await worker.assigned(frozenset({PLACE})), worker, app

    first, second, worker, app = asyncio.run(life())
    assert (first, second) == (None, {PLACE: 0})
    assert (worker.failed, app.crashed) == ("", None)


def test_a_load_that_nothing_comes_of_ends_the_process_with_one_line() -> None:
    async def life() -> tuple[StreamWorker, App]:
        worker, app = made()
        worker.shards.clear()

        async def silent(partition: int) -> Shard:
            raise SourceUnavailable("nodewarden.state/0: nothing read for 30 s")

        worker._load = silent  # type: ignore[method-assign]
        await worker.assigned(frozenset({PLACE}))
        return worker, app

    worker, app = asyncio.run(life())
    assert worker.failed == "nodewarden.state/0: nothing read for 30 s"
    assert app.crashed is not None


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (GroupAuthorizationFailedError("nodewarden-stream"), "no right to consumer group"),
        (KafkaError("Unexpected error during coordination"), "the consumer group failed: "),
    ],
)
def test_a_group_that_is_over_for_us_ends_the_process_although_no_record_is_read(
    error: KafkaError, line: str
) -> None:
    async def life() -> tuple[StreamWorker, App]:
        worker, app = made()
        app.consumer._thread.error = error
        await worker.look_at_group()
        return worker, app

    worker, app = asyncio.run(life())
    assert line in worker.failed
    assert app.crashed is not None


def test_a_poison_record_is_told_once_and_the_next_is_folded_k11() -> None:
    async def life() -> tuple[Shard, App]:
        worker, app = made()
        await feed(worker, 0, 100)
        offset = 100
        for value in (b"\xff", None, b"[]", b'{"kind":"beat"}', b"null", b"[" * 100_000):
            await worker.batch(1, PLACE, [record((offset, 1, b"main", value))])
            offset += 1
        return worker.shards[0], app

    shard, app = asyncio.run(life())
    assert shard.fold.counters.rejected == 6
    assert len(app.producer.keys("nodewarden.rejected")) == 6
    assert shard.offset == 106
    assert shard.fold.counters.conserved()
