"""The watch's threads: what they do when a part fails, and what stops the start."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from collectors.watch.canaries import Canaries
from collectors.watch.deadman import Deadman
from collectors.watch.metrics import WatchMetrics
from collectors.watch.tail import FindingsTail
from nodewarden.watching import CanaryLoop, live_shards, ping_loop, watching
from telemetry.canary import is_canary
from telemetry.codec import decode
from telemetry.errors import SettingsError, SourceUnavailable
from telemetry.records import Event
from telemetry.settings import (
    CanarySettings,
    Configuration,
    DeadmanSettings,
    EngineSettings,
    WatchSettings,
)
from telemetry.testing import ManualClock, MemoryLog
from telemetry.topics import FINDINGS, TELEMETRY


class Engine:
    """A broker in memory whose engine answers every canary at once, unless it is `deaf`."""

    def __init__(self) -> None:
        self.log = MemoryLog({TELEMETRY: 2, FINDINGS: 2})
        self.deaf = False

    def publish(self, topic: str, value: bytes | None, **named: Any) -> None:
        self.log.append(topic, value, partition=named["partition"], key=named["key"])
        record = decode(value or b"", "test")
        assert isinstance(record, Event)
        assert is_canary(record)
        if not self.deaf:
            said = (
                f'{{"detector":"canary","state":"open","node":"","entity":"{record.entity}",'
                f'"onset":{record.at}}}'
            )
            self.log.append(FINDINGS, said.encode(), partition=named["partition"])

    def flush(self) -> None:
        """At once."""


class Watch:
    """The canary loop over such an engine."""

    def __init__(self) -> None:
        self.engine, self.clock = Engine(), ManualClock()
        self.registry = CollectorRegistry()
        metrics = WatchMetrics(self.registry)
        shards = live_shards(Configuration())
        self.canaries = Canaries(shards, self.engine, WatchSettings(), self.clock, metrics)
        tail = FindingsTail(
            self.engine.log.reader, {shard.partition: shard.name for shard in shards}
        )
        self.stop = threading.Event()
        self.stop.set()  # nobody waits in a test
        self.loop = CanaryLoop(self.canaries, tail, metrics, self.stop)

    def after(self, seconds: float) -> list[str]:
        self.clock.advance(seconds)
        self.loop.step()
        return list(self.canaries.faults)

    def errors(self, part: str) -> float | None:
        return self.registry.get_sample_value("nodewarden_watch_errors_total", {"part": part})


def test_only_live_shards_are_watched_at_their_place_in_the_settings() -> None:
    asked = Configuration(shards=("west", "history", "east"), history_shards=("history",))
    assert [("west", 0), ("east", 2)] == [tuple(shard) for shard in live_shards(asked)]


def test_a_canary_that_goes_round_is_well_within_one_step() -> None:
    watch = Watch()
    assert [] == watch.after(0.0)
    assert [] == watch.after(300.0)
    watch.engine.deaf = True
    assert [] == watch.after(300.0)
    assert ["shard main: a canary has not come back for 61 s"] == watch.after(61.0)


def test_a_broker_that_is_away_is_said_once_and_no_canary_is_missed_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = Watch()
    watch.after(0.0)
    watch.engine.log.refuse(3)
    for _ in range(3):
        watch.after(1.0)
    assert 3.0 == watch.errors("findings")
    assert 1 == len([r for r in caplog.records if "watch_failed" in r.message])
    assert [] == watch.after(300.0)
    assert [] == watch.after(61.0)


def test_before_the_findings_can_be_read_no_canary_is_sent() -> None:
    watch = Watch()
    watch.engine.log.refuse(1)
    assert ["shard main: no canary has come back yet"] == watch.after(0.0)
    assert (0, 0) == watch.engine.log.bounds((TELEMETRY, 0))


class _Once(threading.Event):
    """Set by whoever waits for it."""

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return True


def test_a_fault_of_our_own_is_counted_and_outlived_by_both_threads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    registry = CollectorRegistry()
    metrics = WatchMetrics(registry)

    def broken() -> list[Any]:
        raise ZeroDivisionError

    class BrokenTail(FindingsTail):
        def place(self) -> None:
            raise ZeroDivisionError

    def reader() -> Any:
        raise SourceUnavailable("none")

    watch = Watch()
    CanaryLoop(watch.canaries, BrokenTail(reader, {}), metrics, _Once()).run()
    ping_loop(Deadman(lambda: "", [broken], 60.0, ManualClock(), metrics), metrics, _Once())

    for part in ("canary", "deadman"):
        assert 1.0 == registry.get_sample_value("nodewarden_watch_errors_total", {"part": part})
    assert 0.0 == registry.get_sample_value("nodewarden_deadman_pings_total")


NO_CANARIES = Configuration(watch=WatchSettings(canary_s=0.0))


@pytest.mark.parametrize(
    ("configuration", "said"),
    [
        (Configuration(engine=EngineSettings(canary=CanarySettings(enabled=False))),
         r"^watch\.canary_s: no canary would come back"),
        (replace(NO_CANARIES, deadman=DeadmanSettings(url="hc/secret")), r"^deadman\.url: no URL"),
        (replace(NO_CANARIES, deadman=DeadmanSettings(url="https://hc/x", workers=("w:9108",))),
         r"^deadman\.workers: no URL"),
        (replace(NO_CANARIES, deadman=DeadmanSettings(url="https://hc/x", ca_file="/missing")),
         r"^deadman\.ca_file: /missing"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_stops_the_start(configuration: Configuration, said: str) -> None:
    with (
        pytest.raises(SettingsError, match=said) as raised,
        watching(configuration, ManualClock(), CollectorRegistry(), threading.Event()),
    ):
        pass
    assert "secret" not in str(raised.value)


def test_with_nothing_asked_for_nothing_runs() -> None:
    before = threading.active_count()
    with watching(NO_CANARIES, ManualClock(), CollectorRegistry(), threading.Event()):
        assert before == threading.active_count()


def test_the_url_is_in_no_representation() -> None:
    assert "secret" not in repr(DeadmanSettings(url="https://hc/secret"))
