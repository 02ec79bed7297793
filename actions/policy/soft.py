"""Rungs on which no node is to blame: our own blindness, the job's code, a curve that jumped."""

from __future__ import annotations

from actions.policy.case import Case, said
from actions.policy.table import Branch, Rung, always
from telemetry.findings import Verdict


def _telemetry(case: Case) -> Verdict:
    reason = f"We are blind, the nodes may be well: {case.first_text}. Page ourselves."
    return said(case, TELEMETRY.name, "page", reason)


def _rolled_back(case: Case) -> bool:
    return case.failed("rollback") is not None


def _user_code_again(case: Case) -> Verdict:
    tried = case.failed("rollback")
    assert tried is not None
    reason = (
        f"The job's own code failed, no node is to blame: {case.first_text}. It was rolled back "
        f"{case.now_s - tried.at:.0f} s ago and fails all the same: notify the owner."
    )
    return said(case, USER_CODE.name, "page", reason)


def _changed_lately(case: Case) -> bool:
    changed_at = case.context.code_changed_at
    return changed_at is not None and case.now_s - changed_at <= case.policy.code_change_s


def _roll_back(case: Case) -> Verdict:
    changed_at = case.context.code_changed_at
    assert changed_at is not None
    reason = (
        f"The job's own code failed, no node is to blame: {case.first_text}. Its code changed "
        f"{case.now_s - changed_at:.0f} s ago (lately is within {case.policy.code_change_s:g} s): "
        "roll it back."
    )
    return said(case, USER_CODE.name, "rollback", reason, step="rollback")


def _user_code(case: Case) -> Verdict:
    reason = (
        f"The job's own code failed, no node is to blame: {case.first_text}. "
        "Notify the owner; roll the code back if it changed lately."
    )
    return said(case, USER_CODE.name, "page", reason)


def _is_spike(case: Case) -> bool:
    detectors = {line.detector for line in case.incident.evidence}
    return case.incident.kind == "loss_anomaly" and detectors == {"curves"}


def _spike(case: Case) -> Verdict:
    reason = (
        f"A curve jumped: {case.first_text}. A finite spike often passes by itself, and no "
        "curve accuses a node: notify the owner, who may roll back."
    )
    return said(case, SPIKE.name, "page", reason)


TELEMETRY = Rung(
    "telemetry",
    "Is it our own telemetry that fails?",
    lambda case: case.incident.kind == "telemetry_gap" or case.incident.cause == "telemetry",
    (Branch("yes", "page ourselves", always, _telemetry),),
)
USER_CODE = Rung(
    "user code",
    "Did the job's own code fail?",
    lambda case: case.incident.kind == "user_error",
    (
        Branch("it fails after a rollback too", "notify the owner", _rolled_back, _user_code_again),
        Branch(
            "the code changed within {policy.code_change_s:g} s",
            "roll back",
            _changed_lately,
            _roll_back,
        ),
        Branch(
            "else", "notify the owner; roll back if the code changed lately", always, _user_code
        ),
    ),
)
SPIKE = Rung(
    "loss spike",
    "Did only a curve jump?",
    _is_spike,
    (Branch("yes", "notify the owner, who may roll back", always, _spike),),
)
