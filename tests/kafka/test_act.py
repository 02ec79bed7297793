"""Real action services over a real broker: killed, stopped, asked by whom it may concern."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from telemetry.actions import Command, Decision, Outcome, Recovery, Request
from telemetry.findings import Incident
from telemetry.topics import TELEMETRY
from tests.kafka.acting import TOKENS, ActService, check_once, incident, said, tell
from tests.kafka.broker import Broker
from tests.kafka.reading import read_all

pytestmark = pytest.mark.kafka
POINTS = [f"{what}.{when}" for what in ("decision", "intent", "act", "outcome")
          for when in ("before", "after")]  # fmt: skip
OTTO, VERA = TOKENS["otto"][1], TOKENS["vera"][1]


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_each_decision_and_intent_is_there_once(
    point: str, clean_topics: Broker, tmp_path: Path
) -> None:
    with ActService(clean_topics, tmp_path, "first", act="kill", point=point) as first:
        first.wait_active()
        with ActService(clean_topics, tmp_path, "second") as second:
            tell(clean_topics, [incident("a"), incident("b")])
            assert first.wait() == -signal.SIGKILL
            second.wait_active()
            wait_for(lambda: finished(clean_topics, 2))
    records = said(clean_topics)
    check_once(records)
    assert {one.incident for one in records if isinstance(one, Decision)} == {"a", "b"}
    assert sum(isinstance(one, Command) for one in records) == 2
    done = second.world.read_text().split()[::2]
    assert len(done) == len(set(done)) == 2
    assert [one.status for one in records if isinstance(one, Outcome)] == ["done", "done"]


@pytest.mark.slow
@pytest.mark.parametrize("point", [
    "suspect.act.after", "stopping.intent.after", "cleaning.outcome.before", "replacing.act.before",
    "restarting.act.after", "restarting.outcome.after",
])  # fmt: skip
def test_killed_in_any_state_of_a_recovery_each_step_is_done_once(
    point: str, clean_topics: Broker, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "recovery": {"modes": ["replacement"], "look_s": 0.5},
        "dry_run": False, "executor": "slurm", "slurm": {"timeout_s": 0.5},
    }  # fmt: skip
    with ActService(clean_topics, tmp_path, "first", act="kill", point=point, **settings) as first:
        first.wait_active()
        with ActService(clean_topics, tmp_path, "second", **settings) as second:
            tell(clean_topics, [recoverable("a")])
            assert first.wait() == -signal.SIGKILL
            second.wait_active()
            wait_for(lambda: recovered(clean_topics) == ["running"])
    records = said(clean_topics)
    check_once(records)
    steps = [one.step for one in records if isinstance(one, Command)]
    assert steps == ["drain", "stop", "clean", "replace", "restart"]
    done = second.world.read_text().split()[::2]
    assert len(done) == len(set(done)) == 5
    assert [one.status for one in records if isinstance(one, Outcome)] == ["done"] * 5


@pytest.mark.slow
@pytest.mark.parametrize("point", ["intent.after", "act.before"])
def test_a_zombie_that_wakes_between_intent_and_act_does_not_act(
    point: str, clean_topics: Broker, tmp_path: Path
) -> None:
    first = ActService(clean_topics, tmp_path, "first", act="stop", point=point)
    first.start()
    first.wait_active()
    try:
        with ActService(clean_topics, tmp_path, "second") as second:
            tell(clean_topics, [incident("a")])
            second.wait_active()
            wait_for(lambda: finished(clean_topics, 1))
            os.kill(first.pid, signal.SIGCONT)
            assert first.wait() == 3
            by_pid = second.pid
        assert "Fenced" in first.lines()[-1]
    finally:
        first.kill()
    records = said(clean_topics)
    check_once(records)
    assert [line.split()[1] for line in second.world.read_text().splitlines()] == [str(by_pid)]


def test_who_may_not_is_refused_counted_and_in_the_audit(
    clean_topics: Broker, tmp_path: Path
) -> None:
    tell(clean_topics, [incident("a", job="ask")])
    with ActService(clean_topics, tmp_path, "first", approval_s=8.0) as service:
        service.wait_active()
        wait_for(lambda: decided(clean_topics, "a")[:1] == ["waiting"])
        assert service.asked("approve", None, {"target": "a"})[0] == 401
        assert service.asked("approve", "forged", {"target": "a"})[0] == 401
        assert service.asked("approve", VERA, {"target": "a"})[0] == 403
        assert service.asked("approve", OTTO, {"target": "nothing"})[0] == 404
        assert service.asked("approve", OTTO, {"who": "a"})[0] == 400
        assert service.asked("approve", OTTO, {"target": "a", "note": "x" * 20_000})[0] == 413
        assert service.asked("incidents", VERA)[0] == 200
        assert service.asked("incidents", "forged")[0] == 401
        wait_for(lambda: decided(clean_topics, "a")[-1] == "expired")
        assert service.asked("approve", OTTO, {"target": "a"})[0] == 409
        assert not service.world.exists()
        counted = service.metrics()[("requests_total", "")]
    refused = [one for one in said(clean_topics) if isinstance(one, Request) and not one.accepted]
    assert [(one.by, one.verb) for one in refused] == [
        ("", "approve"), ("", "approve"), ("vera", "approve"), ("otto", "approve"),
        ("", "read"), ("otto", "approve"),
    ]  # fmt: skip
    assert counted == len(refused)


def test_people_approve_pause_release_and_tell_the_engine(
    clean_topics: Broker, tmp_path: Path
) -> None:
    with ActService(clean_topics, tmp_path, "first") as service:
        service.wait_active()
        tell(clean_topics, [incident("a", job="ask"), incident("b", job="ask")])
        wait_for(lambda: decided(clean_topics, "b") == ["waiting"])
        assert service.asked("pause", OTTO, {})[0] == 200
        assert service.asked("resume", OTTO, {})[0] == 403
        assert service.asked("approve", OTTO, {"target": "a", "note": "seen"})[0] == 200
        assert service.asked("approve", OTTO, {"target": "b"})[0] == 200
        assert service.asked("false-alarm", OTTO, {"target": "b"})[0] == 200
        assert service.asked("release", OTTO, {"target": "n1"})[0] == 200
        time.sleep(1.0)
        assert not any(isinstance(one, Command) for one in said(clean_topics))
        assert service.asked("resume", TOKENS["ada"][1], {})[0] == 200
        wait_for(lambda: finished(clean_topics, 2))
        shown = service.asked("incidents/a", VERA)[1]
        assert shown["outcomes"], shown
        wait_for(lambda: decided(clean_topics, "b")[-1] == "refused")
        assert not service.asked("incidents/b", VERA)[1]["commands"]
    lines = read_all(clean_topics, TELEMETRY)
    assert [line.offset for line in lines] == [0, 1]  # no mark of a transaction between them
    assert [b'"action":"false_alarm"' in (line.value or b"") for line in lines] == [True, False]


@pytest.mark.slow
def test_a_broker_that_goes_away_ends_the_instance_and_nothing_is_doubled(
    own_kafka: Broker, tmp_path: Path
) -> None:
    service = ActService(own_kafka, tmp_path, "first")
    service.change_settings({
        "kafka": {"brokers": [own_kafka.address], "request_timeout_s": 4.0},
    })  # fmt: skip
    with service:
        service.wait_active()
        tell(own_kafka, [incident("a")])
        wait_for(lambda: finished(own_kafka, 1))
        own_kafka.kill()
        assert service.asked("pause", OTTO, {})[0] in (503, 504)
        assert service.wait() == 3
        assert "Traceback" not in "".join(service.lines())
        own_kafka.start()
        service.start()
        service.wait_active()
        tell(own_kafka, [incident("a", rev=1), incident("b")])
        wait_for(lambda: finished(own_kafka, 2))
    check_once(said(own_kafka))


def recoverable(name: str) -> Incident:
    """A node of a job is broken: it is to go, and the job to be restarted."""
    story = incident(name, job="7")
    verdict = msgspec.structs.replace(story.verdict, action="isolate_and_restart")
    return msgspec.structs.replace(story, verdict=verdict, verdicts=[verdict])


def recovered(broker: Broker) -> list[str]:
    """Where each recovery stands."""
    return list({one.id: one.state for one in said(broker) if isinstance(one, Recovery)}.values())


def decided(broker: Broker, name: str) -> list[str]:
    return [one.state for one in said(broker) if isinstance(one, Decision) and one.incident == name]


def finished(broker: Broker, count: int) -> bool:
    return sum(isinstance(one, Outcome) for one in said(broker)) == count


def wait_for(true: Callable[[], bool], deadline_s: float = 60.0) -> None:
    end_s = time.monotonic() + deadline_s
    while not true():
        assert time.monotonic() < end_s, "not in time"
        time.sleep(0.3)
