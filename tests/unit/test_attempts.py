"""What was tried for a job: kept, told of, seen in the inventory, and read by the ladder."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from actions.policy import verdict
from streams.attempts import ATTEMPTS_MAX, JOBS_MAX, WORKED_S, Attempts, asked_for, told
from streams.fold import Fold
from streams.snapshot import Snapshots, load
from streams.verdicts import Judge
from telemetry.attempts import Attempt, Step
from telemetry.findings import Context, Evidence, Incident, Isolation, Suspect, Verdict
from telemetry.records import Allocation, Arrived, Control, Job, JobNode, Settings, Steps
from telemetry.settings import EngineSettings, PolicySettings
from tests.folding import fresh

POLICY = PolicySettings()
NODES = [f"n{number}" for number in range(8)]
NAN = Evidence("training", "loss", None, None, "", 10.0, "the loss is NaN at step 7")
START = 1_000.0


def incident(name: str = "i1", **more: Any) -> Incident:
    one = Incident(
        id=name, rev=0, scope="job:j1", opened_at=START, closed_at=None, job="j1", cause="unknown",
        kind="loss_anomaly", severity="critical", confidence=0.6, suspects=[], evidence=[NAN],
        verdict=Verdict("none", "", [], "now", 0.0), verdicts=[],
    )  # fmt: skip
    return msgspec.structs.replace(one, **more)


def step(name: Step, **more: Any) -> Attempt:
    return msgspec.structs.replace(Attempt(step=name, at=0.0, incident=""), **more)


def court() -> Judge:
    """The real ladder, with what the docket knows of attempts."""

    def context(one: Incident, ledger: list[Isolation]) -> Context:
        return Context(
            job_nodes=NODES, job_progressing=False, replacements=None, ledger=ledger,
            blind_share=0.0, protected=[], attempts=judge.docket.attempts.get(one.job, []),
        )  # fmt: skip

    judge = Judge(verdict, context)
    return judge


def actions(incidents: list[Incident]) -> list[str]:
    return [one.verdicts[-1].action for one in incidents]


def test_from_checks_to_the_final_cause_one_step_after_the_other() -> None:
    judge = court()
    assert ["diagnose"] == actions(judge.take([incident()], POLICY, START))

    def tell(name: Step, now: float, **more: Any) -> list[Incident]:
        return judge.tried("i1", step(name, **more), POLICY, now)

    assert ["restart"] == actions(tell("checks", START + 60.0, nodes=[]))
    assert [] == tell("retry", START + 90.0)  # made; what becomes of it nobody knows yet
    assert ["rollback"] == actions(tell("retry", START + 300.0, worked=False))
    assert [] == tell("rollback", START + 400.0)
    (said,) = tell("rollback", START + 900.0, worked=True)

    assert ("none", "user_code") == (said.verdicts[-1].action, said.verdicts[-1].final_cause)
    assert "restart" == said.verdict.action  # the first that acted stays
    assert ["diagnose", "restart", "rollback", "none"] == [v.action for v in said.verdicts]
    assert [0, 1, 2, 3] == list(range(said.rev + 1))


def test_a_second_crash_after_a_retry_is_rolled_back_and_after_a_rollback_replayed() -> None:
    judge = court()
    judge.take([incident()], POLICY, START)
    judge.tried("i1", step("checks", nodes=[]), POLICY, START + 60.0)
    judge.tried("i1", step("retry"), POLICY, START + 90.0)
    second = incident("i2", opened_at=START + 500.0)

    assert ["rollback"] == actions(judge.take([second], POLICY, START + 500.0))
    judge.tried("i2", step("rollback"), POLICY, START + 600.0)
    (third,) = judge.take([incident("i3", opened_at=START + 999.0)], POLICY, START + 999.0)
    assert "replay" == third.verdicts[-1].step
    (found,) = judge.tried("i3", step("replay", nodes=["n3"]), POLICY, START + 2_000.0)
    assert ["n3"] == found.verdict.targets
    assert ["n3"] == [line.node for line in judge.docket.ledger]


def test_an_incident_that_closed_learns_what_worked_and_nothing_else() -> None:
    judge = court()
    judge.take([incident()], POLICY, START)
    judge.take([incident(closed_at=START + 50.0)], POLICY, START + 50.0)

    assert [] == judge.tried("i1", step("checks", nodes=[]), POLICY, START + 60.0)
    (said,) = judge.tried("i1", step("retry", worked=True), POLICY, START + 700.0)
    assert ("transient", START + 50.0) == (said.verdicts[-1].final_cause, said.closed_at)


@pytest.mark.parametrize("known", [{}, {"job": ""}, {"merged_into": "i0", "closed_at": START}])
def test_what_is_told_of_no_incident_no_job_or_a_merged_story_changes_nothing(
    known: dict[str, Any],
) -> None:
    judge = court()
    if known:
        judge.take([incident(job=known.get("job", "j1"))], POLICY, START)
        judge.take([incident(**known)], POLICY, START)

    assert [] == judge.tried("i1", step("retry", worked=True), POLICY, START + 60.0)
    assert not any(one.told for kept in judge.docket.attempts.values() for one in kept)


def test_what_was_tried_for_a_merged_story_counts_for_the_elder() -> None:
    judge = court()
    judge.take([incident("elder")], POLICY, START)
    judge.take([incident("young")], POLICY, START)
    judge.tried("young", step("checks", nodes=[]), POLICY, START + 5.0)
    judge.take([incident("young", merged_into="elder", closed_at=START + 9.0)], POLICY, START + 9.0)

    assert {"elder"} == {tried.incident for tried in judge.docket.attempts["j1"]}
    assert ["restart"] == actions(judge.take([incident("elder")], POLICY, START + 10.0))


def test_what_is_told_takes_the_place_of_what_was_asked_for_and_keeps_what_it_does_not_say() -> (
    None
):
    kept: Attempts = {}
    asked = Verdict("isolate_and_restart", "", ["n1"], "now", 5.0, "r", None, "eviction")
    asked_for(kept, "j1", "i1", asked)
    told(kept, "j1", "i1", step("eviction"), 50.0)
    told(kept, "j1", "i1", step("eviction", worked=True), 90.0)

    (tried,) = kept["j1"]
    assert (50.0, ["n1"], True, True) == (tried.at, tried.nodes, tried.told, tried.worked)


def test_attempts_are_bounded_by_job_and_in_a_job() -> None:
    kept: Attempts = {}
    for number in range(JOBS_MAX + 5):
        told(kept, f"j{number}", "i1", step("retry"), 1.0)
    for number in range(ATTEMPTS_MAX + 5):
        told(kept, "j9", f"i{number}", step("retry"), 1.0)

    assert JOBS_MAX == len(kept)
    assert "j4" not in kept
    assert [f"i{ATTEMPTS_MAX + 4}", ATTEMPTS_MAX] == [kept["j9"][-1].incident, len(kept["j9"])]


# -- through the fold


class Log:
    """Records of one shard, with its fold."""

    def __init__(self) -> None:
        self.fold: Fold = fresh()
        self.offset = -1
        self.put(
            Settings(at=START, node="", source="settings", started_at=START, seq=0, digest="d",
                     engine_version="t", settings=EngineSettings())
        )  # fmt: skip

    def put(self, record: Any) -> list[Incident]:
        self.offset += 1
        return self.fold.step(Arrived(self.offset, record.at, record)).incidents

    def job(self, at: float, *nodes: str) -> list[Incident]:
        held = [JobNode(node) for node in nodes]
        return self.put(
            Allocation(at=at, node="", source="inventory", started_at=START, seq=self.offset,
                       jobs=[Job("j1", start=0.0, nodes=held)])
        )  # fmt: skip

    def step(self, at: float, number: int) -> list[Incident]:
        bad = ["loss"] if number < 0 else []
        return self.put(
            Steps(at=at, node="", source="training", started_at=START, seq=self.offset, job="j1",
                  step=[abs(number)], step_time_s=[1.0], loss=[None if bad else 2.0],
                  nonfinite=[bad])
        )  # fmt: skip

    def tell(self, at: float, target: str, attempt: Attempt) -> list[Incident]:
        return self.put(
            Control(at=at, node="", source="act", started_at=START, seq=self.offset,
                    action="attempted", target=target, attempt=attempt)
        )  # fmt: skip


def test_a_control_record_tells_the_fold_what_was_tried_and_a_snapshot_keeps_it() -> None:
    log = Log()
    log.job(START + 1.0, *NODES)
    log.step(START + 2.0, 1)
    (opened,) = log.step(START + 3.0, -2)
    assert "checks" == opened.verdict.step
    (said,) = log.tell(START + 60.0, opened.id, step("checks", nodes=[]))
    assert "restart" == said.verdict.action

    store = dict(Snapshots("main").take(log.fold))
    loaded = load("main", store, fresh)
    assert loaded is not None
    assert log.fold.judge.docket == loaded[0].judge.docket
    log.fold = loaded[0]
    (last,) = log.tell(START + 300.0, opened.id, step("retry", worked=False))
    assert "rollback" == last.verdicts[-1].action


def test_an_eviction_is_seen_in_the_inventory_and_worked_when_the_job_still_runs_later() -> None:
    log = Log()
    log.job(START + 1.0, *NODES)
    log.step(START + 2.0, 1)
    (opened,) = log.step(START + 3.0, -2)
    (said,) = log.tell(START + 60.0, opened.id, step("checks", nodes=["n3"]))
    assert ["n3"] == said.verdict.targets

    def seen() -> Attempt:
        context = log.fold._context(said, [])
        return next(one for one in context.attempts if one.step == "checked_eviction")

    log.step(START + 70.0, 3)
    assert not seen().told  # it still works for the job: nobody evicted it
    log.job(START + 100.0, *[node for node in NODES if node != "n3"], "n9")
    log.step(START + 120.0, 4)
    assert (True, None) == (seen().told, seen().worked)
    log.step(START + 60.0 + WORKED_S, 5)
    assert (True, True) == (seen().told, seen().worked)


def test_an_attempt_without_what_it_was_and_for_an_unknown_incident_changes_nothing() -> None:
    log = Log()
    log.job(START + 1.0, *NODES)
    word = Control(at=START + 2.0, node="", source="act", started_at=START, seq=9,
                   action="attempted", target="n3")  # fmt: skip

    assert [] == log.put(word)
    assert [] == log.tell(START + 3.0, "unknown", step("retry", worked=True))
    assert log.fold.counters.conserved()


def test_what_worked_is_appended_when_the_incident_is_said_again() -> None:
    """The inventory shows the eviction, the steps that it worked: nobody has to tell."""
    judge = court()
    line = Evidence("critical", "xid_79", None, None, "", 10.0, "Xid 79", "n3")
    broken = incident(kind="gpu_lost", certain=True, suspects=[Suspect("n3", "", 1.0)],
                      evidence=[line])  # fmt: skip
    judge.take([broken], POLICY, START)
    (tried,) = judge.docket.attempts["j1"]
    judge.docket.attempts["j1"] = [msgspec.structs.replace(tried, told=True, worked=True)]
    (said,) = judge.advance(POLICY, START + 600.0, 1_800.0)

    assert "hardware" == said.verdicts[-1].final_cause
    assert "isolate_and_restart" == said.verdict.action
    assert [said] == judge.advance(POLICY, START + 1_200.0, 1_800.0)  # and it is not said twice
