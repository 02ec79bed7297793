"""When a job's code changed last: as its attempts, or jobs of its name one after the other, say it.

A job whose first known attempt this is has changed nothing that anybody knows of. Jobs of one name
at one time are different jobs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from telemetry.records import Job

SERIES_MAX = 10_000


class CodeState(msgspec.Struct, frozen=True):
    """The newest attempt of a series: its code, and when that differed from the one before.

    start, end  of the attempt; None where nobody said
    """

    job: str
    code: str
    start: float | None
    end: float | None
    changed_at: float | None = None


Codes = dict[str, CodeState]  # by the jobs' name, else by id


def take(codes: Codes, jobs: Iterable[Job]) -> None:
    """What a listing, or a part of one, says."""
    for job in sorted(jobs, key=lambda one: (_start(one.start), one.id)):
        if not job.code:
            continue
        name = job.name or job.id
        known = codes.get(name)
        if known is not None and known.job != job.id and _start(job.start) < _start(known.start):
            continue  # an older job of this name, said again
        codes.pop(name, None)
        codes[name] = CodeState(job.id, job.code, job.start, job.end, _changed_at(known, job))
        if len(codes) > SERIES_MAX:
            del codes[next(iter(codes))]


def changed_at(codes: Codes, job: str) -> float | None:
    """When its code changed last, Unix seconds; None where nobody knows."""
    return next((known.changed_at for known in codes.values() if known.job == job), None)


def _changed_at(known: CodeState | None, job: Job) -> float | None:
    if known is None:
        return None
    follows = job.start is not None and known.end is not None and job.start >= known.end
    if known.job != job.id and not follows:
        return None
    return known.changed_at if known.code == job.code else job.start


def _start(start: float | None) -> float:
    return -math.inf if start is None else start
