"""A rebalance finds the channel of batches full: nothing ends, and all is read again from the fold.

Faust empties its channels when partitions go, and cancels the waiting `put`s instead of a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.structs import ConsumerRecord
from faust.types import TP

from actions.policy import verdict
from streams.live.app import BATCHES_WAITING, Pump, build
from streams.live.transport import SeekingConsumer
from streams.live.worker import StreamWorker
from telemetry.settings import Configuration

PLACE = TP("telemetry", 0)


def full() -> tuple[Any, Pump, Any]:
    """An app, a pump into a channel that has room for nothing more, and who reads the channel."""
    worker = StreamWorker(Configuration(), verdict, "w", "0")
    app: Any = build(worker, "w", lambda: None)
    pump = Pump(worker)
    pump.channel = app.channel(maxsize=BATCHES_WAITING)
    app.flow_control.resume()
    reader = aiter(pump.channel)
    for number in range(BATCHES_WAITING):
        reader.queue.put_nowait((number, PLACE, ()))
    return app, pump, reader


async def waiting(pump: Pump) -> asyncio.Task[bool]:
    """The put of one more batch, at the point where it waits for room."""
    task = asyncio.ensure_future(pump.batch(1, PLACE, ()))
    await asyncio.sleep(0.01)
    assert not task.done()
    return task


def test_a_batch_that_waits_for_room_is_not_taken_where_a_rebalance_empties_the_channel() -> None:
    async def run() -> bool:
        app, pump, _reader = full()
        task = await waiting(pump)
        app.flow_control.clear()
        return await task

    assert asyncio.run(run()) is False


def test_a_batch_that_finds_room_is_taken() -> None:
    async def run() -> bool:
        _, pump, reader = full()
        task = await waiting(pump)
        reader.queue.get_nowait()
        return await task

    assert asyncio.run(run()) is True


def test_the_end_of_the_task_itself_ends_it() -> None:
    async def run() -> None:
        _, pump, _reader = full()
        task = await waiting(pump)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())


class Driver:
    """Takes batches as told, and writes down what it was asked."""

    def __init__(self, taken: Sequence[bool]) -> None:
        self.taken = list(taken)
        self.asked: list[str] = []
        self.stopped = asyncio.Event()

    async def assigned(self, _: frozenset[TP]) -> Mapping[TP, int]:
        self.asked.append("place")
        return {PLACE: 7}

    async def batch(self, _: int, place: TP, __: Sequence[ConsumerRecord]) -> bool:
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
        self.app = SimpleNamespace(consumer_generation_id=1, rebalancing=False)  # type: ignore[assignment]
        self._stopped = asyncio.Event()  # type: ignore[assignment]

    def assignment(self) -> set[TP]:
        return {PLACE}

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        pass

    async def _wait_next_records(self, timeout: float) -> Any:
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
