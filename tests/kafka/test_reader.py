"""KafkaLogReader against a real broker."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from collectors.broker.consumer import KafkaLogReader
from collectors.broker.publisher import KafkaPublisher
from collectors.broker.transactions import Transactions
from collectors.link import Message
from nodewarden.clock import SystemClock
from telemetry.archive_line import ArchiveLine
from telemetry.errors import OffsetGone, SourceUnavailable
from telemetry.log_reading import EMPTY_MAX, read_piece, read_to_end
from telemetry.settings import KafkaSettings
from telemetry.topics import ACTIONS, FINDINGS, TELEMETRY
from tests.kafka.broker import Broker
from tests.kafka.conftest import fresh_topics
from tests.kafka.proxy import Proxy

pytestmark = pytest.mark.kafka


def reader_of(broker: Broker, request_timeout_s: float = 10.0) -> KafkaLogReader:
    settings = KafkaSettings(brokers=(broker.address,), request_timeout_s=request_timeout_s)
    return KafkaLogReader(settings, SystemClock())


def fill(broker: Broker, count: int, value: bytes = b"x", partition: int = 0) -> None:
    settings = KafkaSettings(brokers=(broker.address,), record_max_bytes=10_000_000)
    to = KafkaPublisher(settings, SystemClock())
    for _ in range(count):
        to.publish(TELEMETRY, value, partition=partition)
    to.flush()
    to.close()


def some(reader: KafkaLogReader, count: int) -> list[tuple[str, int, int]]:
    """Where the next `count` records stood."""
    found: list[tuple[str, int, int]] = []
    for _ in range(30):
        found += [(line.topic, line.partition, line.offset) for line in reader.poll(1.0)]
        if len(found) >= count:
            return found
    raise AssertionError(found)


def test_it_reads_from_where_it_is_told_and_only_there(clean_topics: Broker) -> None:
    fill(clean_topics, 10)
    fill(clean_topics, 5, partition=1)
    reader = reader_of(clean_topics)

    assert [0, 1] == list(reader.partitions(TELEMETRY))
    assert [] == list(reader.partitions("nodewarden.nothing"))
    assert {(TELEMETRY, 0): (0, 10), (FINDINGS, 1): (0, 0)} == reader.bounds(
        [(TELEMETRY, 0), (FINDINGS, 1)]
    )
    reader.assign({(TELEMETRY, 0): 7})
    assert [(TELEMETRY, 0, offset) for offset in (7, 8, 9)] == some(reader, 3)
    reader.assign({(TELEMETRY, 1): 4, (TELEMETRY, 0): 10})
    assert [(TELEMETRY, 1, 4)] == some(reader, 1)
    assert [] == list(reader.poll(0.2))
    reader.close()


def test_a_record_of_5_mb_is_read_and_so_is_the_next(kafka: Broker) -> None:
    fresh_topics(kafka, record_max_bytes=10_000_000)
    fill(kafka, 1, b"x" * 5_000_000)
    fill(kafka, 2)
    reader = reader_of(kafka)
    reader.assign({(TELEMETRY, 0): 0})

    assert [0, 1, 2] == [offset for _, _, offset in some(reader, 3)]
    reader.close()


def test_an_offset_that_is_not_kept_is_said(clean_topics: Broker) -> None:
    fill(clean_topics, 3)
    reader = reader_of(clean_topics)
    reader.assign({(TELEMETRY, 0): 50})

    with pytest.raises(OffsetGone, match=rf"{TELEMETRY}/0@50: no longer kept"):
        some(reader, 1)
    reader.assign({(TELEMETRY, 0): 1})
    assert [1, 2] == [offset for _, _, offset in some(reader, 2)]
    reader.close()


def test_a_broker_that_is_away_is_said_and_the_reader_goes_on_when_it_is_back(
    proxied_kafka: tuple[Broker, Proxy],
) -> None:
    broker, proxy = proxied_kafka
    fill(broker, 3)
    reader = reader_of(broker, request_timeout_s=2.0)
    reader.assign({(TELEMETRY, 0): 0})
    assert 3 == len(some(reader, 3))

    proxy.refuse(True)
    with pytest.raises(SourceUnavailable):
        some(reader, 1)
    proxy.refuse(False)
    fill(broker, 2)

    assert [3, 4] == [offset for _, _, offset in some(reader, 2)]
    reader.close()


def test_news_after_silence_is_no_error(clean_topics: Broker) -> None:
    reader = reader_of(clean_topics, request_timeout_s=1.0)
    reader.assign({(TELEMETRY, 0): 0})
    for _ in range(4):
        assert [] == list(reader.poll(0.5))
    fill(clean_topics, 1)
    assert 1 == len(some(reader, 1))
    reader.close()


class Counting(KafkaLogReader):
    polls = 0

    def poll(self, timeout_s: float) -> Sequence[ArchiveLine]:
        self.polls += 1
        return super().poll(timeout_s)


def test_a_topic_that_ends_in_a_transaction_s_mark_is_read_to_its_end_without_waiting(
    clean_topics: Broker,
) -> None:
    settings = KafkaSettings(brokers=(clean_topics.address,))
    log = Transactions(settings, "test-reader")
    for number in range(3):
        log.commit([Message(ACTIONS, b"%d" % number, b"k", 0)])
    log.close()
    reader = Counting(settings, SystemClock(), committed=True)

    assert [0, 2, 4] == [line.offset for line in read_to_end(reader, ACTIONS)]
    assert reader.polls < EMPTY_MAX // 2
    assert (ACTIONS, 0) in reader.positions()
    lines, reached = read_piece(reader, (ACTIONS, 0), 2, 6)
    assert ([2, 4], 6) == ([line.offset for line in lines], reached)
    reader.close()


def test_without_a_broker_there_is_no_reader() -> None:
    settings = KafkaSettings(brokers=("127.0.0.1:1",), request_timeout_s=1.0)
    with pytest.raises(SourceUnavailable, match=r"no broker answers at 127\.0\.0\.1:1"):
        KafkaLogReader(settings, SystemClock())
