"""A rebalance finds the channel of batches full: nothing ends, nothing vanishes, and what was read
before it is read again from the fold.

Faust empties its channels when partitions go and when they come, and cancels the waiting `put`s.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import ConsumerStoppedError, IllegalStateError, KafkaError
from aiokafka.structs import ConsumerRecord
from faust.transport.consumer import ConsumerThread
from faust.types import TP

from actions.policy import verdict
from streams.live.app import BATCHES_WAITING, Batches, Pump, build
from streams.live.transport import SeekingConsumer, _Thread
from streams.live.worker import StreamWorker
from telemetry.settings import Configuration

PLACE = TP("telemetry", 0)


def made() -> tuple[Any, StreamWorker, Pump, Any]:
    """An app, its worker, a pump into a channel, and who reads the channel."""
    worker = StreamWorker(Configuration(), verdict, "w", "0")
    app: Any = build(worker, "w", lambda: None)
    pump = Pump(worker)
    pump.channel = Batches(app, maxsize=BATCHES_WAITING)
    app.flow_control.resume()
    return app, worker, pump, aiter(pump.channel)


async def filled(pump: Pump) -> asyncio.Task[bool]:
    """A full channel, and the put of one more batch where it waits for room."""
    await pump.assigned(frozenset())
    for _ in range(BATCHES_WAITING):
        assert await pump.batch(PLACE, ())
    task = asyncio.ensure_future(pump.batch(PLACE, ()))
    await asyncio.sleep(0.01)
    assert not task.done()
    return task


def test_a_batch_that_finds_room_is_taken() -> None:
    async def run() -> bool:
        _, _, pump, reader = made()
        task = await filled(pump)
        reader.queue.get_nowait()
        return await task

    assert asyncio.run(run()) is True


def test_a_rebalance_cancels_nobody_who_waits_for_room_and_takes_nothing_out() -> None:
    """A batch that vanished between two others would be a gap, and the end of the worker."""

    async def run() -> tuple[bool, list[int]]:
        app, worker, pump, reader = made()
        task = await filled(pump)
        app.flow_control.suspend()
        app.flow_control.clear()
        await worker.revoked()
        app.flow_control.resume()
        await asyncio.sleep(0.01)
        assert not task.done()
        readings = [reader.queue.get_nowait()[0] for _ in range(BATCHES_WAITING)]
        return await task, readings

    taken, readings = asyncio.run(run())
    assert taken is False  # read again from where the fold stands
    assert readings == [1] * BATCHES_WAITING  # and these the worker drops: it is at reading 2


def test_a_new_reading_is_taken_after_the_old_one_is_over() -> None:
    async def run() -> list[bool]:
        _, worker, pump, _reader = made()
        await pump.assigned(frozenset())
        taken = [await pump.batch(PLACE, ())]
        await worker.revoked()
        taken.append(await pump.batch(PLACE, ()))
        await pump.assigned(frozenset())
        return [*taken, await pump.batch(PLACE, ())]

    assert asyncio.run(run()) == [True, False, True]


def test_the_end_of_the_task_itself_ends_it() -> None:
    async def run() -> None:
        _, _, pump, _reader = made()
        task = await filled(pump)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())


class Driver:
    """Takes batches as told, and writes down what it was asked."""

    def __init__(self, taken: Sequence[bool]) -> None:
        self.taken = list(taken)
        self.places: list[Mapping[TP, int] | None] = []  # answered first
        self.asked: list[str] = []
        self.stopped = asyncio.Event()

    async def assigned(self, _: frozenset[TP]) -> Mapping[TP, int] | None:
        self.asked.append("place")
        return self.places.pop() if self.places else {PLACE: 7}

    async def batch(self, place: TP, _: Sequence[ConsumerRecord]) -> bool:
        self.asked.append(f"batch {place.partition}")
        taken = self.taken.pop(0)
        if not self.taken:
            self.stopped.set()
        return taken

    async def refused(self, error: BaseException) -> None:
        raise error


class Scripted(SeekingConsumer):
    """A consumer without a broker that always holds records of two partitions."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver  # type: ignore[misc]
        self.flow_active = True
        self.seeks: list[Exception | None] = []  # how the next ones go
        self.fetch: Exception | None = None
        self.app = SimpleNamespace(  # type: ignore[assignment]
            consumer_generation_id=1, rebalancing=False, should_stop=False
        )
        self._stopped = asyncio.Event()  # type: ignore[assignment]

    def assignment(self) -> set[TP]:
        return {PLACE}

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        error = self.seeks.pop() if self.seeks else None
        if error is not None:
            raise error

    async def sleep(self, n: Any, *, loop: Any = None) -> None:
        pass

    async def _wait_next_records(self, timeout: float) -> Any:
        if self.fetch is not None:
            raise self.fetch
        return {TP("telemetry", 0): (), TP("telemetry", 1): ()}, set()


def test_after_a_batch_that_was_not_taken_everything_is_read_again_from_where_the_fold_stands() -> (
    None
):
    async def run() -> list[str]:
        driver = Driver([True, True, False, True, True])
        fetcher = SimpleNamespace(_stopped=driver.stopped)
        await Scripted(driver)._drain(fetcher)
        return driver.asked

    assert asyncio.run(run()) == [
        "place", "batch 0", "batch 1",
        "batch 0",  # not taken, and what came with it is not handed on
        "place", "batch 0", "batch 1",
    ]  # fmt: skip


def drained(driver: Driver, **state: Any) -> list[str]:
    """What a driver is asked until it has taken its batches."""

    async def run() -> None:
        consumer = Scripted(driver)
        for name, value in state.items():
            setattr(consumer, name, value)
        await consumer._drain_messages(SimpleNamespace(_stopped=driver.stopped))

    asyncio.run(run())
    return driver.asked


def test_partitions_that_cannot_be_had_now_are_asked_for_again() -> None:
    driver = Driver([True, True])
    driver.places = [None, None]
    assert drained(driver)[:4] == ["place", "place", "place", "batch 0"]


@pytest.mark.parametrize("error", [IllegalStateError("not assigned"), TimeoutError()])
def test_partitions_that_move_on_while_we_seek_are_asked_for_again(error: Exception) -> None:
    assert drained(Driver([True, True]), seeks=[error])[:3] == ["place", "place", "batch 0"]


@pytest.mark.parametrize("stops", [True, False])
def test_a_consumer_closed_under_the_drain_is_an_end_where_the_worker_stops(stops: bool) -> None:
    """Faust closes it where a stop meets a rebalance."""
    driver = Driver([True, True])
    app = SimpleNamespace(consumer_generation_id=1, rebalancing=False, should_stop=stops)
    if stops:
        assert drained(driver, app=app, fetch=ConsumerStoppedError()) == ["place"]
        return
    with pytest.raises(ConsumerStoppedError):
        drained(driver, app=app, fetch=ConsumerStoppedError())


def bare_thread() -> Any:
    """The consumer's thread, not started."""
    return object.__new__(_Thread)


def test_a_commit_for_partitions_that_went_is_refused_and_ends_nothing() -> None:
    thread = bare_thread()
    thread.assignment = lambda: {TP("telemetry", 1)}
    assert asyncio.run(thread._commit({PLACE: 7})) is False


def test_the_thread_ends_although_aiokafka_awaits_a_fetch_that_it_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def cancelled(_: Any) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(ConsumerThread, "on_thread_stop", cancelled)
    thread = bare_thread()
    thread._consumer = None
    asyncio.run(thread.on_thread_stop())


@pytest.mark.parametrize(
    ("pending", "ended", "fault"),
    [
        (None, "", ""),
        (KafkaError("no right"), "", "no right"),
        (None, "fails", "over"),
        (None, "cancelled", "cancelled"),
        (None, "closed", ""),
    ],
)
def test_what_ended_our_part_in_the_group_is_seen_without_a_fetch(
    pending: KafkaError | None, ended: str, fault: str
) -> None:
    """aiokafka's own `getmany` looks at the same; Faust fetches past it."""

    async def routine() -> None:
        await asyncio.sleep(9.0 if ended == "" else 0.0)
        if ended == "fails":
            raise KafkaError("over")

    async def run() -> BaseException | None:
        task = asyncio.ensure_future(routine())
        if ended == "cancelled":
            task.cancel()
        await asyncio.sleep(0.01)
        thread = bare_thread()
        coordinator = SimpleNamespace(_coordination_task=task, _pending_exception=pending)
        thread._consumer = SimpleNamespace(_coordinator=coordinator)
        found: BaseException | None = thread.group_fault()
        task.cancel()
        return found

    found = asyncio.run(run())
    assert fault in str(found) if fault else found is None


def test_aiokafka_keeps_a_fault_of_the_group_where_we_look() -> None:
    source = inspect.getsource(GroupCoordinator)
    for line in ("self._coordination_task = create_task(", "self._pending_exception = exc"):
        assert line in source
