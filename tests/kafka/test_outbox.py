"""The outbox on a real broker: order, content and events survive what happens to the broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kafka.errors
import pytest
from prometheus_client import CollectorRegistry

from collectors.broker.link import MESSAGES_MAX, KafkaLink
from collectors.outbox import Outbox, Shard
from collectors.outbox_metrics import OutboxMetrics
from collectors.spool import Spool
from nodewarden.clock import SystemClock
from telemetry.codec import decode, encode
from telemetry.records import Event, Frame, Record, Rejected
from telemetry.settings import KafkaSettings
from telemetry.topics import TELEMETRY
from tests.kafka.broker import Broker
from tests.kafka.conftest import fresh_topics
from tests.kafka.proxy import Proxy
from tests.kafka.reading import read_all

pytestmark = pytest.mark.kafka

STARTED_S = 1_700_000_000.0
WAIT_MAX_S = 60.0


class Agent:
    """An outbox on a real link; one frame and now and then an event."""

    def __init__(
        self, broker: Broker, spool: Path, bytes_max: int = 10_000_000, started_s: float = STARTED_S
    ) -> None:
        self.clock = SystemClock()
        self.started_s = started_s
        self.registry = CollectorRegistry()
        self.link = KafkaLink(KafkaSettings(brokers=(broker.address,)), self.clock)
        self.spool = Spool(spool, bytes_max)
        self.outbox = Outbox(
            self.link, self.spool, self.clock, Shard("history", 1), OutboxMetrics(self.registry),
            patience_s=2.0,
        )  # fmt: skip
        self.count = 0

    def say(self, count: int) -> int:
        """The last ticket of `count` frames, with an event after each tenth."""
        ticket = 0
        for _ in range(count):
            number, self.count = self.count, self.count + 1
            frame = Frame(
                at=self.clock.time_s(), node="n1", source="gpu", started_at=self.started_s,
                seq=0, entities={"node": [""]}, metrics={"m": [float(number)] * 60},
            )  # fmt: skip
            ticket = self.outbox.put(frame)
            if number % 10 == 0:
                ticket = self.outbox.put(Event(
                    at=self.clock.time_s(), node="n1", source="kernel", seq=0,
                    started_at=self.started_s, type="xid", text=f"Xid {number}",
                    severity="critical", kmsg_seq=number, boot_id="b1",
                ))  # fmt: skip
        return ticket

    def until(self, true: Callable[[], bool]) -> None:
        """Pump until it is so."""
        end_s = self.clock.monotonic_s() + WAIT_MAX_S
        while not true():
            assert self.clock.monotonic_s() < end_s, f"not within {WAIT_MAX_S} s"
            self.outbox.pump()
            self.clock.sleep(0.02)

    def deliver(self) -> None:
        """Pump until everything is acknowledged."""
        self.outbox.pump()
        self.until(lambda: self.value("under_way") == 0 and self.spool.peek() is None)

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"nodewarden_outbox_{name}", labels) or 0.0

    def close(self) -> None:
        self.link.close()
        self.spool.close()


Agents = Callable[..., Agent]


@pytest.fixture
def agents() -> Iterator[Agents]:
    """Makes agents and closes them, however the test ends."""
    made: list[Agent] = []

    def make(*arguments: Any, **named: Any) -> Agent:
        made.append(Agent(*arguments, **named))
        return made[-1]

    yield make
    for agent in made:
        agent.close()


def records(broker: Broker) -> list[Record]:
    found: list[Record] = []
    for line in read_all(broker, TELEMETRY, 1):
        record = decode(line.value or b"", "test")
        assert not isinstance(record, Rejected), record
        assert b"history" == line.key
        found.append(record)
    assert [] == read_all(broker, TELEMETRY, 0)
    return found


def assert_whole(found: list[Record], count: int, *, repeats: bool) -> None:
    """All of both streams, the first of each in order; a seq never has two contents."""
    contents: dict[tuple[str, int], bytes] = {}
    for record in found:
        unmarked = encode(record).replace(b',"spooled":true', b"")
        assert unmarked == contents.setdefault((record.source, record.seq), unmarked)
    for source, length in (("gpu", count), ("kernel", (count + 9) // 10)):
        assert list(range(length)) == [seq for name, seq in contents if name == source]
    frames = [record for record in found if isinstance(record, Frame)]
    assert all(record.metrics["m"][0] == record.seq for record in frames)
    assert repeats or len(found) == len(contents)


def test_a_broker_killed_in_the_middle_of_a_stream_loses_and_reorders_nothing(
    own_kafka: Broker, tmp_path: Path, agents: Agents
) -> None:
    agent = agents(own_kafka, tmp_path / "spool")
    agent.say(100)
    agent.until(lambda: agent.value("acknowledged_total", kind="frame") > 0)

    def die_and_return() -> None:
        own_kafka.kill()
        agent.clock.sleep(3.0)
        own_kafka.start()

    death = threading.Thread(target=die_and_return)
    death.start()
    while death.is_alive():
        agent.say(10)
        agent.outbox.pump()
        agent.clock.sleep(0.02)
    agent.say(100)
    agent.deliver()

    assert agent.value("spooled_total", kind="frame") > 0
    assert_whole(records(own_kafka), agent.count, repeats=True)


def test_a_cut_between_append_and_acknowledgement_doubles_nothing_or_under_the_same_seq(
    proxied_kafka: tuple[Broker, Proxy], tmp_path: Path, agents: Agents
) -> None:
    broker, proxy = proxied_kafka
    agent = agents(broker, tmp_path)
    agent.say(10)
    agent.deliver()
    for _ in range(3):
        proxy.hold_answers()
        agent.say(20)
        agent.until(lambda: proxy.held_bytes > 0)
        proxy.cut()
        agent.deliver()
    assert_whole(records(broker), agent.count, repeats=False)  # the producer's own doing

    proxy.hold_answers()
    agent.say(20)
    agent.until(lambda: agent.value("errors_total", reason="silent") > 0)
    proxy.cut()
    agent.say(20)
    agent.deliver()

    found = records(broker)
    assert_whole(found, agent.count, repeats=True)
    assert len(found) > agent.count + agent.count // 10, "the held-back ones were there already"


def test_a_broker_that_is_away_costs_no_event_and_the_spool_drains_in_order(
    proxied_kafka: tuple[Broker, Proxy], tmp_path: Path, agents: Agents
) -> None:
    broker, proxy = proxied_kafka
    agent = agents(broker, tmp_path)
    for _ in range(2):  # the first wait on disk until the link is connected
        agent.say(50)
        agent.deliver()
    proxy.refuse(True)
    last = 0
    for _ in range(30):
        last = agent.say(50)
        agent.outbox.pump()
        agent.clock.sleep(0.2)
    agent.until(lambda: agent.outbox.safe == last)  # all on disk
    proxy.refuse(False)
    agent.deliver()
    agent.say(50)
    agent.deliver()

    found = records(broker)
    assert_whole(found, agent.count, repeats=True)
    assert not found[109].spooled
    assert not found[-1].spooled
    assert 1_400 <= sum(record.spooled for record in found if isinstance(record, Frame))


def test_an_outage_longer_than_the_spool_drops_frames_and_no_event(
    proxied_kafka: tuple[Broker, Proxy], tmp_path: Path, agents: Agents
) -> None:
    broker, proxy = proxied_kafka
    proxy.refuse(True)
    agent = agents(broker, tmp_path, bytes_max=300_000)
    agent.say(3_000)
    proxy.refuse(False)
    agent.deliver()

    found = records(broker)
    events = [record.kmsg_seq for record in found if isinstance(record, Event)]
    frames = [record.seq for record in found if isinstance(record, Frame)]
    assert list(range(0, 3_000, 10)) == events
    assert list(range(frames[0], 3_000)) == frames
    assert frames[0] == agent.value("dropped_total", kind="frame", reason="full") > 1_000


def test_a_fatal_producer_error_replaces_the_producer_and_sends_again_in_order(
    proxied_kafka: tuple[Broker, Proxy], tmp_path: Path, agents: Agents
) -> None:
    broker, proxy = proxied_kafka
    agent = agents(broker, tmp_path)
    agent.say(10)
    agent.deliver()
    for error in (
        kafka.errors.OutOfOrderSequenceNumberError,
        kafka.errors.ProducerFencedError,
        kafka.errors.InvalidProducerEpochError,
        kafka.errors.UnknownProducerIdError,
    ):
        proxy.hold_answers()
        agent.say(20)
        agent.until(lambda: proxy.held_bytes > 0)
        assert agent.link._pipe is not None
        agent.link._pipe._failed(error())
        proxy.cut()
        agent.deliver()

    assert 4 == agent.value("errors_total", reason="producer")
    assert_whole(records(broker), agent.count, repeats=True)


def test_topics_that_are_not_there_yet_are_waited_for(
    proxied_kafka: tuple[Broker, Proxy], tmp_path: Path, agents: Agents
) -> None:
    broker, _ = proxied_kafka
    fresh_topics(broker, shards=("main",))  # our partition is missing
    agent = agents(broker, tmp_path)
    agent.say(5)
    agent.until(lambda: agent.link.last_fault is not None)
    assert "topics check" in str(agent.link.last_fault)
    fresh_topics(broker)
    agent.deliver()

    assert_whole(records(broker), agent.count, repeats=True)


def test_putting_never_waits_for_a_broker_that_hangs(
    proxied_kafka: tuple[Broker, Proxy], tmp_path: Path, agents: Agents
) -> None:
    """The link takes what it may; the rest is on disk, whatever the broker does."""
    broker, proxy = proxied_kafka
    agent = agents(broker, tmp_path)
    agent.say(1)
    agent.deliver()
    proxy.hold_answers()
    agent.say(2 * MESSAGES_MAX)
    assert agent.spool.peek() is not None
    proxy.cut()
    agent.deliver()

    assert_whole(records(broker), agent.count, repeats=True)


KILLED = """
    import sys, time
    from pathlib import Path
    from tests.kafka.broker import Broker
    from tests.kafka.test_outbox import Agent

    address, spool, position = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])

    class Given:
        pass

    given = Given()
    given.address = address
    agent = Agent(given, spool, started_s=time.time())
    agent.count = int(position.read_text()) if position.exists() else 0
    while True:
        ticket = agent.say(10)  # one event, the first
        print(agent.count, flush=True)  # named point: between send and saved position
        end_s = time.monotonic() + 30.0
        while agent.outbox.safe < ticket and time.monotonic() < end_s:
            agent.outbox.pump()
            time.sleep(0.01)
        position.write_text(str(agent.count))
"""


def test_an_agent_killed_between_send_and_saved_position_loses_no_event(
    clean_topics: Broker, tmp_path: Path, agents: Agents
) -> None:
    position = tmp_path / "position"
    script = tmp_path / "agent.py"
    script.write_text(textwrap.dedent(KILLED))
    reached = 0
    for kills in range(1, 5):
        agent = subprocess.Popen(
            [sys.executable, str(script), clean_topics.address, str(tmp_path / "spool"),
             str(position)],
            stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        assert agent.stdout is not None
        for _ in range(3 * kills):
            reached = max(reached, int(agent.stdout.readline()))
        agent.send_signal(signal.SIGKILL)
        agent.wait(60)
        agent.stdout.close()
    last = agents(clean_topics, tmp_path / "spool", started_s=SystemClock().time_s())
    last.count = int(position.read_text())
    last.say(reached + 10 - last.count)
    last.deliver()

    found = records(clean_topics)
    events = [(event.boot_id, event.kmsg_seq) for event in found if isinstance(event, Event)]
    assert [("b1", number) for number in range(0, last.count, 10)] == sorted(set(events))
    streams: dict[tuple[str, float], list[int]] = {}
    for record in found:
        streams.setdefault((record.source, record.started_at), []).append(record.seq)
    for seqs in streams.values():
        assert list(range(max(seqs) + 1)) == list(dict.fromkeys(seqs)), "no hole in a stream"
