"""The watch: canaries that come back in time, late or never, and when the ping is withheld."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from collectors.watch.canaries import Canaries, LiveShard
from collectors.watch.deadman import Deadman, split_url
from collectors.watch.metrics import WatchMetrics
from collectors.watch.tail import FindingsTail
from collectors.watch.workers import Fault, Workers, read_metrics
from telemetry.canary import Heard, is_canary
from telemetry.codec import decode
from telemetry.errors import OffsetGone, PublishError, SettingsError, SourceUnavailable
from telemetry.http_get import Answer
from telemetry.records import Event
from telemetry.settings import DeadmanSettings, WatchSettings
from telemetry.testing import ManualClock, MemoryLog, MemoryPublisher
from telemetry.topics import FINDINGS, TELEMETRY

RULES = WatchSettings(canary_s=300.0, canary_late_s=60.0)


class Setting:
    """Canaries into two shards, everything in memory; names count up."""

    def __init__(self, *shards: str) -> None:
        self.clock, self.publisher = ManualClock(), MemoryPublisher()
        self.registry = CollectorRegistry()
        self.metrics = WatchMetrics(self.registry)
        names = (f"{number:016x}" for number in range(1_000_000))
        places = [LiveShard(name, place) for place, name in enumerate(shards or ("main",))]
        self.canaries = Canaries(
            places, self.publisher, RULES, self.clock, self.metrics, lambda: next(names)
        )

    def sent(self) -> list[tuple[bytes | None, int | None, Event]]:
        found = []
        for one in self.publisher.of(TELEMETRY):
            record = decode(one.value or b"", "test")
            assert isinstance(record, Event)
            assert is_canary(record)
            assert one.headers == (("kind", b"event"),)
            found.append((one.key, one.partition, record))
        return found

    def answer(self, place: int = -1, shard: str = "main") -> None:
        record = self.sent()[place][2]
        self.canaries.heard(shard, Heard(record.entity, record.at))

    def value(self, name: str, shard: str = "main") -> float | None:
        return self.registry.get_sample_value(f"nodewarden_canary_{name}", {"shard": shard})

    def after(self, seconds: float) -> Sequence[str]:
        self.clock.advance(seconds)
        self.canaries.send()
        self.canaries.look()
        return self.canaries.faults


def test_each_live_shard_gets_its_own_at_once_and_then_so_often() -> None:
    setting = Setting("main", "west")
    setting.after(0.0)
    setting.after(299.0)
    setting.after(1.0)

    places = [(key, place, record.seq) for key, place, record in setting.sent()]
    assert places == [(b"main", 0, 0), (b"west", 1, 0), (b"main", 0, 1), (b"west", 1, 1)]
    assert setting.publisher.flushed == 4


def test_nothing_is_well_before_the_first_came_back() -> None:
    setting = Setting()
    assert ["shard main: no canary has come back yet"] == list(setting.after(0.0))
    assert setting.value("last_seen_timestamp_seconds") is None

    setting.clock.advance(0.25)
    setting.answer()

    assert [] == list(setting.after(0.0))
    assert 0.25 == setting.value("delay_seconds")
    assert setting.clock.time_s() == setting.value("last_seen_timestamp_seconds")


def test_one_that_does_not_come_back_is_late_once_and_stays_so_until_another_comes() -> None:
    setting = Setting()
    setting.after(0.0)
    setting.answer()
    assert [] == list(setting.after(300.0))
    assert [] == list(setting.after(60.0))
    assert ["shard main: a canary has not come back for 61 s"] == list(setting.after(1.0))
    assert setting.after(200.0)
    assert (1.0, 261.0) == (setting.value("late_total"), setting.value("waiting_seconds"))
    setting.after(39.0)

    setting.answer()  # the newest: the one before it is lost

    assert [] == list(setting.after(0.0))
    assert (1.0, 0.0) == (setting.value("late_total"), setting.value("waiting_seconds"))


def test_after_a_late_one_the_next_is_sent_at_once_and_only_it_makes_it_well() -> None:
    setting = Setting()
    setting.after(0.0)
    setting.clock.advance(90.0)
    setting.answer()
    assert ["shard main: the last canary took 90 s"] == list(setting.after(0.0))
    assert 2 == len(setting.sent())
    assert 1.0 == setting.value("late_total")

    setting.answer()

    assert [] == list(setting.after(0.0))


def test_without_news_it_stops_being_well_though_nothing_waits() -> None:
    """As when this process hung, or no canary could be sent."""
    setting = Setting()
    setting.after(0.0)
    setting.answer()
    setting.clock.advance(361.0)
    setting.canaries.look()
    assert ["shard main: the last canary came back 361 s ago"] == list(setting.canaries.faults)


def test_a_canary_that_was_not_drawn_here_counts_for_nothing() -> None:
    setting = Setting("main", "west")
    setting.after(0.0)
    mine = setting.sent()[0][2]

    setting.canaries.heard("main", Heard("canary:ffffffffffffffff", mine.at))
    setting.canaries.heard("west", Heard(mine.entity, mine.at))
    setting.canaries.heard("elsewhere", Heard(mine.entity, mine.at))

    assert 2 == len(setting.after(0.0))
    assert (1.0, 1.0) == (setting.value("foreign_total"), setting.value("foreign_total", "west"))
    assert setting.value("delay_seconds") is None


def test_what_the_broker_did_not_take_is_waited_for_and_handed_over_again() -> None:
    setting = Setting()
    setting.publisher.refuse(1)
    with pytest.raises(PublishError):
        setting.canaries.send()
    setting.canaries.send()
    assert 0 == len(setting.sent())  # the real publisher keeps it; this one lost it
    assert "not come back" in setting.after(61.0)[0]


def test_what_waits_is_bounded() -> None:
    setting = Setting()
    for _ in range(200):
        setting.after(300.0)
    assert setting.value("waiting_seconds") == 300.0 * 63
    assert setting.value("late_total") == 199.0


@given(
    delays=st.lists(
        st.one_of(st.floats(0.0, 59.0), st.floats(61.0, 2_000.0), st.none()), max_size=12
    )
)
@settings(deadline=None, max_examples=60)
def test_it_is_well_exactly_while_what_was_due_came_back_in_time(
    delays: list[float | None],
) -> None:
    """Canaries take so long, or never come back; asked every 10 s for hours."""
    setting, due = Setting(), dict[float, int]()
    answered = 0
    for moment in range(0, 6_000, 10):
        setting.after(10.0)
        sent = len(setting.sent())
        for number in range(answered, sent):
            delay = delays[number] if number < len(delays) else 1.0
            if delay is not None:
                due[moment + delay] = number
        answered = sent
        waiting_s = setting.value("waiting_seconds") or 0.0
        seen = setting.value("last_seen_timestamp_seconds")
        if waiting_s > 60.0 or seen is None or setting.clock.time_s() - seen > 360.0:
            assert setting.canaries.faults
        for at in sorted(at for at in due if at <= moment):
            number = due.pop(at)
            if number < sent:
                setting.answer(number)
    # In the end the engine answers at once, and what was lost is behind it.
    assert [] == setting.after(0.0)
    late = setting.value("late_total") or 0.0
    assert late <= len(delays)


def test_faults_are_told_though_the_thread_that_sends_hangs() -> None:
    setting = Setting()
    setting.after(0.0)
    setting.answer()
    setting.after(300.0)
    setting.clock.advance(61.0)  # nobody looks
    assert ["shard main: a canary has not come back for 61 s"] == setting.canaries.faults


def finding(entity: str, state: str = "open") -> bytes:
    at = 1_700_000_000.0
    return (
        f'{{"id":"i","rev":0,"state":"{state}","role":"evidence","detector":"canary","node":"",'
        f'"entity":"{entity}","onset":{at}}}'
    ).encode()


def test_the_tail_begins_at_the_end_and_goes_on_where_a_failure_left_it() -> None:
    log = MemoryLog({FINDINGS: 3})
    log.append(FINDINGS, finding("canary:old"))
    tail = FindingsTail(log.reader, {0: "main", 2: "west"})
    tail.place()
    log.append(FINDINGS, finding("canary:1"))
    log.append(FINDINGS, b"{}")
    log.append(FINDINGS, finding("canary:no"), partition=1)
    log.append(FINDINGS, finding("canary:2"), partition=2)
    log.append(FINDINGS, finding("canary:2", "clear"), partition=2)
    came = [(shard, found.entity) for shard, found in tail.poll(0.0)]
    assert [("main", "canary:1"), ("west", "canary:2")] == came

    log.append(FINDINGS, finding("canary:3"))
    log.refuse(1)
    with pytest.raises(SourceUnavailable):
        tail.poll(0.0)
    assert ["canary:3"] == [found.entity for _, found in tail.poll(0.0)]


def test_a_tail_whose_place_is_gone_begins_at_the_end() -> None:
    log = MemoryLog({FINDINGS: 1})
    tail = FindingsTail(log.reader, {0: "main"})
    tail.place()
    for _ in range(3):
        log.append(FINDINGS, finding("canary:lost"))
    log.trim(FINDINGS, 0, 2)
    with pytest.raises(OffsetGone):
        tail.poll(0.0)
    tail.place()
    log.append(FINDINGS, finding("canary:new"))
    assert ["canary:new"] == [found.entity for _, found in tail.poll(0.0)]
    tail.close()


PAGE = """# TYPE nodewarden_stream_delay_seconds gauge
nodewarden_stream_delay_seconds{shard="main"} {delay}
# TYPE nodewarden_stream_nodes_expected gauge
nodewarden_stream_nodes_expected{shard="main"} 100.0
# TYPE nodewarden_stream_nodes_blind gauge
nodewarden_stream_nodes_blind{shard="main"} {blind}
# TYPE nodewarden_stream_source_nodes gauge
nodewarden_stream_source_nodes{shard="main",source="gpu"} 100.0
# TYPE nodewarden_stream_source_nodes_blind gauge
nodewarden_stream_source_nodes_blind{shard="main",source="gpu"} {gpu}
nodewarden_stream_source_nodes_blind{shard="main",source="nic"} 100.0
"""


def page(blind: float = 0.0, gpu: float = 0.0, delay: float = 1.0) -> str:
    return (
        PAGE.replace("{delay}", str(delay))
        .replace("{blind}", str(blind))
        .replace("{gpu}", str(gpu))
    )


class Worker:
    """A worker's endpoint; an exception is raised."""

    def __init__(self, said: str | Exception, status: int = 200) -> None:
        self.url = "http://worker"
        self._said, self._status = said, status

    def get(self, path: str, headers: object) -> Answer:
        if isinstance(self._said, Exception):
            raise self._said
        return Answer(self._status, self._said.encode())


AWAY = SourceUnavailable("http://worker/metrics: refused")


def faults(*workers: Worker, shards: Sequence[str] = ("main",)) -> list[Fault]:
    endpoints = [(worker, "/metrics") for worker in workers]
    asked = DeadmanSettings(sources=("gpu",), blind_share_max=0.5)
    return Workers(endpoints, shards, asked).faults()  # type: ignore[arg-type]


def test_a_shard_that_is_held_and_sees_its_nodes_is_well() -> None:
    assert [] == faults(Worker(page()))
    assert [] == faults(Worker(page(blind=50.0, gpu=50.0)))
    assert [] == faults(Worker(AWAY), Worker(page()))


@pytest.mark.parametrize(
    ("workers", "reason", "text"),
    [
        ([Worker(AWAY)], "worker", "refused"),
        ([Worker("", 503)], "worker", "answers 503"),
        ([Worker("")], "worker", "none of those that answer"),
        ([], "worker", "none of those"),
        ([Worker("<html>{no metrics</html> x y z")], "worker", "no metrics"),
        ([Worker(page(delay=121.0))], "worker", "121 s old"),
        ([Worker(page(delay=math.nan))], "worker", "nan s old"),
        ([Worker(page(blind=51.0))], "nodes", "51 of 100 nodes are silent"),
        ([Worker(page(gpu=51.0))], "source", "gpu is missing of 51 of 100 nodes"),
        ([Worker(page().replace('"gpu"', '"host"'))], "source", "no node sends gpu"),
        ([Worker(page().replace("100.0", "0.0"))], "nodes", "nothing is seen"),
        ([Worker(page().replace("100.0", "NaN"))], "nodes", "nothing is seen"),
    ],
)
def test_what_is_not_known_to_be_well_is_a_fault(
    workers: list[Worker], reason: str, text: str
) -> None:
    (fault,) = faults(*workers)
    assert (reason, True) == (fault.reason, text in fault.text), fault


def test_each_shard_is_asked_for() -> None:
    west = page(gpu=80.0).replace('"main"', '"west"')
    found = faults(Worker(page()), Worker(west), shards=("main", "west", "east"))
    assert [("source", "shard west"), ("worker", "shard east")] == [
        (fault.reason, fault.text[:10]) for fault in found
    ]


def test_metrics_of_others_are_left_alone() -> None:
    assert {} == read_metrics("# TYPE a counter\na_total 1.0\n")


class Switch:
    """A dead man's switch over answers and faults that a test sets."""

    def __init__(self) -> None:
        self.clock, self.registry = ManualClock(), CollectorRegistry()
        self.pings: list[float] = []
        self.refusal = ""
        self.faults: list[Fault] = []
        self.switch = Deadman(
            self._ping, [lambda: self.faults], 60.0, self.clock, WatchMetrics(self.registry)
        )

    def _ping(self) -> str:
        self.pings.append(self.clock.monotonic_s())
        return self.refusal

    def after(self, seconds: float) -> float:
        self.clock.advance(seconds)
        return self.switch.step()

    def count(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"nodewarden_deadman_{name}_pings_total", labels)


def test_while_all_is_well_there_is_a_ping_a_minute() -> None:
    one = Switch()
    assert 60.0 == one.after(0.0)
    assert 1.0 == one.after(59.0)
    one.after(1.0)
    one.after(600.0)  # none is caught up
    one.after(0.0)
    assert [0.0, 60.0, 660.0] == one.pings[:3]


def test_it_is_withheld_while_anything_is_not_well_and_says_so_once_e3(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = Switch()
    one.faults = [Fault("canary", "late"), Fault("source", "gpu"), Fault("source", "nic")]
    for _ in range(3):
        one.after(60.0)
    assert [] == one.pings
    assert (3.0, 3.0) == (
        one.count("withheld", reason="canary"), one.count("withheld", reason="source"),
    )  # fmt: skip
    assert ["ping_withheld why=late; gpu; nic"] == [record.message for record in caplog.records]

    one.faults = []
    one.after(60.0)
    assert 1 == len(one.pings)


def test_a_ping_that_was_not_taken_is_counted_and_the_next_comes_in_its_time() -> None:
    one = Switch()
    one.refusal = "https://outside: refused"
    assert 60.0 == one.after(0.0)
    assert (1.0, 1) == (one.count("failed"), len(one.pings))


@pytest.mark.parametrize(
    "url",
    ["", "outside/ping", "ftp://outside/x", "https://", "https://u:secret@outside/x",
     "https://outside/a b", "https://outside:0/", "https://outside:99999/", "https://[::1/x"],
)  # fmt: skip
def test_what_is_no_url_is_one_line_that_does_not_repeat_it(url: str) -> None:
    with pytest.raises(SettingsError, match=r"^deadman\.url: no URL") as raised:
        split_url(url, "deadman.url")
    assert "secret" not in str(raised.value)


def paths() -> Iterator[tuple[str, tuple[str, str]]]:
    yield "https://hc.example/uuid?x=1", ("https://hc.example", "/uuid?x=1")
    yield "http://127.0.0.1:8000", ("http://127.0.0.1:8000", "/")


@pytest.mark.parametrize(("url", "split"), list(paths()))
def test_a_url_is_a_server_and_a_path(url: str, split: tuple[str, str]) -> None:
    assert split == split_url(url, "deadman.url")
