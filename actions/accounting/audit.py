"""Every "no", and every yes, counted: decisions, rails, requests, commands."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

from actions.accounting.deeds import Course, Deed
from telemetry.accounts import (
    Decided,
    DecisionCount,
    OutcomeCount,
    RailCount,
    RecoveryCount,
    RequestCount,
    UpdateCount,
)
from telemetry.actions import Decision, Recovery, Request, Update

REASONS_MAX = 500  # different ones; the rest is one row
OTHER = "other reasons"
REASON_MAX = 200
Key = TypeVar("Key", bound=Hashable)
_NUMBER = re.compile(r"\d[\d.,:]*")


def decided(courses: Iterable[Course]) -> list[DecisionCount]:
    """Decisions by their last state and reason, the most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    for course in courses:
        said = course.newest
        key = (said.state, pattern(said))
        counts[key if key in counts or len(counts) < REASONS_MAX else (said.state, OTHER)] += 1
    return [DecisionCount(state, reason, count)  # type: ignore[arg-type] # a decision's own state
            for (state, reason), count in _most_first(counts)]  # fmt: skip


def pattern(said: Decision) -> str:
    """The reason without its numbers and names, so that equal reasons are one."""
    reason = said.reason
    names = (*said.verdict.targets, said.job, said.incident, said.id)
    if said.by != "rails":
        names = (*names, said.by)
    for name in sorted({name for name in names if name}, key=len, reverse=True):
        reason = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "…", reason)
    reason = re.sub(r"…(, …)+|…( …)+", "…", reason)
    return _NUMBER.sub("N", reason)[:REASON_MAX]


def rails(courses: Iterable[Course]) -> list[RailCount]:
    """How often each rail did not let pass."""
    counts: Counter[str] = Counter()
    first: Counter[str] = Counter()
    for course in courses:
        stopping = list(dict.fromkeys(rail.name for rail in course.newest.rails if not rail.passed))
        counts.update(stopping)
        first.update(stopping[:1])
    return [RailCount(name, count, first[name]) for name, count in _most_first(counts)]


def requests(said: Iterable[Request]) -> list[RequestCount]:
    """What people asked for; taken ones by their verb, refused ones by their reason too."""
    counts: Counter[tuple[str, bool, str]] = Counter()
    for one in said:
        reason = "" if one.accepted else _NUMBER.sub("N", _without(one.reason, one))[:REASON_MAX]
        key = (one.verb, one.accepted, reason)
        if key not in counts and len(counts) >= REASONS_MAX:
            key = (one.verb, one.accepted, OTHER)
        counts[key] += 1
    return [RequestCount(verb, accepted, reason, count)  # type: ignore[arg-type] # a request's verb
            for (verb, accepted, reason), count in _most_first(counts)]  # fmt: skip


def _without(reason: str, one: Request) -> str:
    reason = reason.replace(one.target, "…") if one.target else reason
    return re.sub(r"\b[0-9a-f]{16}\b", "…", reason)  # ids of ours


def outcomes(deeds: Iterable[Deed]) -> list[OutcomeCount]:
    """What became of commands; `open` of which nobody said."""
    counts: Counter[tuple[str, str, bool]] = Counter()
    for deed in deeds:
        status = "open" if deed.outcome is None else deed.outcome.status
        counts[deed.command.step or deed.command.action, status, deed.command.dry_run] += 1
    return [OutcomeCount(step, status, dry_run, count)  # type: ignore[arg-type] # an outcome's own
            for (step, status, dry_run), count in _most_first(counts)]  # fmt: skip


def recoveries(said: Iterable[Recovery]) -> list[RecoveryCount]:
    """How far jobs were brought back."""
    counts = Counter((one.state, one.mode, one.dry_run) for one in said)
    return [RecoveryCount(*key, count) for key, count in _most_first(counts)]


def updates(said: Iterable[Update]) -> list[UpdateCount]:
    """What became of updates."""
    counts = Counter(one.state for one in said)
    return [UpdateCount(state, count) for state, count in _most_first(counts)]


def listed(courses: Iterable[Course]) -> list[Decided]:
    """Each decision in its last word, oldest first."""
    rows = [
        Decided(
            at=course.newest.at, id=course.newest.id, incident=course.newest.incident,
            job=course.newest.job, action=course.newest.verdict.action,
            targets=course.newest.verdict.targets, mode=course.newest.mode,
            state=course.newest.state, reason=course.newest.reason, by=course.newest.by,
            refused_by=[rail.name for rail in course.newest.rails],
        )
        for course in courses
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (row.at, row.id))


def _most_first(counts: Counter[Key]) -> list[tuple[Key, int]]:
    return sorted(counts.items(), key=lambda one: (-one[1], str(one[0])))
