"""Accounting over several topics: whom an interruption is explained by, what resolved it, who is
a lemon, what was refused."""

from __future__ import annotations

import msgspec
import pytest

from actions.accounting import lemons as lemon_rules
from actions.accounting.account import Accountant
from actions.policy.group import GROUP
from actions.updating import UPDATE_RUNG
from telemetry.accounts import Account, Lemon, Mechanism, Phase
from telemetry.actions import (
    Command,
    CommandStep,
    Decision,
    DecisionState,
    Outcome,
    OutcomeStatus,
    Passage,
    Preconditions,
    Rail,
    Recovery,
    Request,
    RestartMode,
    Update,
    UpdateState,
    Verb,
)
from telemetry.attempts import Attempt, Step
from telemetry.findings import Action, Cause, Evidence, Incident, Kind, Suspect, Verdict
from telemetry.records import Beat, Event
from tests.accounting_log import T0, job, listing, steps

DAY_S = 86_400.0


def incident(
    name: str = "a", *, at_s: float = 110.0, closed_s: float | None = 500.0, job: str = "j1",
    kind: Kind = "gpu_lost", cause: Cause = "hardware", node: str = "n1", scope: str = "",
    action: Action = "isolate_and_restart", step: Step | None = "eviction", rung: str = "r",
) -> Incident:  # fmt: skip
    verdict = Verdict(action, "why", [node] if node else [], "now", T0 + at_s, rung, None, step)
    return Incident(
        id=name, rev=0, scope=scope or f"node:{node}", opened_at=T0 + at_s,
        closed_at=None if closed_s is None else T0 + closed_s, job=job, cause=cause, kind=kind,
        severity="critical", confidence=1.0, suspects=[Suspect(node, "", 1.0)] if node else [],
        evidence=[Evidence("d", "m", None, None, "", T0 + at_s - 5.0, "text", node)],
        verdict=verdict, verdicts=[verdict],
    )  # fmt: skip


class Site:
    """A job of 10 s steps that stops at 100 and goes on at 200, and what became of it."""

    def __init__(self, resumes: bool = True) -> None:
        self.accountant = Accountant()
        take = self.accountant.telemetry
        take(listing(0, job("j1", 2, 0)), T0)
        for number in range(1, 11):
            take(steps("j1", number, 10.0 * number, 10.0), T0 + 10.0 * number)
        if resumes:
            for number in range(6, 16):
                at_s = 210.0 + 10.0 * (number - 6)
                take(steps("j1", number, at_s, 10.0), T0 + at_s)
        take(Beat(at=T0 + 1_000, node="", source="i", started_at=T0, seq=0), T0 + 1_000)

    def decided(
        self, of: Incident, state: DecisionState = "approved", rails: tuple[str, ...] = (),
        reason: str = "all rails let pass", at_s: float = 112.0, name: str = "d",
    ) -> Decision:  # fmt: skip
        made = Decision(
            id=name, incident=of.id, rev=0, at=T0 + at_s, verdict=of.verdict, mode="auto",
            rails=[Rail(rail, False, "no") for rail in rails], state=state, reason=reason,
            job=of.job,
        )  # fmt: skip
        self.accountant.action(made)
        return made

    def commanded(
        self, of: Decision, *, status: OutcomeStatus | None = "done", dry_run: bool = False,
        step: CommandStep | None = None, mode: RestartMode | None = None,
        action: Action | None = None, at_s: float = 113.0,
    ) -> None:  # fmt: skip
        name = f"c{of.id}{step}{at_s}"
        self.accountant.action(Command(
            id=name, decision=of.id, action=action or of.verdict.action, mode=mode,
            targets=of.verdict.targets, preconditions=Preconditions(), intent_at=T0 + at_s,
            expires_at=T0 + at_s + 60, incident=of.incident, job=of.job, dry_run=dry_run,
            step=step or "",
        ))  # fmt: skip
        if status is not None:
            self.accountant.action(
                Outcome(command=name, at=T0 + at_s + 1, status=status, reason="")
            )

    def asked(self, verb: Verb, target: str, *, at_s: float = 120.0, accepted: bool = True,
              reason: str = "taken", attempt: Attempt | None = None) -> None:  # fmt: skip
        self.accountant.action(Request(
            id=f"{verb}{target}{at_s}", at=T0 + at_s, by="otto", role="operator", verb=verb,
            target=target, accepted=accepted, reason=reason, attempt=attempt,
        ))  # fmt: skip

    def account(self, *incidents: Incident) -> Account:
        for one in incidents:
            self.accountant.incident(one)
        return self.accountant.account()


# -- interruptions and incidents


def test_the_incident_that_wanted_something_done_explains_the_stop() -> None:
    site = Site()
    account = site.account(
        incident("near", at_s=101.0, action="page", step=None, kind="host"), incident("acts")
    )
    explained = [one.id for one in account.incidents if "diagnosis_wait" in one.phases]
    assert explained == ["acts"]


def test_an_incident_of_another_job_explains_nothing() -> None:
    account = Site().account(incident(job="other"))
    assert account.fleet.diagnosis_wait_s is None
    assert account.fleet.unexplained == 1


def test_an_incident_that_was_over_before_explains_nothing() -> None:
    site = Site()
    account = site.account(incident(at_s=-2_000.0, closed_s=-1_000.0))
    assert account.fleet.unexplained == 1


def test_our_own_telemetrys_fault_explains_no_stop() -> None:
    account = Site().account(incident(cause="telemetry", kind="telemetry_gap"))
    assert account.fleet.unexplained == 1


def test_a_job_that_a_hang_stopped_for_good_was_interrupted() -> None:
    hang = incident(kind="job_hang", cause="unknown", node="", scope="job:j1", action="page",
                    step=None, closed_s=None)  # fmt: skip
    account = Site(resumes=False).account(hang)
    time = account.fleet
    assert (time.interruptions, time.restarts) == (1, 0)
    assert time.mtbf_s == pytest.approx(1_000.0)
    assert time.stopped_s == pytest.approx(900.0)
    # Nobody decided: how long it waits for a diagnosis is not known, and it still waits.
    assert (time.diagnosis_wait_s, time.unexplained) == (None, 1)


def test_a_job_that_just_ends_was_not_interrupted() -> None:
    site = Site(resumes=False)
    site.accountant.telemetry(listing(900, job("j1", 2, 0, end_s=101)), T0 + 900)
    account = site.account(incident(at_s=50.0, closed_s=90.0, action="page", kind="gpu_thermal"))
    assert account.fleet.interruptions == 0
    assert account.jobs[0].ended_at == T0 + 101


def test_a_job_that_a_whole_listing_lacks_has_ended() -> None:
    site = Site(resumes=False)
    site.accountant.telemetry(listing(600, job("j9", 2, 0)), T0 + 600)
    account = site.account()
    assert account.jobs[0].ended_at == T0 + 600
    assert account.silent_jobs == 1


def test_without_steps_nothing_is_known_and_nothing_is_zero() -> None:
    accountant = Accountant()
    accountant.telemetry(listing(0, job("j1", 2, 0)), T0)
    account = accountant.account()
    assert account.fleet.ettr is None
    assert account.fleet.interruptions is None
    assert account.fleet.mtbf_s is None
    assert account.silent_jobs == 1


def test_an_empty_log_has_an_account_too() -> None:
    account = Accountant().account()
    assert account.period is None
    assert account.jobs == []


def test_the_fleet_counts_jobs_alike_where_nodes_are_not_known() -> None:
    site = Site()
    site.accountant.telemetry(steps("j7", 1, 990, 10), T0 + 990)
    account = site.account()
    assert any("counts jobs alike" in note for note in account.notes)


def test_a_job_that_nobody_knows_is_said_to_be_unknown() -> None:
    accountant = Accountant(job="typo")
    accountant.telemetry(listing(0, job("j1", 2, 0)), T0)
    assert (
        "nobody tells of a job typo: neither steps nor the scheduler" in accountant.account().notes
    )


# -- what resolved it

ANALYSED = incident(rung=GROUP.name)
RETRY = incident(action="restart", step="retry")
ROLLBACK = incident(action="rollback", step="rollback")
AGAIN = incident(action="restart", step=None)
QUARANTINE = incident(step="quarantine")


@pytest.mark.parametrize(
    ("of", "mode", "mechanism"),
    [
        (incident(), None, "eviction_restart"),
        (incident(step="checked_eviction"), None, "eviction_restart"),
        (ANALYSED, None, "analyser_eviction"),
        (RETRY, "in_place", "retry"),
        (ROLLBACK, "requeue", "rollback"),
        (AGAIN, "in_place", "retry"),
        (QUARANTINE, None, "quarantine"),
    ],
)
def test_what_was_really_done_resolved_it(
    of: Incident, mode: RestartMode | None, mechanism: Mechanism
) -> None:
    site = Site()
    site.commanded(site.decided(of), step="restart", mode=mode)
    account = site.account(of)
    assert [one.mechanism for one in account.incidents] == [mechanism]


def test_the_last_thing_that_was_done_resolved_it() -> None:
    site = Site()
    site.commanded(site.decided(incident(), name="d1"), at_s=113.0)
    back = site.decided(ROLLBACK, name="d2")
    site.commanded(back, at_s=150.0)
    assert [one.mechanism for one in site.account(incident()).incidents] == ["rollback"]


@pytest.mark.parametrize("status", ["failed", "unknown", "refused", None])
def test_what_was_not_done_resolved_nothing(status: OutcomeStatus | None) -> None:
    site = Site()
    site.commanded(site.decided(incident()), status=status)
    assert [one.mechanism for one in site.account(incident()).incidents] == ["restart_by_others"]


def test_a_dry_run_resolves_nothing_and_ends_no_phase() -> None:
    site = Site()
    site.commanded(site.decided(incident()), dry_run=True)
    (row,) = site.account(incident()).incidents
    assert row.mechanism == "restart_by_others"
    assert "act" not in row.phases
    assert row.decision == "approved"


def test_a_persons_isolation_of_a_suspect_resolved_it() -> None:
    site = Site()
    site.asked("isolate", "n1")
    assert [one.mechanism for one in site.account(incident()).incidents] == ["human"]


def test_a_persons_isolation_of_another_node_did_not() -> None:
    site = Site()
    site.asked("isolate", "n2")
    assert [one.mechanism for one in site.account(incident()).incidents] == ["restart_by_others"]


@pytest.mark.parametrize(("worked", "mechanism"), [(True, "human"), (False, "restart_by_others")])
def test_a_persons_step_that_worked_resolved_it(worked: bool, mechanism: Mechanism) -> None:
    site = Site()
    tried = Attempt(step="retry", at=T0 + 120, incident="a", told=True, worked=worked)
    site.asked("tried", "a", attempt=tried)
    assert [one.mechanism for one in site.account(incident()).incidents] == [mechanism]


def test_an_open_incident_is_resolved_by_nothing() -> None:
    site = Site()
    site.asked("isolate", "n1")
    assert [one.mechanism for one in site.account(incident(closed_s=None)).incidents] == [None]


def test_a_false_alarm_was_not_resolved() -> None:
    site = Site()
    site.asked("false_alarm", "a")
    (row,) = site.account(incident()).incidents
    assert (row.false_alarm, row.mechanism) == (True, None)


def test_a_merged_incident_is_in_its_elder() -> None:
    merged = msgspec.structs.replace(incident("young"), merged_into="a")
    assert [one.id for one in Site().account(incident(), merged).incidents] == ["a"]


def test_an_older_revision_changes_nothing() -> None:
    newer = msgspec.structs.replace(incident(), rev=3, closed_at=T0 + 400)
    (row,) = Site().account(newer, incident(closed_s=None)).incidents
    assert row.closed_at == T0 + 400


# -- recoveries and updates


def recovery(of: Decision, **more: object) -> Recovery:
    made = Recovery(
        id=of.id, incident=of.incident, job=of.job, action=of.verdict.action, when="now",
        targets=["n1"], state="running", since=T0 + 190, at=T0 + 190, began_at=T0 + 113,
        reason="it runs again", revision=9, mode="replacement", stopped=True, dry_run=False,
        history=[
            Passage("suspect", T0 + 113, T0 + 120, "out"),
            Passage("stopping", T0 + 120, T0 + 130, "not supported"),
            Passage("stopping", T0 + 130, T0 + 135, "stopped"),
            Passage("cleaning", T0 + 135, T0 + 136, "clean"),
            Passage("replacing", T0 + 136, T0 + 140, "there"),
            Passage("restarting", T0 + 140, T0 + 190, "it runs"),
        ],
    )  # fmt: skip
    return msgspec.structs.replace(made, **more)


def test_the_states_of_a_recovery_are_the_parts_of_the_recovery() -> None:
    site, of = Site(), incident()
    made = site.decided(of)
    for step in ("drain", "stop", "restart"):
        site.commanded(made, step=step)
    site.accountant.action(recovery(made))
    (row,) = site.account(of).incidents
    parts: dict[Phase, float] = {
        "drain": 7, "stop": 15, "clean": 1, "replace": 4, "start": 50, "load": 10, "first_step": 10,
    }  # fmt: skip
    assert {phase: row.phases[phase] for phase in parts} == parts
    assert row.phases["recover"] == sum(parts.values()) == 97


def test_an_unanswered_call_was_made_where_the_job_was_brought_back() -> None:
    site, of = Site(), incident()
    made = site.decided(of)
    site.commanded(made, step="restart", status="unknown")
    site.accountant.action(recovery(made))
    assert [one.mechanism for one in site.account(of).incidents] == ["eviction_restart"]


@pytest.mark.parametrize("more", [{"state": "escalated"}, {"stopped": False}, {"dry_run": True}])
def test_an_unanswered_call_proves_nothing_else(more: dict[str, object]) -> None:
    site, of = Site(), incident()
    made = site.decided(of)
    site.commanded(made, step="restart", status="unknown")
    site.accountant.action(recovery(made, **more))
    assert [one.mechanism for one in site.account(of).incidents] == ["restart_by_others"]


def test_what_was_given_up_and_left_to_a_person_resolved_nothing() -> None:
    site, of = Site(), incident()
    made = site.decided(of)
    site.commanded(made, step="drain")
    site.accountant.action(recovery(made, state="escalated"))
    (row,) = site.account(of).incidents
    assert row.mechanism == "restart_by_others"
    assert row.phases["drain"] == 7


def update(state: UpdateState, decision: str, undoes: str = "") -> Update:
    return Update(
        id="u", job="j1", versions={"code": "v2"}, before={}, urgent=True, state=state,
        asked_at=T0 + 90, forced_at=T0 + 90, at=T0 + 210, by="otto", reason="", decision=decision,
        joined_at=T0 + 150, ran_at=T0 + 200, undoes=undoes,
    )  # fmt: skip


def ordered(site: Site, rung: str = UPDATE_RUNG) -> None:
    """The restart that the update gets for itself."""
    verdict = Verdict("restart", "update", [], "now", T0 + 95, rung)
    site.accountant.action(Decision(
        id="own", incident="", rev=0, at=T0 + 95, verdict=verdict, mode="approve", rails=[],
        state="approved", reason="update u by otto", by="otto", job="j1",
    ))  # fmt: skip


@pytest.mark.parametrize(("undoes", "mechanism"), [("", "hot_update"), ("t", "rollback")])
def test_a_restart_for_an_update_is_planned_and_no_failure(
    undoes: str, mechanism: Mechanism
) -> None:
    site = Site()
    ordered(site)
    site.accountant.action(update("matched", "own", undoes))
    account = site.account()
    time = account.fleet
    assert (time.interruptions, time.planned, time.restarts, time.mtbf_s) == (0, 1, 1, None)
    assert [one.mechanism for one in account.mechanisms] == [mechanism]
    assert [(one.state, one.count) for one in account.updates] == [("matched", 1)]


def test_an_update_that_joined_a_faults_restart_plans_nothing() -> None:
    site, of = Site(), incident()
    site.commanded(site.decided(of), step="restart")
    site.accountant.action(update("matched", "d"))
    account = site.account(of)
    assert (account.fleet.interruptions, account.fleet.planned) == (1, 0)
    assert [one.mechanism for one in account.mechanisms] == ["eviction_restart"]


# -- every no


def test_equal_reasons_are_one_whatever_their_numbers_and_names() -> None:
    site = Site()
    for number, node in enumerate(("n1", "n2", "n12")):
        reason = f"budget: {node} would be {number + 2} of 2 an hour"
        site.decided(incident(node=node), "refused", ("budget",), reason, name=f"d{number}")
    (row,) = site.account().decided
    assert (row.state, row.reason, row.count) == (
        "refused", "budget: … would be N of N an hour", 3,
    )  # fmt: skip


def test_a_decision_counts_once_in_its_last_state() -> None:
    site = Site()
    first = site.decided(incident(), "waiting")
    site.accountant.action(msgspec.structs.replace(first, state="expired", revision=1))
    site.accountant.action(first)  # the older word, once more
    account = site.account()
    assert [(one.state, one.count) for one in account.decided] == [("expired", 1)]
    assert [one.state for one in account.decisions] == ["expired"]


def test_rails_are_counted_each_and_who_was_first() -> None:
    site = Site()
    site.decided(incident(), "refused", ("pause", "budget"), name="d1")
    site.decided(incident(), "refused", ("budget", "budget"), name="d2")
    rails = {one.rail: (one.count, one.first) for one in site.account().rails}
    assert rails == {"pause": (1, 1), "budget": (2, 1)}


def test_requests_that_were_refused_say_why() -> None:
    site = Site()
    for number in range(3):
        site.asked("approve", f"x{number}", accepted=False, reason=f"x{number} expired at {number}")
    site.asked("pause", "")
    rows = [(one.verb, one.accepted, one.reason, one.count) for one in site.account().requests]
    assert rows == [("approve", False, "… expired at N", 3), ("pause", True, "", 1)]


def test_thousands_of_different_reasons_stay_a_few_rows() -> None:
    site = Site()
    for number in range(700):
        word = "".join(chr(97 + int(digit)) for digit in str(number))
        site.decided(incident(), "refused", (), f"because {word}", name=f"d{number}")
    rows = site.account().decided
    assert len(rows) <= 502
    assert sum(one.count for one in rows) == 700


# -- lemons


def lemon_rows(*incidents: Incident, site: Site | None = None) -> list[Lemon]:
    return (site or Site()).account(*incidents).lemons


KINDS: tuple[Kind, ...] = ("gpu_memory", "nic_fault", "host", "nvlink_fault")


def test_h17_four_jobs_in_ten_days_with_four_causes_are_a_lemon() -> None:
    site = Site()
    failing = [
        incident(f"i{n}", at_s=n * 3 * DAY_S, closed_s=n * 3 * DAY_S + 60, job=f"job{n}", kind=kind)
        for n, kind in enumerate(KINDS)
    ]
    (lemon,) = lemon_rows(*failing, incident("once", node="n2", job="job1"), site=site)
    assert (lemon.node, lemon.is_lemon) == ("n1", True)
    assert (lemon.incidents, lemon.jobs, lemon.kinds) == (4, 4, sorted(KINDS))
    assert lemon.isolated is None  # nobody knows: there is no log of actions
    assert lemon.xids is None  # nor any of a kernel


def test_a_lemons_failures_and_isolations_are_counted() -> None:
    site = Site()
    event = Event(at=T0 + 105, node="n1", source="kernel", started_at=T0, seq=0, type="xid",
                  text="Xid 79", severity="critical", boot_id="b", kmsg_seq=1)  # fmt: skip
    for _ in range(2):  # the same line, read twice
        site.accountant.telemetry(event, T0 + 105)
    made = site.decided(incident())
    for step in ("drain", "restart"):
        site.commanded(made, step=step)
    (lemon,) = lemon_rows(incident(), incident("b", at_s=600.0, job="other"), site=site)
    assert (lemon.incidents, lemon.failures, lemon.isolated, lemon.xids) == (2, 1, 1, 1)
    assert not lemon.is_lemon


@pytest.mark.parametrize(
    "harmless",
    [
        incident("i", scope="leaf:l1", action="page", step=None),
        incident("i", cause="telemetry", kind="telemetry_gap", action="page", step=None),
        incident("i", step="quarantine", scope="job:j1", node="", action="page"),
        incident("i", at_s=-40 * DAY_S, closed_s=-39 * DAY_S),
    ],
    ids=["behind a switch", "our telemetry", "all of a job", "long ago"],
)
def test_not_everything_that_names_a_node_blames_it(harmless: Incident) -> None:
    more = [msgspec.structs.replace(harmless, id=f"i{n}", job=f"j{n}") for n in range(5)]
    assert lemon_rows(*more) == []


def test_false_alarms_make_no_lemon() -> None:
    site = Site()
    for name in ("a", "b"):
        site.asked("false_alarm", name)
    assert lemon_rows(incident(), incident("b"), site=site) == []


def test_the_list_of_lemons_is_bounded_and_the_worst_come_first() -> None:
    many = [incident(f"i{n}-{again}", node=f"n{n}", job=f"j{again}")
            for n in range(300) for again in range(3 if n == 299 else 2)]  # fmt: skip
    rows = lemon_rows(*many)
    assert len(rows) == lemon_rules.LEMONS_MAX
    assert rows[0].node == "n299"
