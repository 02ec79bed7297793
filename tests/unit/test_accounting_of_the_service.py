"""Accounting of what the action service itself wrote, beside the steps of the job."""

from __future__ import annotations

import msgspec
import pytest

from actions.accounting.account import Accountant
from telemetry.accounts import Account, Phase
from telemetry.findings import Action, Incident
from tests.accounting_log import steps
from tests.acting import asked
from tests.recovering import JOB, Cluster, broken


class Brought:
    """A cluster whose job makes steps of 10 s, before what happens and after it."""

    def __init__(self) -> None:
        self.site = Cluster()
        self.site.start()
        self.accountant = Accountant()
        self.number = 0

    def train(self, count: int, back: int = 0) -> None:
        """So many steps; the first `back` of them were made before."""
        self.number -= back
        for _ in range(count):
            self.number += 1
            self.site.clock.advance(10.0)
            now_s = self.site.clock.time_s()
            one = msgspec.structs.replace(steps(JOB, self.number, 0.0, 10.0), at=now_s)
            self.accountant.telemetry(one, now_s)

    def fault(self, action: Action = "isolate_and_restart") -> Incident:
        """Something breaks now, and the service is told."""
        now_s, found = self.site.clock.time_s(), broken(action=action)
        verdict = msgspec.structs.replace(found.verdict, at=now_s, step="eviction")
        found = msgspec.structs.replace(
            found, opened_at=now_s, verdict=verdict, verdicts=[verdict]
        )  # fmt: skip
        self.site.tell(found)
        return found

    def account(self, *incidents: Incident) -> Account:
        """Everything closes now."""
        for one in incidents:
            now_s = self.site.clock.time_s()
            self.accountant.incident(msgspec.structs.replace(one, rev=9, closed_at=now_s))
        for record in self.site.records():
            self.accountant.action(record)
        return self.accountant.account()


def test_a_job_that_was_brought_back_has_all_its_parts() -> None:
    run = Brought()
    run.train(10)
    fault = run.fault()
    run.site.run_for(60.0)
    run.train(10, back=5)
    account = run.account(fault)
    (row,) = account.incidents
    assert row.mechanism == "eviction_restart"
    assert row.decision == "approved"
    parts: tuple[Phase, ...] = (
        "drain", "stop", "clean", "replace", "start", "load", "first_step",
    )  # fmt: skip
    assert all(part in row.phases for part in parts)
    assert sum(row.phases[part] for part in parts) == pytest.approx(row.phases["recover"])
    assert (account.fleet.interruptions, account.fleet.restarts) == (1, 1)
    # The log begins with the end of the first step: 9 more, 5 of them once more, 5 new ones.
    assert account.fleet.productive_s == pytest.approx(140.0)
    assert account.fleet.recomputed_s == pytest.approx(50.0)
    assert [(one.state, one.mode, one.count) for one in account.recoveries] == [
        ("running", "partial", 1)
    ]


@pytest.mark.parametrize("step", ["drain", "stop", "restart"])
def test_a_reply_that_was_lost_changes_nothing_of_that(step: str) -> None:
    run = Brought()
    run.site.world.behaves[step] = ["lost"]
    run.train(10)
    fault = run.fault()
    run.site.run_for(60.0)
    run.train(10, back=5)
    (row,) = run.account(fault).incidents
    assert row.mechanism == "eviction_restart"
    assert {"drain", "stop", "start", "recover"} <= row.phases.keys()


def test_a_job_that_could_not_be_brought_back_is_a_persons() -> None:
    run = Brought()
    run.site.world.behaves["stop"] = ["lies"]
    run.train(10)
    fault = run.fault()
    run.site.run_for(1_000.0, 10.0)
    run.train(5, back=5)
    account = run.account(fault)
    assert [one.mechanism for one in account.incidents] == ["restart_by_others"]
    assert [one.state for one in account.recoveries] == ["escalated"]


def test_an_urgent_update_is_a_planned_restart() -> None:
    run = Brought()
    run.train(10)
    wanted = msgspec.structs.replace(asked("update", JOB), versions={"code": "v2"}, urgent=True)
    assert run.site.instance is not None
    assert run.site.instance.ask(wanted).status == 200
    run.site.run_for(60.0)
    run.train(10, back=5)
    account = run.account()
    assert (account.fleet.interruptions, account.fleet.planned) == (0, 1)
    assert [one.mechanism for one in account.mechanisms] == ["hot_update"]
    assert account.fleet.mtbf_s is None


def test_a_dry_run_is_counted_and_did_nothing() -> None:
    run = Brought()
    run.site.settings = msgspec.structs.replace(run.site.settings, dry_run=True)
    run.site.start()
    run.train(10)
    fault = run.fault()
    run.site.run_for(60.0)
    run.train(10, back=5)
    account = run.account(fault)
    (row,) = account.incidents
    assert "act" not in row.phases
    assert row.mechanism == "restart_by_others"
    assert {one.dry_run for one in account.outcomes} == {True}
