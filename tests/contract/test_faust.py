"""What streams/live/transport.py relies on in Faust although Faust does not document it.

When a new version fails here, read its transport before the pin moves: a difference loses records
without an error.
"""

from __future__ import annotations

import inspect
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from faust.app.base import App
from faust.tables import recovery
from faust.transport.consumer import Consumer as BaseConsumer
from faust.transport.consumer import Fetcher
from faust.transport.drivers import aiokafka as driver
from faust.types.enums import ProcessingGuarantee

from actions.policy import verdict
from streams.live.app import build
from streams.live.transport import AcknowledgedProducer, SeekingConsumer
from streams.live.worker import StreamWorker
from telemetry.settings import Configuration

DECISIONS = Path(__file__).parents[2] / "docs" / "decisions"
DECISION = DECISIONS / "0008-faust-without-its-commits.md"


def test_the_versions_are_the_ones_that_were_read() -> None:
    assert (version("faust-streaming"), version("aiokafka")) == ("0.15.3", "0.14.0")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("perform_seek", ["self"]),
        ("_drain_messages", ["self", "fetcher"]),
        ("_wait_next_records", ["self", "timeout"]),
        ("_commit", ["self", "offsets"]),
        ("seek_wait", ["self", "partitions"]),
        ("highwaters", ["self", "partitions"]),
        ("earliest_offsets", ["self", "partitions"]),
    ],
)
def test_the_consumer_has_what_is_overridden_or_called(name: str, parameters: list[str]) -> None:
    method = getattr(driver.Consumer, name)
    assert inspect.iscoroutinefunction(method)
    assert list(inspect.signature(method).parameters) == parameters


def test_the_fetcher_drains_through_the_method_that_is_overridden() -> None:
    assert "consumer._drain_messages(self)" in inspect.getsource(Fetcher)


def test_recovery_seeks_through_the_method_that_does_nothing_here() -> None:
    assert SeekingConsumer.perform_seek is not BaseConsumer.perform_seek
    assert "perform_seek" in inspect.getsource(recovery)


@pytest.mark.parametrize("name", ["flow_active", "can_resume_flow"])
def test_the_flow_is_stopped_and_resumed_by_what_the_drain_looks_at(name: str) -> None:
    for method in (BaseConsumer.stop_flow, BaseConsumer.resume_flow):
        assert f"self.{name}" in inspect.getsource(method)


def test_the_app_tells_a_rebalance_and_its_generation() -> None:
    assert App.rebalancing is False
    assert App.consumer_generation_id == 0
    assert "consumer_generation_id = generation" in inspect.getsource(driver)


def test_the_producer_takes_what_makes_every_record_acknowledged_once() -> None:
    assert "_settings_extra()" in inspect.getsource(driver.Producer._new_producer)
    extra = AcknowledgedProducer._settings_extra(object.__new__(AcknowledgedProducer))
    assert extra == {"acks": "all", "enable_idempotence": True}
    parameters = list(inspect.signature(driver.Producer.send).parameters)
    assert parameters[:7] == [
        "self", "topic", "key", "value", "partition", "timestamp", "headers",
    ]  # fmt: skip


def test_the_consumers_thread_is_made_and_makes_its_consumer_where_we_do() -> None:
    made = inspect.getsource(driver.Consumer._new_consumer_thread)
    assert "AIOKafkaConsumerThread(self, loop=self.loop, beacon=self.beacon)" in made
    create = driver.AIOKafkaConsumerThread._create_worker_consumer
    assert list(inspect.signature(create).parameters) == ["self", "transport"]


def test_the_fetchers_patience_is_read_when_the_consumer_starts() -> None:
    assert "fetch_max_wait_ms=self._fetch_max_wait_ms" in inspect.getsource(AIOKafkaConsumer.start)


def test_exactly_once_is_not_used_and_said_to_be_unsupported_k12() -> None:
    worker = StreamWorker(Configuration(), verdict, "w", "0")
    app: Any = build(worker, "w", lambda: None)
    assert app.conf.processing_guarantee == ProcessingGuarantee.AT_LEAST_ONCE
    assert "`exactly_once` is not supported" in DECISION.read_text("utf-8")
