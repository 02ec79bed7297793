"""A broker or topic goes away while a worker takes over, folds or stops: it waits, or it ends."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from collectors.broker.admin import Admin
from evaluation.faults import parse_fault
from evaluation.simulator import Simulation
from nodewarden.shards import Target
from telemetry.settings import KafkaSettings
from telemetry.topics import TELEMETRY
from tests.kafka.broker import Broker
from tests.kafka.conftest import SHARDS
from tests.kafka.feed import Piece, feeding
from tests.kafka.live import LiveWorker, Metrics, nodewarden
from tests.kafka.service import DEADLINE_S, Service
from tests.kafka.told import assert_as_plain

pytestmark = pytest.mark.kafka
TARGET = Target("history", 1)
CAPTURE = Path(__file__).parents[1] / "data" / "capture-xid79"


def wait_suspended(service: Service) -> None:
    """Until the process has stopped itself by a signal."""
    end_s = time.monotonic() + DEADLINE_S
    while Path(f"/proc/{service.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < end_s, service.gone("is not suspended")
        time.sleep(0.05)


def pieces() -> list[tuple[Target, tuple[Piece, ...]]]:
    run = Simulation(16, minutes=6.0, seed=3, faults=[parse_fault("ecn@n003+60")])
    return [(TARGET, (tuple(run.records()),))]


def test_a_broker_that_goes_away_while_shards_are_taken_over_is_waited_for(
    own_kafka: Broker, tmp_path: Path
) -> None:
    """Else the worker ends, and where the broker is still away, none starts in its place."""
    nodewarden("import", CAPTURE, "--kafka", "--broker", own_kafka.address)
    program = ("-m", "tests.kafka.killed_worker", "stop", "recovery", "1")
    with LiveWorker(own_kafka, tmp_path, program=program) as worker:
        wait_suspended(worker)
        own_kafka.kill()
        os.kill(worker.pid, signal.SIGCONT)
        worker.wait_until(
            lambda _: any("cannot be taken over" in line for line in worker.lines()), "noticed"
        )
        own_kafka.start()
        worker.wait_caught_up()
    assert_as_plain(own_kafka, TARGET.partition, TARGET.shard)


def test_a_worker_that_is_stopped_while_the_broker_is_away_ends_and_the_next_goes_on(
    own_kafka: Broker, tmp_path: Path
) -> None:
    worker = LiveWorker(own_kafka, tmp_path, snapshot_s=0.2, no_progress_s=600.0)
    with feeding(own_kafka, pieces(), 2) as feed:
        worker.start()
        feed.more()
        worker.wait_until(lambda m: m.get(("settled_offset", "history"), 0.0) > 0, "folding")
        own_kafka.kill()
        try:
            worker.stop()  # with any status: its last snapshot it cannot keep
        finally:
            own_kafka.start()
    with worker:
        worker.wait_caught_up()
    assert_as_plain(own_kafka, TARGET.partition, TARGET.shard)


def test_a_topic_that_the_broker_does_not_know_for_a_moment_is_soon_read_again(
    clean_topics: Broker, tmp_path: Path
) -> None:
    """So answers one that has just started. The group's leader then gives nothing to anybody."""

    def holds(found: Metrics) -> bool:
        return ("settled_offset", "history") in found

    with LiveWorker(clean_topics, tmp_path) as worker:
        worker.wait_until(holds, "holds its shards")
        with Admin(KafkaSettings(brokers=(clean_topics.address,)), SHARDS) as admin:
            admin.delete([TELEMETRY])
            worker.wait_until(lambda found: not holds(found), "holds nothing")
            admin.create()
        worker.wait_until(holds, "holds its shards again")
        nodewarden("import", CAPTURE, "--kafka", "--broker", clean_topics.address)
        worker.wait_caught_up()
