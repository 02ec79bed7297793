"""A slow job: with evidence on one or two nodes they go, else it is looked into."""

from __future__ import annotations

from collections.abc import Sequence

from actions.policy.case import Case, clause, isolation, said
from actions.policy.table import Branch, Rung, always
from telemetry.findings import Evidence, Verdict

UNCLEAR = "slow job with unclear evidence"


def lead(case: Case) -> str:
    """How much slower the job became."""
    symptom = case.step_time
    assert symptom is not None
    return f"The job became slow: {clause(symptom.text)}"


def _is_unclear(case: Case) -> bool:
    policy = case.policy
    many = len(case.suspects) > policy.suspects_max
    return many or case.incident.confidence < policy.confidence_min


def _unclear(case: Case) -> Verdict:
    policy, suspects = case.policy, case.suspects
    reason = (
        f"{lead(case)}, but {len(suspects)} nodes stand out at a confidence of "
        f"{case.incident.confidence:.2f} (at most {policy.suspects_max} nodes and at least "
        f"{policy.confidence_min:g} are needed to isolate): run network and GPU checks on them."
    )
    return said(case, UNCLEAR, "diagnose", reason, suspects)


def _blind(case: Case) -> Verdict:
    reason = (
        f"{lead(case)}, but {100.0 * case.context.blind_share:.0f} % of the nodes are "
        "not heard, so that the contrast with the peers proves nothing: check the suspects."
    )
    return said(case, UNCLEAR, "diagnose", reason, case.suspects)


def _has_none_free(case: Case) -> bool:
    return case.context.job_progressing is not False and case.context.replacements == 0


def _none_free(case: Case) -> Verdict:
    reason = (
        f"{lead(case)} through {', '.join(case.suspects)}, but the job still "
        "progresses and no replacement is free: page instead of stopping it."
    )
    return said(case, SLOW.name, "page", reason)


def _now(case: Case) -> Verdict:
    return isolation(case, SLOW.name, _on(case, "the job stands still"))


def _at_checkpoint(case: Case) -> Verdict:
    reason = _on(case, "the job progresses, so at its next checkpoint")
    return isolation(case, SLOW.name, reason, "at_checkpoint")


def _on(case: Case, how: str) -> str:
    return (
        f"{lead(case)}, and on {', '.join(case.suspects)}: {_joined(case.node_lines)} "
        f"(confidence {case.incident.confidence:.2f}); {how}."
    )


def _joined(lines: Sequence[Evidence]) -> str:
    """The first two lines of evidence; the rest stand in the incident."""
    return "; ".join(line.text for line in lines[:2])


def _due_s(case: Case) -> float:
    return case.incident.opened_at + case.policy.evidence_wait_s


def _wait(case: Case) -> Verdict:
    reason = (
        f"{lead(case)}, but no node stands out: most slow jobs are slow through "
        f"their own code. Wait {case.policy.evidence_wait_s:g} s for evidence."
    )
    return said(case, SLOW_ALONE.name, "none", reason, recheck_at=_due_s(case))


def _profile(case: Case) -> Verdict:
    reason = (
        f"{lead(case)}, and after {case.policy.evidence_wait_s:g} s no node stands out: "
        "profile the job, compare its stacks, and check the network in pairs."
    )
    return said(case, SLOW_ALONE.name, "diagnose", reason, step="stacks")


SLOW = Rung(
    "slow job with node evidence",
    "Is the job slower than before, and does a node show why?",
    lambda case: case.step_time is not None and bool(case.suspects and case.node_lines),
    (
        Branch(
            "more than {policy.suspects_max} nodes, or a confidence under "
            "{policy.confidence_min:g}",
            "network and GPU checks on them",
            _is_unclear,
            _unclear,
        ),
        Branch(
            "more than {policy.blind_share_max:.0%} of the nodes are not heard",
            "check the suspects",
            lambda case: case.context.blind_share > case.policy.blind_share_max,
            _blind,
        ),
        Branch("the job progresses and no replacement is free", "page", _has_none_free, _none_free),
        Branch(
            "the job stands still",
            "isolate and restart now",
            lambda case: case.context.job_progressing is False,
            _now,
        ),
        Branch("else", "isolate and restart at the next checkpoint", always, _at_checkpoint),
    ),
)
SLOW_ALONE = Rung(
    "slow job without suspect",
    "Is the job slower than before, and shows no node why?",
    lambda case: case.step_time is not None,
    (
        Branch(
            "for less than {policy.evidence_wait_s:g} s",
            "wait for evidence",
            lambda case: case.now_s < _due_s(case),
            _wait,
        ),
        Branch("else", "profile, compare stacks, check the network in pairs", always, _profile),
    ),
)
