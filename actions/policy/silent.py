"""Silence alone isolates nobody; a job that stands still besides is a second witness."""

from __future__ import annotations

from actions.policy.case import Case, isolation, said
from actions.policy.table import Branch, Rung, always
from telemetry.findings import Verdict


def _lead(case: Case) -> str:
    return f"Nobody hears it: {case.first_text}"


def _due_s(case: Case) -> float:
    return case.incident.opened_at + case.policy.silent_wait_s


def _held(case: Case) -> bool:
    """Whether few nodes are silent, all of them the job's, and most others are heard."""
    context, policy, nodes = case.context, case.policy, case.suspects
    few = 0 < len(nodes) <= policy.suspects_max and context.blind_share <= policy.blind_share_max
    return few and set(nodes) <= set(context.job_nodes)


def _stood_before(case: Case) -> bool:
    """Whether the silence cannot be why the job stands still: its code failed, or it had ended."""
    incident, context = case.incident, case.context
    since_s = min((line.onset for line in incident.evidence), default=incident.opened_at)
    still_s = context.job_still_s
    return _held(case) and (context.job_failed or (still_s is not None and still_s < since_s))


def _before(case: Case) -> Verdict:
    reason = (
        f"{_lead(case)}, but its job {case.incident.job} stood still without it: page, isolate "
        "nobody."
    )
    return said(case, SILENT.name, "page", reason)


def _wait(case: Case) -> Verdict:
    reason = (
        f"{_lead(case)}. Silence is a third state, neither healthy nor proven broken: page, and "
        f"see after {case.policy.silent_wait_s:g} s whether its job still ends steps."
    )
    return said(case, SILENT.name, "page", reason, recheck_at=_due_s(case))


def _stopped(case: Case) -> Verdict:
    reason = f"{_lead(case)}, and for its job {case.incident.job} no step ends any more."
    return isolation(case, "node silent and job stopped", reason)


def _page(case: Case) -> Verdict:
    reason = (
        f"{_lead(case)}. Silence is a third state, neither healthy nor proven broken: page, "
        "isolate nobody."
    )
    return said(case, SILENT.name, "page", reason)


SILENT = Rung(
    "node silent",
    "Does nobody hear the node?",
    lambda case: case.incident.kind == "node_silent",
    (
        Branch("its job stood still before it", "page, isolate nobody", _stood_before, _before),
        Branch(
            "for less than {policy.silent_wait_s:g} s",
            "page, and ask again after the wait",
            lambda case: _held(case) and case.now_s < _due_s(case),
            _wait,
        ),
        Branch(
            "its job stands still too",
            "isolate and restart now",
            lambda case: _held(case) and case.context.job_progressing is False,
            _stopped,
        ),
        Branch("else", "page, isolate nobody", always, _page),
    ),
)
