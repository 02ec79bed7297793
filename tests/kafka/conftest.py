"""Fixtures for tests against a real Apache Kafka; one broker a test process (xdist worker).

Where no broker can be run the tests skip and say why; in CI (`CI=true`) they fail.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from collectors.broker.admin import Admin
from telemetry.settings import KafkaSettings
from telemetry.topics import TOPICS
from tests.kafka.broker import Broker, BrokerFailed, BrokerMissing, Proof
from tests.kafka.proxy import Proxy

SHARDS = ("main", "history")
START_TRIES = 3


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The shared broker: topics of other tests may exist (see `clean_topics`); never kill it."""
    yield from _running(tmp_path_factory.mktemp("kafka"))


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[Broker]:
    """A broker of the test's own with the topics for `SHARDS`, to kill and start again (5 s)."""
    for broker in _running(tmp_path / "kafka"):
        fresh_topics(broker)
        yield broker


@pytest.fixture
def clean_topics(kafka: Broker) -> Broker:
    """The shared broker with all topics for `SHARDS`, empty (0.2 s; a broker takes 5 s)."""
    fresh_topics(kafka)
    return kafka


@pytest.fixture(scope="module")
def _proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Proxy]]:
    proxy = Proxy()
    for broker in _running(tmp_path_factory.mktemp("kafka"), proxy):
        yield broker, proxy
    proxy.close()


@pytest.fixture
def proxied_kafka(_proxied: tuple[Broker, Proxy]) -> Iterator[tuple[Broker, Proxy]]:
    """The module's own broker, empty, which clients reach only through the proxy; never kill it."""
    broker, proxy = _proxied
    proxy.refuse(False)
    fresh_topics(broker)
    yield broker, proxy
    proxy.cut()


def fresh_topics(broker: Broker, shards: Sequence[str] = SHARDS, **settings: Any) -> None:
    """Delete our topics and create them, empty, for `shards`."""
    asked = KafkaSettings(brokers=(broker.address,), **settings)
    with Admin(asked, shards) as admin:
        admin.delete([topic.name for topic in TOPICS])
        admin.create()


def _running(directory: Path, proxy: Proxy | None = None) -> Iterator[Broker]:
    broker = started(directory, proxy)
    if proxy is not None:
        proxy.open(broker.port)
    yield broker
    broker.stop()


def started(directory: Path, proxy: Proxy | None = None, *, secure: Proof | None = None) -> Broker:
    """Another process may take a free port before the broker does, so it is tried again."""
    failures = []
    for attempt in range(START_TRIES):
        broker = Broker(
            directory / str(attempt), None if proxy is None else proxy.port, secure=secure
        )
        try:
            broker.start()
        except BrokerMissing as missing:
            if os.environ.get("CI") == "true":
                pytest.fail(f"CI needs a real broker: {missing}")
            pytest.skip(str(missing))
        except BrokerFailed as failed:
            failures.append(str(failed))
        else:
            return broker
    pytest.fail("; ".join(failures))
