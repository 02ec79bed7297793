"""What was tried for a job: what the ladder asked for, and what came of it where that is known.

An eviction was made where none of its nodes works for the job any more. Of everything else only
what a Control record tells is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from telemetry.attempts import Attempt, Step
from telemetry.findings import Verdict

if TYPE_CHECKING:
    from streams.fold import Fold

JOBS_MAX = 1_000
ATTEMPTS_MAX = 50  # of a job
WORKED_S = 600.0  # a job that still ends steps so long after an eviction: it worked
EVICTIONS: frozenset[Step] = frozenset({"eviction", "checked_eviction"})
Attempts = dict[str, list[Attempt]]  # by job


def asked_for(attempts: Attempts, job: str, incident: str, verdict: Verdict) -> None:
    """The ladder asked for a step."""
    if not job or verdict.step is None:
        return
    nodes = list(verdict.targets) if verdict.step in EVICTIONS else None
    _keep(attempts, job, Attempt(step=verdict.step, at=verdict.at, incident=incident, nodes=nodes))


def told(attempts: Attempts, job: str, incident: str, attempt: Attempt, now: float) -> None:
    """Somebody says that a step was made, or what became of it; replaces what was asked for."""
    known = attempts.get(job, [])
    place = next(
        (
            place
            for place in reversed(range(len(known)))
            if (known[place].step, known[place].incident) == (attempt.step, incident)
        ),
        None,
    )
    before = None if place is None else known[place]
    if place is not None:
        del known[place]
    nodes = attempt.nodes if attempt.nodes is not None or before is None else before.nodes
    at = now if before is None or not before.told else before.at
    said = msgspec.structs.replace(attempt, incident=incident, told=True, nodes=nodes, at=at)
    _keep(attempts, job, said)


def settle(attempts: Attempts, job: str, incident: str) -> None:
    """The ladder saw that the newest eviction for the incident worked: that stays so."""
    known = attempts.get(job, [])
    for place in reversed(range(len(known))):
        tried = known[place]
        if tried.incident == incident and tried.step in EVICTIONS:
            if not tried.told:
                known[place] = msgspec.structs.replace(tried, told=True, worked=True)
            return


def merged(attempts: Attempts, job: str, younger: str, elder: str) -> None:
    """What was tried for a story that was merged was tried for the elder."""
    if job in attempts:
        attempts[job] = [
            msgspec.structs.replace(tried, incident=elder) if tried.incident == younger else tried
            for tried in attempts[job]
        ]


def known_of(fold: Fold, job: str) -> list[Attempt]:
    """The job's attempts at the fold's `now`, with what the inventory and its steps show."""
    attempts = fold.judge.docket.attempts.get(job, [])
    if not attempts:
        return []
    nodes = fold.inventory.job_nodes(job, fold.now)
    return [_seen(fold, job, tried, nodes) for tried in attempts]


def _seen(fold: Fold, job: str, tried: Attempt, job_nodes: Sequence[str]) -> Attempt:
    if tried.told or tried.step not in EVICTIONS or not tried.nodes or not job_nodes:
        return tried
    if set(tried.nodes) & set(job_nodes):
        return tried
    known = fold.progress.jobs.get(job)
    runs = known is not None and known.ended_at >= tried.at + WORKED_S
    works = True if runs and fold.progress.progressing(job, fold.now) else None
    return msgspec.structs.replace(tried, told=True, worked=works)


def _keep(attempts: Attempts, job: str, attempt: Attempt) -> None:
    """Newest last, in the job and among the jobs; bounded."""
    of_job = attempts.pop(job, [])
    of_job.append(attempt)
    attempts[job] = of_job[-ATTEMPTS_MAX:]
    while len(attempts) > JOBS_MAX:
        del attempts[next(iter(attempts))]
