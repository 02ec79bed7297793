"""What was already done about the incident: it worked, or it stands as it was said."""

from __future__ import annotations

from actions.policy.case import STANDSTILL, Case, listed, said
from actions.policy.table import Branch, Rung, always
from telemetry.attempts import Attempt, FinalCause, Step
from telemetry.findings import ISOLATING, Verdict

# What a step proves by having worked (ByteRobust): tests that passed and a retry that ran on mean
# that it passed by itself, older code that runs means the newer code.
PROVES: dict[Step, FinalCause] = {
    "retry": "transient",
    "rollback": "user_code",
    "eviction": "hardware",
    "checked_eviction": "hardware",
}
_CAUSE = {"transient": "transient", "user_code": "the job's own code", "hardware": "hardware"}


def _worked(case: Case) -> Attempt | None:
    """The newest step for this incident after which the job ended steps again, if that is all."""
    found = [
        tried
        for tried in case.context.attempts
        if tried.worked and tried.incident == case.incident.id and tried.step in PROVES
    ]
    return found[-1] if found and not _is_new(case, found[-1]) else None


def _is_new(case: Case, tried: Attempt) -> bool:
    """Whether the incident holds more than what the step can have healed.

    Of an eviction: another node. Of a retry or rollback: a sign that began after it, but for the
    standstill that each restart is.
    """
    if tried.nodes:
        return not set(case.suspects) <= set(tried.nodes)
    lines = case.incident.evidence
    return any(line.onset > tried.at and line.detector not in STANDSTILL for line in lines)


def _say_worked(case: Case) -> Verdict:
    tried = _worked(case)
    assert tried is not None
    cause = PROVES[tried.step]
    what = f"The {tried.step.replace('_', ' ')}"
    if tried.nodes:
        what += f" of {listed(tried.nodes)}"
    reason = (
        f"{what}, {case.now_s - tried.at:.0f} s ago, worked: the job ends steps again. "
        f"The final cause is {_CAUSE[cause]}."
    )
    return said(case, WORKED.name, "none", reason, final_cause=cause)


def _first(case: Case) -> Verdict | None:
    """The isolating verdict that the incident was given first."""
    given = (case.incident.verdict, *case.incident.verdicts)
    return next((verdict for verdict in given if verdict.action in ISOLATING), None)


def _is_given(case: Case) -> bool:
    """Whether a verdict already isolated all of this incident's suspects."""
    done = {line.node for line in case.context.ledger if line.incident == case.incident.id}
    return bool(done) and done.issuperset(case.suspects) and _first(case) is not None


def _repeat(case: Case) -> Verdict:
    given = _first(case)
    assert given is not None
    return given


WORKED = Rung(
    "what worked",
    "Does the job end steps again after a step that was made for this incident?",
    lambda case: _worked(case) is not None,
    (
        Branch(
            "a retry, a rollback or an eviction worked",
            "the final cause: transient, user code, hardware",
            always,
            _say_worked,
        ),
    ),
)
GIVEN = Rung(
    "already isolated",
    "Did a verdict isolate all of its suspects before?",
    _is_given,
    (Branch("yes", "the same verdict, unchanged", always, _repeat),),
)
