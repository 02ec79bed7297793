"""Two workers share eight shards; one joins, leaves, sleeps and wakes: told as by a plain fold."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from evaluation.faults import parse_fault
from evaluation.simulator import START_S, Simulation
from nodewarden.shards import Target
from tests.kafka.broker import Broker
from tests.kafka.conftest import fresh_topics
from tests.kafka.feed import Piece, feeding
from tests.kafka.live import LiveWorker, log_end
from tests.kafka.told import assert_as_plain

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SHARDS = ("main", "history", *(f"h{number}" for number in range(2, 8)))
TARGETS = [Target(shard, partition) for partition, shard in enumerate(SHARDS) if partition > 0]
FAULTS = ("ecn@n003+60", "xid94@n005+90", "nvme@n010+180", "flap@n012+120")
SLEEP_S = 12.0  # twice the session
DEADLINE_S = 60.0


def piece(seed: int) -> Piece:
    """16 nodes with four faults; each shard's at a time of its own, as each has its own jobs."""
    run = Simulation(
        16, minutes=10.0, seed=seed, faults=[parse_fault(text) for text in FAULTS],
        start_s=START_S - 86_400.0 * seed,
    )  # fmt: skip
    return tuple(run.records())


def worker(broker: Broker, directory: Path, instance: str) -> LiveWorker:
    return LiveWorker(
        broker, directory, instance, shards=SHARDS, history=SHARDS[1:], snapshot_s=0.3
    )


def settled(workers: Sequence[LiveWorker]) -> dict[str, float]:
    """Up to where each shard is told, by whoever is further."""
    found: dict[str, float] = {}
    for one in workers:
        for (name, shard), value in one.metrics().items():
            if name == "settled_offset":
                found[shard] = max(found.get(shard, 0.0), value)
    return found


def held(one: LiveWorker) -> set[str]:
    """The shards that a worker says it holds."""
    return {shard for name, shard in one.metrics() if name == "settled_offset"}


def wait(true: Callable[[], bool], what: str, workers: Sequence[LiveWorker]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end_s, f"not {what}; " + "\n".join(
            str(one.gone(f"holds {sorted(held(one))}")) for one in workers
        )
        time.sleep(0.2)


def wait_shared(first: LiveWorker, second: LiveWorker) -> None:
    """Until each shard has one worker, and each worker four."""

    def shared() -> bool:
        one, other = held(first), held(second)
        return len(one) == len(other) == 4 and not one & other

    wait(shared, "shared", (first, second))


def wait_told(broker: Broker, workers: Sequence[LiveWorker]) -> None:
    """Until all that stands in the history shards is told."""
    ends = {target.shard: log_end(broker, target.partition) for target in TARGETS}

    def told() -> bool:
        found = settled(workers)
        return all(found.get(shard, 0.0) >= end for shard, end in ends.items())

    wait(told, "told", workers)


def check(broker: Broker, workers: Sequence[LiveWorker]) -> None:
    wait_told(broker, workers)
    for target in TARGETS:
        _, _, live = assert_as_plain(broker, target.partition, target.shard)
        assert live.incidents() >= 2
    for one in workers:
        assert one.metrics().get(("conflicts_total", ""), 0.0) == 0


def test_a_worker_joins_leaves_and_comes_back_and_nothing_is_lost_or_doubled_k6(
    kafka: Broker, tmp_path: Path
) -> None:
    fresh_topics(kafka, SHARDS)
    pieces = [(target, (piece(target.partition),)) for target in TARGETS]
    first, second = worker(kafka, tmp_path, "first"), worker(kafka, tmp_path, "second")
    with feeding(kafka, pieces, 4) as feed, first:
        feed.more()
        with second:
            wait_shared(first, second)
            feed.more()
            time.sleep(1.0)
            assert second.stop() == 0
        feed.more()
        wait(lambda: len(held(first)) == len(SHARDS), "all taken over", (first,))
        with second:
            wait_shared(first, second)
            feed.join()
            check(kafka, (first, second))


def test_a_worker_stopped_for_12_s_that_wakes_contradicts_nobody(
    kafka: Broker, tmp_path: Path
) -> None:
    fresh_topics(kafka, SHARDS)
    pieces = [(target, (piece(target.partition),)) for target in TARGETS]
    first, second = worker(kafka, tmp_path, "first"), worker(kafka, tmp_path, "second")
    with feeding(kafka, pieces, 4) as feed, first, second:
        wait_shared(first, second)
        feed.more()
        time.sleep(0.5)
        os.kill(second.pid, signal.SIGSTOP)
        feed.more()
        time.sleep(SLEEP_S)
        feed.more()
        os.kill(second.pid, signal.SIGCONT)
        wait_shared(first, second)
        feed.join()
        check(kafka, (first, second))
        second.kill()  # and what stands in the state topic after a zombie can be gone on from
        second.start()
        wait_shared(first, second)
        check(kafka, (first, second))
