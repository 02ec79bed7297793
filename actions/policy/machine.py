"""Machine faults: proven by one observation, by two witnesses, or not proven."""

from __future__ import annotations

from actions.policy.case import Case, isolation, said
from actions.policy.table import Branch, Rung, always
from telemetry.findings import Kind, Verdict

STALE = "_stale"  # what the critical detector adds to what a line proves that was read late
SAME = "_same_place"  # application errors that come back at one place of one GPU
# Faults that slow a job and seldom stop it.
DEGRADING: frozenset[Kind] = frozenset({"gpu_thermal", "gpu_power", "gpu_slow", "pcie_degraded"})


def _proof(case: Case) -> str:
    return f"One observation proves this machine fault ({case.incident.kind}): {case.first_text}."


def _is_slowed(case: Case) -> bool:
    return case.incident.kind in DEGRADING and case.context.job_progressing is True


def _waits(case: Case) -> Verdict:
    reason = f"{_proof(case)} The job is slowed and not stopped, so at its next checkpoint."
    return isolation(case, CERTAIN.name, reason, "at_checkpoint")


def _at_once(case: Case) -> Verdict:
    return isolation(case, CERTAIN.name, _proof(case))


def _is_same_place(case: Case) -> bool:
    return any(line.metric.endswith(SAME) for line in case.incident.evidence)


def _same_place(case: Case) -> Verdict:
    reason = (
        f"An application error came back at one place: {case.first_text}. The job's code or "
        "this GPU: run the GPU diagnostics on it when its node is free."
    )
    return said(case, SAME_PLACE.name, "diagnose", reason, case.suspects)


def _is_lost(case: Case) -> bool:
    """A GPU that is no longer shown, and a job that stands still: two witnesses."""
    context, policy, nodes = case.context, case.policy, case.suspects
    few = 0 < len(nodes) <= policy.suspects_max and context.blind_share <= policy.blind_share_max
    stands = case.incident.kind == "gpu_lost" and context.job_progressing is False
    return stands and few and set(nodes) <= set(context.job_nodes) and not _is_old(case)


def _is_old(case: Case) -> bool:
    """Whether only a kernel line that was read late tells of it: that shows nothing of now."""
    lines = case.incident.evidence
    shown = any(line.detector == "devices" for line in lines)
    return not shown and any(line.metric.endswith(STALE) for line in lines)


def _lost(case: Case) -> Verdict:
    reason = f"{case.first_text}, and for its job {case.incident.job} no step ends any more."
    return isolation(case, LOST.name, reason)


def _uncertain(case: Case) -> Verdict:
    nodes = ", ".join(case.suspects) or "no single node"
    reason = (
        f"A sign of {case.incident.kind} on {nodes} that one event does not prove: "
        f"{case.first_text}. Page; drain it when the job allows."
    )
    return said(case, UNCERTAIN.name, "page", reason)


CERTAIN = Rung(
    "certain machine fault",
    "Does one observation prove a machine fault?",
    lambda case: case.incident.certain,
    (
        Branch(
            "it slows a job that still progresses",
            "isolate and restart at the next checkpoint",
            _is_slowed,
            _waits,
        ),
        Branch("else", "isolate and restart now, without checks", always, _at_once),
    ),
)
SAME_PLACE = Rung(
    "error at one place",
    "Does an application error come back at one place of a GPU?",
    _is_same_place,
    (Branch("yes", "run the GPU diagnostics on it", always, _same_place),),
)
LOST = Rung(
    "GPU lost and job stopped",
    "Is a GPU no longer shown, and does its job stand still?",
    _is_lost,
    (Branch("yes", "isolate and restart now", always, _lost),),
)
UNCERTAIN = Rung(
    "uncertain machine fault",
    "What is left?",
    always,
    (Branch("a sign that one event does not prove", "page", always, _uncertain),),
)
