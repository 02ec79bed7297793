"""The outbox: order, numbering, what waits on disk, and what a source may rely on."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from collectors.outbox import PATIENCE_S, Outbox, Shard
from collectors.outbox_metrics import OutboxMetrics
from collectors.spool import Spool
from telemetry.codec import decode, encode
from telemetry.records import Event, Frame, Hardware, Record, Rejected
from telemetry.testing import ManualClock, Published
from telemetry.topics import INVENTORY, REJECTED, TELEMETRY
from tests.links import FakeLink

STARTED_S = 1_700_000_000.0
BOUND = 1_000_000


class Node:
    """An outbox with everything around it; `restart` is a new process on the same disk."""

    def __init__(self, directory: Path, bytes_max: int = BOUND, room: int = 100) -> None:
        self.directory = directory
        self.bytes_max = bytes_max
        self.clock = ManualClock()
        self.link = FakeLink(room)
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.registry = CollectorRegistry()
        self.spool = Spool(self.directory, self.bytes_max)
        self.outbox = Outbox(
            self.link, self.spool, self.clock, Shard("pod7", 3), OutboxMetrics(self.registry)
        )
        self.starts += 1

    def restart(self) -> None:
        """Killed: nothing is flushed, nothing is told."""
        self.spool.close()
        self.link.withdraw()
        self.start()

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"nodewarden_outbox_{name}", labels) or 0.0

    def frame(self, number: float) -> int:
        return self.outbox.put(Frame(
            at=self.clock.time_s(), node="n1", source="gpu", started_at=STARTED_S + self.starts,
            seq=0, entities={"node": [""]}, metrics={"m": [number]},
        ))  # fmt: skip

    def event(self, number: int) -> int:
        return self.outbox.put(Event(
            at=self.clock.time_s(), node="n1", source="kernel", started_at=STARTED_S + self.starts,
            seq=0, type="xid", text=f"Xid {number}", severity="critical", kmsg_seq=number,
            boot_id="b1",
        ))  # fmt: skip

    def pass_s(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1.0)
            self.outbox.pump()

    @property
    def published(self) -> list[Record]:
        return [record_of(published) for published in self.link.log.records]


def record_of(published: Published) -> Record:
    record = decode(published.value or b"", "test")
    assert not isinstance(record, Rejected), record
    return record


def numbers(records: list[Record]) -> list[float]:
    return [
        float(record.metrics["m"][0] or 0.0) if isinstance(record, Frame) else -record.seq
        for record in records
    ]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path / "spool")
    yield made
    made.spool.close()


def test_records_are_numbered_by_stream_and_sent_where_the_shard_is(node: Node) -> None:
    node.frame(1.0)
    node.event(7)
    node.frame(2.0)
    node.outbox.pump()

    assert [("gpu", 0), ("kernel", 0), ("gpu", 1)] == [
        (record.source, record.seq) for record in node.published
    ]
    assert {(TELEMETRY, b"pod7", 3)} == {
        (sent.topic, sent.key, sent.partition) for sent in node.link.log.records
    }
    assert [(("kind", b"frame"),), (("kind", b"event"),), (("kind", b"frame"),)] == [
        sent.headers for sent in node.link.log.records
    ]
    assert {(node.clock.time_s(), False)} == {
        (record.sent_at, record.spooled) for record in node.published
    }


def test_a_stream_goes_on_where_a_process_before_left_it(node: Node) -> None:
    node.outbox.resume(("n1", "kernel", STARTED_S + node.starts), 41)
    node.event(7)
    node.event(8)
    node.frame(1.0)
    node.outbox.pump()

    assert [("kernel", 41), ("kernel", 42), ("gpu", 0)] == [
        (record.source, record.seq) for record in node.published
    ]


def test_what_is_acknowledged_is_safe_and_nothing_before(node: Node) -> None:
    node.link.deaf = True
    tickets = [node.frame(float(number)) for number in range(3)]
    node.outbox.pump()
    assert ([1, 2, 3], 0) == (tickets, node.outbox.safe)

    node.link.deaf = False
    node.outbox.pump()
    assert 3 == node.outbox.safe


def test_what_waits_on_disk_is_safe_and_marked_and_keeps_its_order(node: Node) -> None:
    node.frame(0.0)
    node.outbox.pump()
    node.link.closed = True
    for number in range(1, 31):
        node.frame(float(number))
        node.pass_s(1)
        assert number + 1 == node.outbox.safe
    before_s = node.clock.time_s()
    node.link.closed = False
    node.pass_s(1)
    node.frame(31.0)
    node.pass_s(1)

    assert [float(number) for number in range(32)] == numbers(node.published)
    assert list(range(32)) == [record.seq for record in node.published]
    assert [False] + [True] * 30 + [False] == [record.spooled for record in node.published]
    waited = node.published[1].sent_at
    assert waited is not None
    assert before_s - 30.0 <= waited < before_s, "set when it was handed over, not when drained"
    assert 30 == node.value("spooled_total", kind="frame")
    assert 0 == node.value("dropped_total", kind="frame", reason="full")
    assert 0.0 == node.value("spool_bytes")


def test_the_disk_is_waited_for_twice_a_second_and_not_more_often(node: Node) -> None:
    node.link.closed = True
    node.outbox.pump()
    node.frame(1.0)
    node.outbox.pump()
    assert 0 == node.outbox.safe
    node.clock.advance(0.5)
    node.outbox.pump()
    assert 1 == node.outbox.safe


def test_a_silent_broker_costs_patience_then_everything_goes_again_in_order(node: Node) -> None:
    node.link.deaf = True  # it appends, and its answers are lost
    for number in range(5):
        node.frame(float(number))
    node.pass_s(int(PATIENCE_S) + 1)
    assert 5 == node.outbox.safe, "they are on disk"
    node.link.deaf = False
    node.pass_s(2)

    found = numbers(node.published)
    assert [0.0, 1.0, 2.0, 3.0, 4.0] == list(dict.fromkeys(found))
    assert len(found) > 5, "what the log had without our knowing comes again"
    repeats = Counter((record.started_at, record.source, record.seq) for record in node.published)
    assert 5 == len(repeats), "under the same stream and seq"
    assert 1 == node.value("errors_total", reason="silent")


def test_more_than_the_link_takes_waits_on_disk_behind_what_is_under_way(tmp_path: Path) -> None:
    node = Node(tmp_path, room=10)
    node.link.away = True
    for number in range(50):
        node.frame(float(number))
    node.link.away = False
    node.pass_s(10)

    assert [float(number) for number in range(50)] == numbers(node.published)
    assert 50 == node.outbox.safe
    node.spool.close()


def test_a_link_that_is_lost_while_the_disk_is_drained_is_a_step_back_not_a_gap(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, room=10)
    node.link.closed = True
    for number in range(60):
        node.frame(float(number))
    node.link.closed = False
    node.link.deaf = True
    node.pass_s(int(PATIENCE_S) + 2)
    node.link.deaf = False
    node.pass_s(20)

    assert [float(number) for number in range(60)] == list(dict.fromkeys(numbers(node.published)))
    node.spool.close()


def test_a_long_outage_drops_the_oldest_frames_and_no_event(tmp_path: Path) -> None:
    node = Node(tmp_path, bytes_max=100_000)
    node.link.closed = True
    for number in range(3_000):
        node.frame(float(number))
        if number % 30 == 0:
            node.event(number)
        if number % 100 == 0:
            node.pass_s(1)
    node.link.closed = False
    node.pass_s(60)

    events = [record for record in node.published if isinstance(record, Event)]
    frames = [record for record in node.published if isinstance(record, Frame)]
    assert list(range(0, 3_000, 30)) == [event.kmsg_seq for event in events]
    assert list(range(3_000 - len(frames), 3_000)) == [frame.seq for frame in frames]
    assert 3_000 - len(frames) == node.value("dropped_total", kind="frame", reason="full")
    node.spool.close()


def test_a_killed_agent_sends_what_was_on_disk_and_rereads_what_was_not_safe(node: Node) -> None:
    """The source's saved position follows `safe`; its events keep their identity."""
    saved = -1
    tickets: dict[int, int] = {}
    for number in range(10):
        tickets[node.event(number)] = number
        if number == 4:
            node.outbox.pump()
            saved = tickets[node.outbox.safe]
            node.link.deaf = True
    assert 4 == saved
    node.restart()
    node.link.deaf = False
    for number in range(saved + 1, 12):
        node.event(number)
    node.pass_s(2)

    found = [record for record in node.published if isinstance(record, Event)]
    assert set(range(12)) == {event.kmsg_seq for event in found}
    assert len({(event.boot_id, event.kmsg_seq) for event in found}) == 12
    assert 15 <= len(found), "five were appended twice, by two streams"


def test_closing_waits_for_acknowledgements_then_keeps_the_rest_on_disk(node: Node) -> None:
    node.link.away = True
    for number in range(5):
        node.frame(float(number))
    node.outbox.close(timeout_s=1.0)
    node.link.closed = node.link.away = False
    node.start()
    node.frame(5.0)
    node.pass_s(1)

    assert [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] == numbers(node.published)


def test_a_record_that_the_log_will_never_take_is_counted_and_the_next_goes(node: Node) -> None:
    node.link.deaf = True
    node.frame(1.0)
    node.link.faults[node.link.log.records[0].value or b""] = "too large"
    node.link.deaf = False
    node.frame(2.0)
    node.pass_s(1)

    assert 1 == node.value("dropped_total", kind="frame", reason="refused")
    assert 1 == node.value("acknowledged_total", kind="frame")
    assert 2 == node.outbox.safe


def test_replaced_producers_are_counted(node: Node) -> None:
    node.link.replaced = 2
    node.pass_s(1)
    node.pass_s(1)
    assert 2 == node.value("errors_total", reason="producer")


def test_memory_stays_flat_through_an_outage(tmp_path: Path) -> None:
    node = Node(tmp_path, bytes_max=600_000)
    node.link.closed = True
    for number in range(500):
        node.frame(float(number))
    tracemalloc.start()
    for number in range(6_000):
        node.frame(float(number))
        if number % 100 == 0:
            node.pass_s(1)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert grown < 500_000
    assert node.spool.size_bytes <= 600_000
    node.spool.close()


MOVES: dict[str, Callable[[Node], None]] = {
    "pump": lambda node: node.pass_s(1),
    "wait": lambda node: node.pass_s(12),
    "away": lambda node: setattr(node.link, "away", True),
    "deaf": lambda node: setattr(node.link, "deaf", True),
    "closed": lambda node: setattr(node.link, "closed", True),
    "back": lambda node: vars(node.link).update(away=False, deaf=False, closed=False),
}


@settings(max_examples=150, deadline=None)
@given(moves=st.lists(st.one_of(st.sampled_from(sorted(MOVES)), st.integers(1, 15)), max_size=60))
def test_whatever_happens_all_records_arrive_and_the_first_of_each_in_order(
    tmp_path_factory: pytest.TempPathFactory, moves: list[str | int]
) -> None:
    node = Node(tmp_path_factory.mktemp("spool"), room=10)
    put = 0
    for move in moves:
        if isinstance(move, str):
            MOVES[move](node)
            continue
        for _ in range(move):
            node.frame(float(put))
            put += 1
    MOVES["back"](node)
    node.pass_s(15 + put)
    node.spool.close()

    assert [float(number) for number in range(put)] == list(dict.fromkeys(numbers(node.published)))
    by_seq: dict[int, set[bytes]] = {}
    for record in node.published:
        by_seq.setdefault(record.seq, set()).add(encode_unmarked(record))
    assert all(len(contents) == 1 for contents in by_seq.values()), "one seq, one content"
    assert put == node.outbox.safe


def encode_unmarked(record: Record) -> bytes:
    return encode(record).replace(b',"spooled":true', b"")


def test_what_a_source_could_not_use_goes_to_its_own_topic_also_by_way_of_the_disk(
    node: Node,
) -> None:
    node.outbox.reject(Rejected(reason="no number", text="x"))
    node.link.room = 0
    node.outbox.reject(Rejected(reason="too long", text="y"))
    before = node.frame(1.0)
    node.link.room = 100
    node.pass_s(2)

    sent = node.link.log.records
    assert [REJECTED, REJECTED, TELEMETRY] == [one.topic for one in sent]
    assert [b"no number" in (sent[0].value or b""), b"too long" in (sent[1].value or b"")] == [
        True, True,
    ]  # fmt: skip
    assert {(None, 0)} == {(one.key, one.partition) for one in sent[:2]}
    assert before == node.outbox.safe


@pytest.mark.parametrize("away", [False, True])
def test_what_a_node_is_made_of_is_also_kept_under_its_key_for_a_cold_start(
    node: Node, away: bool
) -> None:
    node.link.closed = away
    node.outbox.put(Hardware(
        at=node.clock.time_s(), node="n1", source="hardware", started_at=STARTED_S, seq=0,
        serial="S1",
    ))  # fmt: skip
    node.pass_s(2)
    node.link.closed = False
    node.pass_s(2)
    (kept,) = node.link.log.of(INVENTORY)
    assert (b"hw/n1", 0) == (kept.key, kept.partition)
    known = decode(kept.value or b"", "")
    assert isinstance(known, Hardware)
    assert ("S1", away) == (known.serial, known.spooled)
    (told,) = node.link.log.of(TELEMETRY)
    assert told.value == kept.value
