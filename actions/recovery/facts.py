"""What there is to be seen of a job that is brought back: out of incidents, scheduler and site."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from actions.ports import JobFacts
from actions.rails import is_said
from telemetry.actions import Decision, Preconditions, Recovery
from telemetry.findings import Incident, Kind

# The scheduler's words: those of Slurm, and what others say for them.
RUNNING = frozenset({"RUNNING"})
EXITED = frozenset({"FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL"})
ENDED = frozenset({"COMPLETED", "CANCELLED", "TIMEOUT", "DEADLINE"})
STANDSTILL: frozenset[Kind] = frozenset({"job_hang"})


def over(decision: Decision, incident: Incident | None) -> str:
    """Why nothing is to be done for it any more; "" where it is not so."""
    if not decision.incident:
        return ""
    if incident is None:
        return "its incident is no longer known"
    if incident.merged_into:
        return f"the incident was merged into {incident.merged_into}"
    if incident.closed_at is not None:
        return "the incident was closed"
    return "" if is_said(decision.verdict, incident) else "the ladder no longer says it"


def given_back(recovery: Recovery, released: Mapping[str, float]) -> str:
    """Whether a person gave a target back since: their word ends it.

    released  node -> when, Unix seconds
    """
    nodes = [node for node in recovery.targets if released.get(node, 0.0) >= recovery.began_at]
    return f"a person gave {', '.join(nodes)} back" if nodes else ""


def ended(recovery: Recovery, found: Preconditions) -> str:
    """Why the job needs no restart of ours; "" where nobody knows of a reason.

    A job that failed still does: its exit is the trigger. One that we stopped does until it runs
    again: that it ended was us.
    """
    state = _word(found.job_state)
    if recovery.stopped and state not in RUNNING:
        return ""
    if state in ENDED:
        return f"the job ended by itself: {state}"
    if recovery.run is not None and found.attempt is not None and found.attempt != recovery.run:
        return f"somebody else restarted the job: run {found.attempt} instead of {recovery.run}"
    if recovery.stopped:  # within its allocation: only its launcher knows
        return ""
    if state in RUNNING and found.job_nodes and recovery.targets \
            and not set(found.job_nodes) & set(recovery.targets):  # fmt: skip
        return "the job no longer runs on any of the targets"
    return ""


def exited(found: Preconditions) -> bool:
    """Whether a process of the job ended, and the job with it."""
    return _word(found.job_state) in EXITED


def runs(found: Preconditions) -> bool | None:
    """Whether the job runs; None where the scheduler says nothing."""
    state = _word(found.job_state)
    return None if not state else state in RUNNING


def goes_on(found: Preconditions, excluded: Collection[str]) -> bool:
    """Whether a job that was submitted again is there under its new id, and not where it was."""
    return bool(found.job_state) and not set(excluded) & set(found.job_nodes)


def replacements(found: Preconditions, facts: JobFacts) -> int | None:
    """Nodes that can take the place of what goes: free ones, and the job's own spare ones."""
    if found.job_spares is None:
        return facts.replacements
    return (facts.replacements or 0) + found.job_spares


def stands_still(job: str, incidents: Iterable[Incident], facts: JobFacts) -> bool:
    """Whether the job's communication timed out: an open incident says that it hangs."""
    return facts.stands_still is True or any(
        one.job == job and one.kind in STANDSTILL and one.closed_at is None and not one.merged_into
        for one in incidents
        if job
    )


def _word(state: str) -> str:
    """The first word of a compound state: "CANCELLED by 1000", "RUNNING+CONFIGURING"."""
    words = state.replace("+", " ").split()
    return words[0].upper() if words else ""
