"""KafkaPublisher against a real broker: what is published is there, once, in order, as it was."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import kafka.errors
import pytest

from collectors.broker.producer import Pipe
from collectors.broker.publisher import KafkaPublisher
from collectors.link import Message
from nodewarden.clock import SystemClock
from telemetry.archive_line import ArchiveLine
from telemetry.errors import PublishError
from telemetry.settings import KafkaSettings
from telemetry.topics import REJECTED, TELEMETRY
from tests.kafka.broker import Broker
from tests.kafka.conftest import fresh_topics
from tests.kafka.proxy import Proxy
from tests.kafka.reading import read_all

pytestmark = pytest.mark.kafka


@contextmanager
def publisher(broker: Broker, **settings: Any) -> Iterator[KafkaPublisher]:
    made = KafkaPublisher(KafkaSettings(brokers=(broker.address,), **settings), SystemClock())
    yield made
    made.close()


def publish(to: KafkaPublisher, numbers: range, partition: int = 0) -> None:
    for number in numbers:
        to.publish(TELEMETRY, b"%d" % number, key=b"main", partition=partition)


def publish_whole(to: KafkaPublisher, value: bytes, partition: int = 0) -> None:
    to.publish(TELEMETRY, value, key=b"main", partition=partition)
    to.flush()


def numbers(lines: list[ArchiveLine]) -> list[int]:
    return [int(line.value or b"-1") for line in lines]


def test_content_and_partition_are_what_was_asked_for(clean_topics: Broker) -> None:
    with publisher(clean_topics) as to:
        to.publish(TELEMETRY, b'{"a":1}', key=b"history", partition=1, headers=[("kind", b"beat")])
        to.publish(TELEMETRY, None, key=b"\xff\x00", partition=1)
        to.publish(REJECTED, b"")
        to.flush()

    first, second = read_all(clean_topics, TELEMETRY, 1)
    assert (b'{"a":1}', b"history", (("kind", b"beat"),)) == (first.value, first.key, first.headers)
    assert (0, 1) == (first.offset, second.offset)
    assert "LogAppendTime" == first.timestamp_type
    assert (None, b"\xff\x00") == (second.value, second.key)
    assert [] == read_all(clean_topics, TELEMETRY, 0)
    assert [(b"", None)] == [(line.value, line.key) for line in read_all(clean_topics, REJECTED)]


def test_a_broker_killed_in_the_middle_loses_doubles_and_reorders_nothing(
    own_kafka: Broker,
) -> None:
    def die_and_return() -> None:
        own_kafka.kill()
        own_kafka.start()

    with publisher(own_kafka, request_timeout_s=30.0) as to:
        publish(to, range(2_000))
        death = threading.Thread(target=die_and_return)
        death.start()
        publish(to, range(2_000, 12_000))
        death.join()
        publish(to, range(12_000, 12_100))
        to.flush()

    assert list(range(12_100)) == numbers(read_all(own_kafka, TELEMETRY))


def test_a_cut_between_append_and_acknowledgement_changes_nothing(
    proxied_kafka: tuple[Broker, Proxy],
) -> None:
    broker, proxy = proxied_kafka
    with publisher(broker) as to:
        for start in range(0, 500, 100):
            publish(to, range(start, start + 50))
            to.flush()
            proxy.hold_answers()
            publish(to, range(start + 50, start + 100))
            wait_until(lambda: proxy.held_bytes > 0)
            proxy.cut()
        to.flush()

    assert list(range(500)) == numbers(read_all(broker, TELEMETRY))


def test_a_fatal_error_replaces_the_producer_and_keeps_the_order(
    proxied_kafka: tuple[Broker, Proxy],
) -> None:
    """What was appended without our knowing comes again, after it and in order."""
    broker, proxy = proxied_kafka
    with publisher(broker) as to:
        publish(to, range(10))
        to.flush()
        before = to._pipe
        assert before is not None
        proxy.hold_answers()
        publish(to, range(10, 20))
        wait_until(lambda: proxy.held_bytes > 0)
        before._failed(kafka.errors.OutOfOrderSequenceNumberError())
        proxy.cut()
        publish(to, range(20, 30))
        to.flush()
        assert to._pipe is not before

    assert in_order_with_repeats(numbers(read_all(broker, TELEMETRY)), 30)


def test_a_record_too_large_is_refused_and_the_next_is_taken(clean_topics: Broker) -> None:
    with publisher(clean_topics, record_max_bytes=1_000) as to:
        with pytest.raises(PublishError, match=f"{TELEMETRY}: 1001 bytes, at most 1000"):
            publish_whole(to, b"x" * 1001)
        publish(to, range(3))
        to.flush()

    assert [0, 1, 2] == numbers(read_all(clean_topics, TELEMETRY))


def test_a_record_that_only_the_broker_refuses_is_an_error_and_the_next_is_taken(
    kafka: Broker,
) -> None:
    fresh_topics(kafka, record_max_bytes=1_000)
    with publisher(kafka) as to:
        publish(to, range(3))
        with pytest.raises(PublishError, match="MessageSizeTooLarge"):
            publish_whole(to, b"x" * 200_000)
        publish(to, range(3, 6))
        to.flush()

    assert list(range(6)) == numbers(read_all(kafka, TELEMETRY))


def test_a_partition_that_is_not_there_is_an_error(clean_topics: Broker) -> None:
    with publisher(clean_topics) as to, pytest.raises(PublishError, match="topics check"):
        publish_whole(to, b"1", partition=7)


def test_without_a_broker_there_is_no_publisher() -> None:
    settings = KafkaSettings(brokers=("127.0.0.1:1",), request_timeout_s=1.0)
    with pytest.raises(PublishError, match=r"no broker answers at 127\.0\.0\.1:1"):
        KafkaPublisher(settings, SystemClock())


def test_a_silent_broker_is_an_error_in_time_and_flush_can_be_tried_again(
    proxied_kafka: tuple[Broker, Proxy],
) -> None:
    broker, proxy = proxied_kafka
    with publisher(broker, request_timeout_s=2.0) as to:
        publish(to, range(5))
        to.flush()
        proxy.refuse(True)
        publish(to, range(5, 10))
        with pytest.raises(PublishError, match="nothing acknowledged for 2 s"):
            to.flush()
        proxy.refuse(False)
        to.flush()

    assert list(range(10)) == numbers(read_all(broker, TELEMETRY))


def test_a_producer_ends_at_once_whatever_the_broker_does(
    proxied_kafka: tuple[Broker, Proxy],
) -> None:
    """What `Pipe.end` reaches into kafka-python for; a new version may change it."""
    broker, proxy = proxied_kafka
    pipe = Pipe(KafkaSettings(brokers=(broker.address,)), "ends", connect_s=10.0)
    messages = [Message(TELEMETRY, b"%d" % number, None, 0) for number in range(100)]
    pipe.send(messages[0])
    pipe.wait(60.0)
    assert [(messages[0], None)] == [(done.message, done.fault) for done in pipe.settled()]
    proxy.hold_answers()
    for message in messages[1:]:
        pipe.send(message)
    sender = pipe._producer._sender

    assert messages[1:] == pipe.end()
    assert not sender.is_alive()
    assert pipe._producer._closed
    proxy.cut()


def in_order_with_repeats(found: list[int], count: int) -> bool:
    """Whether all of range(count) are there, the first of each in order."""
    firsts = list(dict.fromkeys(found))
    return firsts == list(range(count))


def wait_until(true: Callable[[], bool]) -> None:
    clock = SystemClock()
    end_s = clock.monotonic_s() + 30.0
    while not true():
        assert clock.monotonic_s() < end_s, "did not happen within 30 s"
        clock.sleep(0.01)
