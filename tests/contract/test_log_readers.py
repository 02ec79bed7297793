"""What every reader of a log promises: the fake for tests, and Kafka's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from kafka import KafkaAdminClient, TopicPartition

from collectors.broker.consumer import KafkaLogReader
from collectors.broker.publisher import KafkaPublisher
from nodewarden.clock import SystemClock
from telemetry.archive_line import ArchiveLine
from telemetry.errors import OffsetGone
from telemetry.ports import LogReader
from telemetry.settings import KafkaSettings
from telemetry.testing import MemoryLog
from telemetry.topics import FINDINGS, INVENTORY, TELEMETRY
from tests.kafka.broker import Broker
from tests.kafka.conftest import clean_topics, kafka

__all__ = ["clean_topics", "kafka"]

POLLS_MAX = 60
Append = Callable[[str, int, bytes | None, bytes | None], None]
Trim = Callable[[str, int, int], None]


class World:
    """One log with its topics empty, and a reader of it."""

    def __init__(self, reader: LogReader, append: Append, trim: Trim) -> None:
        self.reader = reader
        self.append = append
        self.trim = trim

    def read(self, count: int) -> list[ArchiveLine]:
        """The next `count` records."""
        found: list[ArchiveLine] = []
        for _ in range(POLLS_MAX):
            found += self.reader.poll(0.5)
            if len(found) >= count:
                break
        return found


def memory_world() -> World:
    log = MemoryLog({TELEMETRY: 2, FINDINGS: 2, INVENTORY: 1})

    def append(topic: str, partition: int, value: bytes | None, key: bytes | None) -> None:
        log.append(topic, value, partition=partition, key=key, headers=[("kind", b"beat")])

    return World(log.reader(), append, log.trim)


def kafka_world(broker: Broker) -> World:
    settings = KafkaSettings(brokers=(broker.address,))
    publisher = KafkaPublisher(settings, SystemClock())

    def append(topic: str, partition: int, value: bytes | None, key: bytes | None) -> None:
        publisher.publish(
            topic, value, partition=partition, key=key, headers=[("kind", b"beat")]
        )  # fmt: skip
        publisher.flush()

    def trim(topic: str, partition: int, first: int) -> None:
        client = KafkaAdminClient(bootstrap_servers=broker.address)
        client.delete_records({TopicPartition(topic, partition): first})
        client.close()

    return World(KafkaLogReader(settings, SystemClock()), append, trim)


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "memory":
        made = memory_world()
    else:
        made = kafka_world(request.getfixturevalue("clean_topics"))
    yield made
    made.reader.close()


def fill(world: World, topic: str, partition: int, count: int) -> None:
    for number in range(count):
        world.append(topic, partition, b'{"n":%d}' % number, b"main")


def offsets(found: Sequence[ArchiveLine]) -> list[tuple[str, int, int]]:
    return sorted((line.topic, line.partition, line.offset) for line in found)


def test_partitions_are_sorted_and_of_no_topic_there_are_none(world: World) -> None:
    assert list(world.reader.partitions(TELEMETRY)) == [0, 1]
    assert list(world.reader.partitions("nodewarden.nosuch")) == []


def test_bounds_are_the_first_kept_offset_and_the_next_one(world: World) -> None:
    places = [(TELEMETRY, 0), (TELEMETRY, 1)]
    assert world.reader.bounds(places) == {(TELEMETRY, 0): (0, 0), (TELEMETRY, 1): (0, 0)}
    fill(world, TELEMETRY, 0, 5)
    world.trim(TELEMETRY, 0, 2)
    assert world.reader.bounds(places) == {(TELEMETRY, 0): (2, 5), (TELEMETRY, 1): (0, 0)}
    assert world.reader.bounds([]) == {}


def test_what_was_assigned_is_read_from_there_on_and_nothing_else(world: World) -> None:
    for place in ((TELEMETRY, 0), (TELEMETRY, 1), (FINDINGS, 0)):
        fill(world, *place, 4)
    world.reader.assign({(TELEMETRY, 0): 2, (FINDINGS, 0): 0})
    found = world.read(6)
    assert offsets(found) == [
        *((FINDINGS, 0, offset) for offset in range(4)),
        *((TELEMETRY, 0, offset) for offset in (2, 3)),
    ]
    assert list(world.reader.poll(0.1)) == []
    fill(world, TELEMETRY, 0, 1)
    assert offsets(world.read(1)) == [(TELEMETRY, 0, 4)]


def test_a_new_assignment_forgets_the_old_one(world: World) -> None:
    fill(world, TELEMETRY, 0, 3)
    fill(world, FINDINGS, 1, 3)
    world.reader.assign({(TELEMETRY, 0): 0})
    assert len(world.read(3)) == 3
    world.reader.assign({(TELEMETRY, 0): 1, (FINDINGS, 1): 2})
    assert offsets(world.read(3)) == [(FINDINGS, 1, 2), (TELEMETRY, 0, 1), (TELEMETRY, 0, 2)]


def test_positions_are_past_what_was_given(world: World) -> None:
    fill(world, TELEMETRY, 0, 3)
    world.reader.assign({(TELEMETRY, 0): 1, (FINDINGS, 1): 0})
    assert world.reader.positions() == {(TELEMETRY, 0): 1, (FINDINGS, 1): 0}
    assert len(world.read(2)) == 2
    assert world.reader.positions() == {(TELEMETRY, 0): 3, (FINDINGS, 1): 0}


def test_a_record_comes_as_it_went(world: World) -> None:
    world.append(FINDINGS, 0, None, b"job/\xff")
    world.append(FINDINGS, 0, b"\x00 no json", None)
    world.reader.assign({(FINDINGS, 0): 0})
    gone, odd = world.read(2)
    assert (gone.key, gone.value, gone.headers) == (b"job/\xff", None, (("kind", b"beat"),))
    assert (odd.key, odd.value) == (None, b"\x00 no json")
    assert odd.timestamp_type == "LogAppendTime"
    assert odd.timestamp_ms > 1_600_000_000_000


def test_a_position_that_is_no_longer_kept_is_said_and_another_can_be_taken(world: World) -> None:
    fill(world, TELEMETRY, 0, 6)
    world.trim(TELEMETRY, 0, 4)
    world.reader.assign({(TELEMETRY, 0): 1})
    with pytest.raises(OffsetGone):
        world.read(1)
    world.reader.assign({(TELEMETRY, 0): 4})
    assert offsets(world.read(2)) == [(TELEMETRY, 0, 4), (TELEMETRY, 0, 5)]
