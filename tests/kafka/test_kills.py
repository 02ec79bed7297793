"""kill -9 of the worker at every named point, and of the broker: told as by a plain fold."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from evaluation.faults import parse_fault
from evaluation.simulator import START_S, Simulation
from nodewarden.shards import Target
from tests.kafka.broker import Broker
from tests.kafka.feed import Piece, feeding
from tests.kafka.live import LiveWorker
from tests.kafka.told import assert_as_plain

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

NODES, MINUTES = 64, 10.0
FAULTS = (
    "ecn@n003+60", "thermal@n010+90", "ecc-storm@n020+120", "flap@n033+100", "pcie@n041+150",
    "xid94@n050+60", "nvme@n055+200", "xid13@n060+240", "silent@n012+300", "oom@n044+400",
    "power-brake@n024+180",
)  # fmt: skip
TARGET = Target("history", 1)
OFTEN_S = 0.05  # between snapshots: after nearly every batch
KILLED = -9

# Of each round: the point, and at which pass of it the worker ends.
ROUNDS: dict[str, tuple[tuple[str, int], ...]] = {
    "published": (("published", 1), ("published", 2), ("published", 4)),
    "chunk": (("chunk", 1), ("chunk", 4), ("chunk", 3)),
    "marker": (("marker", 1), ("marker", 3), ("marker", 2)),
    "recovery": (("marker", 2), ("recovery", 2), ("recovery", 1)),
}


def piece(seed: int) -> Piece:
    """64 nodes with eleven faults; the second piece is a day older than the first."""
    run = Simulation(
        NODES, minutes=MINUTES, seed=seed, faults=[parse_fault(text) for text in FAULTS],
        start_s=START_S - 86_400.0 * seed,
    )  # fmt: skip
    return tuple(run.records())


PIECES = ((TARGET, tuple(piece(seed) for seed in (1, 2))),)


def die(broker: Broker, directory: Path, rounds: Sequence[tuple[str, int]]) -> None:
    """Import while workers end at their points, one after the other; then one to the end."""
    with feeding(broker, PIECES, len(rounds) + 1) as feed:
        for point, number in rounds:
            program = ("-m", "tests.kafka.killed_worker", "kill", point, str(number))
            with LiveWorker(broker, directory, program=program, snapshot_s=OFTEN_S) as worker:
                feed.more()
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
def test_a_worker_killed_at_a_named_point_loses_and_doubles_nothing_k1_k13(
    point: str, clean_topics: Broker, tmp_path: Path
) -> None:
    die(clean_topics, tmp_path, ROUNDS[point])


def test_a_broker_killed_twice_loses_and_doubles_nothing(own_kafka: Broker, tmp_path: Path) -> None:
    with LiveWorker(own_kafka, tmp_path, snapshot_s=OFTEN_S) as worker:
        with feeding(own_kafka, PIECES, 4) as feed:
            for _ in range(2):
                feed.more()
                worker.wait_until(
                    lambda found: found.get(("settled_offset", "history"), 0) > 0, "folding"
                )
                time.sleep(0.5)  # somewhere in the portion
                own_kafka.kill()
                time.sleep(0.5)
                own_kafka.start()
        check(own_kafka, worker)
