"""Ways to have the acting half do harm: each ends in nothing, or in a person."""

from __future__ import annotations

import msgspec
import pytest

from actions.context import rail_context
from actions.ledger import Ledger
from actions.ports import JobFacts
from actions.site import Site as Facts
from telemetry.actions import Command, Decision, Outcome, Preconditions, Request, Update
from telemetry.findings import Verdict
from tests.acting import asked
from tests.recovering import JOB, REAL, TARGET, Cluster, broken

FACTS = JobFacts()


class Power(BaseException):
    """The process is gone."""


def changed_behind_its_back(site: Cluster) -> None:
    """Somebody requeued the job: it runs elsewhere, and well."""
    site.world.run += 1
    site.world.job_nodes = ["node-b", "node-c"]


def test_i1_a_drain_whose_reply_was_lost_is_watched_as_others_are() -> None:
    site = Cluster()
    site.world.behaves["drain"] = ["lost"]
    site.tell(broken(when="at_checkpoint"))
    site.start()
    site.run_for(30.0)
    assert site.world.owners[TARGET] == "nodewarden"
    site.world.owners[TARGET] = ""  # an administrator takes it off in the scheduler
    site.run_for(30.0)
    (recovery,) = site.recoveries()
    assert (recovery.state, recovery.stopped) == ("running", False)
    asked_for = [one for one in site.records() if isinstance(one, Request)]
    assert [("release", TARGET)] == [(one.verb, one.target) for one in asked_for]


def test_i11_a_run_that_somebody_began_while_the_stop_was_held_back_is_not_stopped() -> None:
    site = Cluster()
    site.tell(broken())
    one = site.start()
    one.points["stopping.act.before"] = 5.5  # too late: it gets a new intent
    one.step()
    assert [one.state for one in site.recoveries()] == ["stopping"]
    changed_behind_its_back(site)
    site.run_for(30.0)
    assert site.world.applied["stop"] == 0
    (recovery,) = site.recoveries()
    assert (recovery.state, recovery.stopped) == ("running", False)


def test_i11_a_run_that_somebody_began_after_a_mode_failed_is_not_stopped() -> None:
    site = Cluster()
    site.world.behaves["restart"] = ["fails"]
    site.tell(broken())
    site.start().points["restarting.outcome.after"] = Power()
    with pytest.raises(Power):
        site.run_for(10.0)
    changed_behind_its_back(site)
    site.world.job_state = "RUNNING"
    site.start()
    site.run_for(60.0)
    assert site.world.applied["stop"] == 1
    assert [one.state for one in site.recoveries()] == ["running"]


def decision(name: str, *targets: str, at: float = 1_000.0) -> Decision:
    verdict = Verdict("isolate", "broken", list(targets), "now", at, rung="r")
    return Decision(
        id=name, incident=name, rev=0, at=at, verdict=verdict, mode="auto", rails=[],
        state="approved", reason="r",
    )  # fmt: skip


def command(name: str, *targets: str, at: float = 1_000.0) -> Command:
    return Command(
        id=f"c-{name}", decision=name, action="isolate", targets=list(targets),
        preconditions=Preconditions(), intent_at=at, expires_at=at + 60.0, dry_run=False,
    )  # fmt: skip


def test_a_drain_of_several_nodes_that_failed_of_one_still_uses_the_budget() -> None:
    ledger = Ledger()
    ledger.take(decision("d", "n1", "gone"))
    ledger.take(command("d", "n1", "gone"))
    ledger.take(Outcome(command="c-d", at=1_001.0, status="failed", reason="target gone: gone"))
    used = rail_context(ledger, Facts(), REAL, 1_010.0).used
    assert used["cluster"].hour == 2


def test_a_flood_of_decisions_does_not_make_room_in_the_budget() -> None:
    ledger = Ledger(entries_max=50)
    ledger.take(decision("d", "n1"))
    ledger.take(command("d", "n1"))
    ledger.take(Outcome(command="c-d", at=1_001.0, status="done", reason="done"))
    for number in range(200):
        noted = msgspec.structs.replace(decision(f"x{number}", "n2"), state="noted")
        ledger.take(noted)
    assert len(ledger.decisions) <= 50
    assert rail_context(ledger, Facts(), REAL, 1_010.0).used["cluster"].hour == 1


def test_a_rollback_is_made_though_another_restart_was_under_way_when_it_was_approved() -> None:
    site = Cluster()
    site.world.starts_in_s = 30.0
    one = site.start()
    for code in ("v1", "v2"):
        question = asked("update", JOB)
        one.ask(msgspec.structs.replace(question, versions={"code": code}, running=True))
    site.tell(broken())
    site.run_for(6.0)
    assert [one.state for one in site.recoveries()] == ["restarting"]
    site.tell(broken("r", action="rollback"))
    site.run_for(120.0)
    ran = [one.versions for one in site.world.calls if one.step == "restart"]
    assert ran[-1] == {"code": "v1"}
    newest = {one.id: one for one in site.records() if isinstance(one, Update)}
    assert "running" == list(newest.values())[-1].state


def test_a_verdict_on_the_run_before_does_not_restart_the_new_one() -> None:
    site = Cluster()
    site.tell(broken("a"))
    site.start()
    site.run_for(20.0)
    assert site.world.applied["restart"] == 1
    old = broken("o", action="restart")  # said before the job was restarted, and read late
    site.tell(old)
    site.run_for(30.0)
    assert site.world.applied["restart"] == 1
    assert "running" == site.recoveries()[-1].state


def test_h18_a_job_that_progresses_is_not_killed_for_a_standstill_that_is_over() -> None:
    site = Cluster()
    site.job = lambda job: msgspec.structs.replace(FACTS, progresses=True, replacements=0)
    site.tell(broken("h", action="none", kind="job_hang"), broken())
    site.start()
    site.run_for(30.0)
    assert site.world.applied["stop"] == 0


def test_a_drain_that_is_ordered_late_behind_another_recovery_has_not_expired() -> None:
    site = Cluster()
    site.world.starts_in_s = 400.0
    site.tell(broken())
    one = site.start()
    site.run_for(10.0)
    site.tell(broken("b"))
    one.points["begin.pass.after"] = 150.0
    site.run_for(20.0)
    assert site.world.applied["drain"] == 2


def test_an_update_that_failed_with_another_restart_does_not_restart_the_job_again() -> None:
    site = Cluster()
    site.world.behaves["stop"] = ["hangs"]
    site.world.behaves["restart"] = ["dies"]
    site.tell(broken())
    one = site.start()
    site.run_for(6.0)
    assert [one.state for one in site.recoveries()] == ["stopping"]
    question = msgspec.structs.replace(asked("update", JOB), versions={"code": "v2"}, urgent=True)
    one.ask(question)
    site.run_for(1_200.0, 5.0)
    (update,) = {one.id: one for one in site.records() if isinstance(one, Update)}.values()
    assert "failed" == update.state
    assert 1 == site.world.applied["stop"]


def test_i1_what_a_person_calls_a_false_alarm_stops_nothing_though_the_engine_has_not_heard() -> (
    None
):
    site = Cluster()
    saved: list[float] = []
    site.job = lambda job: msgspec.structs.replace(FACTS, checkpoint_at=max(saved, default=None))
    site.tell(broken(when="at_checkpoint"))
    one = site.start()
    site.run_for(10.0)
    saved.append(site.clock.time_s() + 1.0)
    assert one.ask(asked("false_alarm", "a")).status == 200
    site.run_for(10.0)
    assert site.world.applied["stop"] == 0
    (recovery,) = site.recoveries()
    assert (recovery.state, recovery.stopped) == ("running", False)
    assert site.pages.pages() == []


def test_i1_what_a_person_calls_a_false_alarm_before_its_node_goes_isolates_nobody() -> None:
    site = Cluster()
    site.tell(broken(action="isolate"))
    site.world.away = True
    one = site.start()
    one.step()
    assert one.ask(asked("false_alarm", "a")).status == 200
    site.world.away = False
    site.run_for(20.0)
    assert site.world.applied["drain"] == 0
    assert site.of(Command) == []


def test_a_job_that_stands_after_an_update_that_a_person_asked_for_pages() -> None:
    site = Cluster()
    site.world.behaves["restart"] = ["dies"]
    one = site.start()
    question = msgspec.structs.replace(asked("update", JOB), versions={"code": "v2"}, urgent=True)
    one.ask(question)
    site.run_for(1_200.0, 5.0)
    assert ["escalated"] == [one.state for one in site.recoveries()]
    assert ["job 7 is a person's now"] == [said[:23] for said in site.pages.pages()]
    assert one.ask(asked("ack", site.recoveries()[0].id)).status == 200
    site.run_for(5.0)
    assert site.pages.pages() == []
