"""Offsets without a record in the live log: what a transaction's markers leave is passed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from kafka import KafkaProducer

from telemetry.codec import encode
from telemetry.records import Beat
from telemetry.topics import TELEMETRY
from tests.kafka.broker import Broker
from tests.kafka.live import LiveWorker, log_end

pytestmark = pytest.mark.kafka


def beat(seq: int) -> bytes:
    return encode(Beat(at=time.time(), node="", source="t", started_at=1.0, seq=seq))


def test_a_transaction_in_the_log_stops_nobody_k8(clean_topics: Broker, tmp_path: Path) -> None:
    producer = KafkaProducer(
        bootstrap_servers=[clean_topics.address], acks="all", enable_idempotence=True,
        transactional_id="somebody",
    )  # fmt: skip
    producer.init_transactions()
    with LiveWorker(clean_topics, tmp_path) as worker:
        worker.wait_caught_up(1, "main")
        for seq in range(3):
            producer.begin_transaction()
            producer.send(TELEMETRY, beat(seq), key=b"main", partition=0)
            producer.commit_transaction()  # its marker takes an offset
        producer.begin_transaction()
        producer.send(TELEMETRY, beat(3), key=b"main", partition=0)
        producer.commit_transaction()
        end = log_end(clean_topics, 0)
        metrics = worker.wait_caught_up(end - 1, "main")
        assert metrics["rejected_total", "main"] == 0.0
        assert metrics["records_total", "main"] < end - 1  # fewer than offsets
    with worker:
        worker.wait_caught_up(end - 1, "main")
    producer.close()
