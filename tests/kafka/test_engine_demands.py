"""What users of other engines complain about, on a real broker; each test names its demand."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from collectors.broker.admin import Admin
from collectors.broker.publisher import KafkaPublisher
from evaluation.faults import parse_fault
from evaluation.simulator import START_S, Simulation
from nodewarden.clock import SystemClock
from nodewarden.shards import Target
from telemetry.records import Arrived
from telemetry.settings import KafkaSettings
from telemetry.topics import STATE, TELEMETRY
from tests.kafka.broker import Broker
from tests.kafka.conftest import SHARDS
from tests.kafka.feed import Piece, feeding, publish, whole
from tests.kafka.live import LiveWorker, log_end
from tests.kafka.proxy import Proxy
from tests.kafka.told import assert_as_plain

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TARGET = Target("history", 1)
FAULTS = ("ecn@n003+60", "xid94@n005+90", "nvme@n010+180", "flap@n012+120")
STATUS_GIVEN_UP = 3
SLEEPY = ("-m", "tests.kafka.killed_worker", "sleep")


def piece(number: int) -> Piece:
    """16 nodes with four faults, each piece a day older than the one before."""
    run = Simulation(
        16, minutes=10.0, seed=number, faults=[parse_fault(text) for text in FAULTS],
        start_s=START_S - 86_400.0 * number,
    )  # fmt: skip
    return tuple(run.records())


def give(broker: Broker, *pieces: int) -> None:
    """Publish pieces at once."""
    with feeding(broker, [(TARGET, [piece(number) for number in pieces])], 1):
        pass


def check(broker: Broker, worker: LiveWorker, begin: int = 0, incidents: int = 2) -> None:
    found = worker.wait_caught_up()
    fold, _, live = assert_as_plain(broker, TARGET.partition, TARGET.shard, begin=begin)
    assert live.incidents() >= incidents
    assert found["conflicts_total", ""] == 0
    assert found["duplicate_total", "history"] == fold.counters.duplicate
    assert found["records_total", "history"] == fold.counters.records


def cut_log(broker: Broker, before: int) -> None:
    """What retention does, at once."""
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    admin.delete_records({TopicPartition(TELEMETRY, TARGET.partition): before})
    admin.close()


@pytest.mark.parametrize("point", ["published", "chunk", "recovery"])
def test_a_worker_that_hangs_ends_itself_and_the_next_goes_on_k5(
    point: str, clean_topics: Broker, tmp_path: Path
) -> None:
    program = (*SLEEPY, point, "1")
    with LiveWorker(clean_topics, tmp_path, program=program, no_progress_s=3.0) as worker:
        give(clean_topics, 1)
        assert worker.wait() == STATUS_GIVEN_UP
        assert "the process ends itself" in worker.lines()[-1]
    with LiveWorker(clean_topics, tmp_path) as worker:
        check(clean_topics, worker)


def test_a_broker_that_is_away_for_longer_than_every_timeout_is_waited_for_k5(
    own_kafka: Broker, tmp_path: Path
) -> None:
    impatient = {"kafka": {"brokers": [own_kafka.address], "request_timeout_s": 6.0}}
    with LiveWorker(
        own_kafka, tmp_path, settings=impatient, snapshot_s=0.2, no_progress_s=60.0
    ) as worker:
        give(own_kafka, 1)
        worker.wait_caught_up()
        own_kafka.kill()
        time.sleep(12.0)  # twice the timeout
        own_kafka.start()
        give(own_kafka, 2)
        check(own_kafka, worker)


def test_a_gap_in_the_log_ends_the_process_and_the_next_says_what_is_lost_k8_l3(
    clean_topics: Broker, tmp_path: Path
) -> None:
    # A session that outlasts the sleep: else it may have lost its shards when it wakes, and takes
    # them over from where the log begins.
    with LiveWorker(clean_topics, tmp_path, session_s=60.0) as worker:
        give(clean_topics, 1)
        worker.wait_caught_up()
        begin = log_end(clean_topics, TARGET.partition)
        os.kill(worker.pid, signal.SIGSTOP)
        give(clean_topics, 2)
        cut = log_end(clean_topics, TARGET.partition) - 10
        cut_log(clean_topics, cut)
        os.kill(worker.pid, signal.SIGCONT)
        assert worker.wait() == STATUS_GIVEN_UP
        assert any(f"{cut} follows" in line for line in worker.lines()), (begin, cut)
    with LiveWorker(clean_topics, tmp_path) as worker:
        give(clean_topics, 3)
        found = worker.wait_caught_up()
        assert any(f"what was before offset {cut} is lost" in line for line in worker.lines())
        assert ("lag_retention_ratio", "history") in found
        # 10 records of the second piece without what they rest on, then the third, whole.
        assert found["rejected_total", "history"] == 10
        assert found["records_total", "history"] == log_end(clean_topics, 1) - cut
        assert worker.kill() == -signal.SIGKILL


def test_open_incidents_are_told_again_when_the_state_topic_was_wiped_l2(
    clean_topics: Broker, tmp_path: Path
) -> None:
    with LiveWorker(clean_topics, tmp_path) as worker:
        give(clean_topics, 1)
        check(clean_topics, worker)
    with Admin(KafkaSettings(brokers=(clean_topics.address,)), SHARDS) as admin:
        admin.delete([STATE])
        admin.create()
    with LiveWorker(clean_topics, tmp_path) as worker:
        give(clean_topics, 2)
        check(clean_topics, worker, incidents=4)
        assert worker.metrics()["muted_total", ""] > 0


def test_the_producers_connection_cut_before_the_acknowledgement_changes_nothing_k13(
    proxied_kafka: tuple[Broker, Proxy], tmp_path: Path
) -> None:
    """An agent that was never told sends again what the log has already."""
    broker, proxy = proxied_kafka
    records = list(whole([piece(1)]))
    middle = len(records) // 2
    kafka = KafkaSettings(brokers=(broker.address,), request_timeout_s=30.0)
    with LiveWorker(broker, tmp_path, snapshot_s=0.2) as worker:
        publisher = KafkaPublisher(kafka, SystemClock())
        send(publisher, records[: middle - 100])
        publisher.flush()
        worker.wait_caught_up(middle - 100)
        proxy.hold_answers()
        send(publisher, records[middle - 100 : middle])
        time.sleep(1.0)  # the broker has them, nobody was told
        proxy.cut()
        publisher.close()
        publisher = KafkaPublisher(kafka, SystemClock())
        send(publisher, records[middle - 100 :])
        publisher.flush()
        publisher.close()
        check(broker, worker)
        repeats = log_end(broker, TARGET.partition) - len(records)
        assert worker.metrics()["duplicate_total", "history"] == repeats > 0


def send(publisher: KafkaPublisher, records: Sequence[Arrived]) -> None:
    for arrived in records:
        publish(publisher, TARGET, arrived)
