"""kill -9 of the worker at every named point, and of the broker: told as by a plain fold."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pytest

from collectors.broker.publisher import KafkaPublisher
from evaluation.faults import parse_fault
from evaluation.simulator import START_S, Simulation
from nodewarden.publishing import Target
from telemetry.records import Record
from telemetry.settings import KafkaSettings
from tests.kafka.broker import Broker
from tests.kafka.live import LiveWorker
from tests.kafka.reading import WallClock
from tests.kafka.told import assert_as_plain, publish_history

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

NODES, MINUTES = 64, 10.0
FAULTS = (
    "ecn@n003+60", "thermal@n010+90", "ecc-storm@n020+120", "flap@n033+100", "pcie@n041+150",
    "xid94@n050+60", "nvme@n055+200", "xid13@n060+240", "silent@n012+300", "oom@n044+400",
    "power-brake@n024+180",
)  # fmt: skip
SEEDS = (1, 2)  # two pieces, one after the other
TARGET = Target("history", 1)
SLICE = 150  # records, and then a pause, so that the worker sees many batches
PAUSE_S = 0.04
OFTEN_S = 0.05  # between snapshots: after nearly every batch
KILLED = -9

# Of each round: the point, and at which pass of it the worker ends.
ROUNDS: dict[str, tuple[tuple[str, int], ...]] = {
    "published": (("published", 1), ("published", 2), ("published", 4)),
    "chunk": (("chunk", 1), ("chunk", 4), ("chunk", 3)),
    "marker": (("marker", 1), ("marker", 3), ("marker", 2)),
    "recovery": (("marker", 2), ("recovery", 2), ("recovery", 1)),
}


@lru_cache(maxsize=2)
def piece(seed: int) -> tuple[tuple[float, Record], ...]:
    """64 nodes with eleven faults; the second piece is a day older than the first."""
    run = Simulation(
        NODES, minutes=MINUTES, seed=seed, faults=[parse_fault(text) for text in FAULTS],
        start_s=START_S - 86_400.0 * seed,
    )  # fmt: skip
    return tuple(run.records())


class Import:
    """`import --kafka` of both pieces in a thread, in portions: each is asked for."""

    def __init__(self, broker: Broker, portions: int) -> None:
        self._broker = broker
        self._allowed = threading.Semaphore(0)
        self._every = sum(len(piece(seed)) for seed in SEEDS) // portions + 1
        self._sent = 0
        self._thread = threading.Thread(target=self._run)
        self.error: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def more(self, portions: int = 1) -> None:
        """Let so many portions go."""
        self._allowed.release(portions)

    def join(self) -> None:
        """All that is left."""
        self.more(100)
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        kafka = KafkaSettings(brokers=(self._broker.address,), request_timeout_s=30.0)
        try:
            publisher = KafkaPublisher(kafka, WallClock())
            for seed in SEEDS:
                publish_history(publisher, self._paced(piece(seed)), TARGET, f"seed {seed}")
            publisher.close()
        except Exception as error:  # noqa: BLE001 - raised where the thread is joined
            self.error = error

    def _paced(self, records: Iterable[tuple[float, Record]]) -> Iterator[tuple[float, Record]]:
        for record in records:
            if self._sent % self._every == 0:
                self._allowed.acquire()
            if self._sent % SLICE == 0:
                time.sleep(PAUSE_S)
            self._sent += 1
            yield record


@contextmanager
def importing(broker: Broker, portions: int) -> Iterator[Import]:
    run = Import(broker, portions)
    run.start()
    try:
        yield run
    finally:
        run.join()


def die(broker: Broker, directory: Path, rounds: Sequence[tuple[str, int]]) -> None:
    """Import while workers end at their points, one after the other; then one to the end."""
    with importing(broker, len(rounds) + 1) as run:
        for point, number in rounds:
            program = ("-m", "tests.kafka.killed_worker", "kill", point, str(number))
            with LiveWorker(broker, directory, program=program, snapshot_s=OFTEN_S) as worker:
                run.more()
                assert worker.wait() == KILLED, worker.gone(f"{point} not passed {number} times")
    fold_to_the_end(broker, directory)


def fold_to_the_end(broker: Broker, directory: Path) -> None:
    with LiveWorker(broker, directory, snapshot_s=OFTEN_S) as worker:
        check(broker, worker)


def check(broker: Broker, worker: LiveWorker) -> None:
    """Caught up: told as by a plain fold, everything counted, no contradiction."""
    found = worker.wait_caught_up()
    fold, _, live = assert_as_plain(broker, TARGET.partition, TARGET.shard)
    assert live.incidents() >= len(FAULTS), "the history has something to tell"
    assert found["conflicts_total", ""] == 0
    for name in ("records", "used", "late", "duplicate", "rejected", "control", "lost"):
        assert found[f"{name}_total", "history"] == getattr(fold.counters, name), name
    assert fold.counters.records == found["settled_offset", "history"]


@pytest.mark.parametrize("point", ROUNDS)
def test_a_worker_killed_at_a_named_point_loses_and_doubles_nothing(
    point: str, clean_topics: Broker, tmp_path: Path
) -> None:
    die(clean_topics, tmp_path, ROUNDS[point])


def test_a_broker_killed_twice_loses_and_doubles_nothing(own_kafka: Broker, tmp_path: Path) -> None:
    with LiveWorker(own_kafka, tmp_path, snapshot_s=OFTEN_S) as worker:
        with importing(own_kafka, 4) as run:
            for _ in range(2):
                run.more()
                worker.wait_until(
                    lambda found: found.get(("settled_offset", "history"), 0) > 0, "folding"
                )
                time.sleep(0.5)  # somewhere in the portion
                own_kafka.kill()
                time.sleep(0.5)
                own_kafka.start()
        check(own_kafka, worker)
