"""Updates in a real log: they outlive their service, and steps are read out of the telemetry."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.broker.consumer import KafkaLogReader
from collectors.broker.publisher import KafkaPublisher
from nodewarden.act_reruns import RerunReader
from nodewarden.clock import SystemClock
from telemetry.actions import Update
from telemetry.codec import encode
from telemetry.records import Beat, Steps
from telemetry.settings import KafkaSettings, VersionSettings
from telemetry.topics import TELEMETRY
from tests.kafka.acting import ActService, said
from tests.kafka.broker import Broker

pytestmark = pytest.mark.kafka
CLOCK = SystemClock()
TOKEN = "o" * 32


def test_an_update_outlives_the_service_that_took_it(clean_topics: Broker, tmp_path: Path) -> None:
    with ActService(clean_topics, tmp_path, "first") as first:
        first.wait_active()
        asked = {"target": "7", "versions": {"code": "v1"}, "running": True}
        assert 200 == first.asked("update", TOKEN, asked)[0]
        assert 200 == first.asked("update", TOKEN, {"target": "7", "versions": {"code": "v2"}})[0]
        first.kill()
    with ActService(clean_topics, tmp_path, "second") as second:
        second.wait_active()
        status, found = second.asked("versions/7", TOKEN)
    assert (200, {"code": "v1"}, {"code": "v2"}) == (status, found["running"], found["next"])
    updates = [one for one in said(clean_topics) if isinstance(one, Update)]
    assert ["unproved", "waiting"] == [one.state for one in updates]


def test_the_steps_before_and_after_are_found_among_everything_else(clean_topics: Broker) -> None:
    settings = KafkaSettings(brokers=(clean_topics.address,))
    now_s = CLOCK.time_s()
    to = KafkaPublisher(settings, CLOCK)

    def say(at: float, first: int, count: int, loss: float) -> None:
        record = Steps(
            at=at, node="", source="training", started_at=1.0, seq=0, job="7", ranks=[],
            step=list(range(first, first + count)), loss=[loss] * count,
        )  # fmt: skip
        to.publish(TELEMETRY, encode(record), partition=0, headers=(("kind", b"steps"),))
        for number in range(3_000):
            beat = Beat(at=at, node="", source="act", started_at=1.0, seq=number)
            to.publish(TELEMETRY, encode(beat), partition=0, headers=(("kind", b"beat"),))
        to.flush()

    say(now_s - 60.0, 0, 40, 2.0)
    say(now_s - 50.0, 40, 40, 2.0)
    reruns = RerunReader(
        lambda: KafkaLogReader(settings, CLOCK, "reruns"), [0], VersionSettings(), CLOCK
    )
    update = Update(
        id="u", job="7", versions={"code": "v2"}, before={}, urgent=True, state="running",
        asked_at=now_s, forced_at=now_s, at=now_s, by="otto", reason="", joined_at=now_s,
        ran_at=now_s,
    )  # fmt: skip
    assert reruns.compared(update) is None
    reruns.refresh()
    assert reruns.compared(update) is None
    say(now_s + 5.0, 60, 30, 2.5)
    to.close()
    reruns.refresh()
    (loss,) = reruns.compared(update) or []
    assert ("loss", 20, True) == (loss.quantity, loss.steps, loss.differs)
