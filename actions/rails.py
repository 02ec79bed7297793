"""What stands between a verdict and an act: every rail is asked, and each says why.

Pure: the same verdict, incident, context, settings and time give the same decision. The ladder's
verdict stands in it unchanged. A person's own isolation or release does not come here.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from actions.budgets import breaker, budgets, budgets_kept
from actions.rail_rules import (
    QUARANTINE,
    Effect,
    Question,
    Rule,
    acts,
    attempts,
    cooled,
    coverage,
    first_start,
    incident_open,
    maintenance,
    others_drain,
    paused,
    protected,
    settled,
    shadow,
    telemetry_fresh,
    undone,
    verdict_fresh,
)
from telemetry.actions import Decision, Mode, Rail, RailContext, decision_id
from telemetry.findings import ISOLATING, Incident, Verdict
from telemetry.settings import RailSettings

# Asked of everything, of whatever acts, of what takes nodes out.
_OF_ALL: tuple[tuple[Rule, Effect], ...] = ((maintenance, "refuse"), (shadow, "observe"))
_OF_ACTS: tuple[tuple[Rule, Effect], ...] = (
    (incident_open, "refuse"), (paused, "refuse"), (first_start, "observe"),
    (verdict_fresh, "refuse"), (telemetry_fresh, "refuse"), (coverage, "approve"),
)  # fmt: skip
_OF_NODES: tuple[tuple[Rule, Effect], ...] = (
    (protected, "refuse"), (others_drain, "refuse"), (undone, "refuse"), (settled, "refuse"),
)  # fmt: skip
# What the decision itself uses up: before the act it counts already.
_OF_COUNTS: tuple[tuple[Rule, Effect], ...] = (
    (cooled, "refuse"), (attempts, "refuse"), (breaker, "refuse"), (budgets, "refuse"),
)  # fmt: skip

_OF_COUNTS_AGAIN: tuple[tuple[Rule, Effect], ...] = ((budgets_kept, "refuse"),)
_OF_BREAKER: tuple[tuple[Rule, Effect], ...] = ((breaker, "refuse"),)

# What passes by itself: asked again while the verdict is fresh. What a person did is not here.
_PASSING = frozenset({
    "pause", "fresh telemetry", "fresh listing", "settled after boot", "cooldown", "breaker",
    "maintenance", "maintenance of a target",
})  # fmt: skip
_NEVER_AUTO = frozenset({"rollback", QUARANTINE})  # work is lost: never without a person
_CAUTION: tuple[Mode, ...] = ("observe", "approve", "auto")
Answer = tuple[Rail, Effect]


def decide(
    verdict: Verdict,
    incident: Incident,
    context: RailContext,
    settings: RailSettings,
    now_s: float,
) -> Decision:
    """What is to become of a verdict: noted, refused, waiting for a person, or approved.

    The first rail that refuses gives the reason; where none does, one that lowered the mode.
    """
    asked = Question(verdict, incident, context, settings, now_s)
    answers = _answers(asked, _OF_COUNTS)
    mode, lowered = _mode(asked, answers)
    made = Decision(
        id=decision_id(incident.id, verdict), incident=incident.id, rev=incident.rev, at=now_s,
        verdict=verdict, mode=mode, rails=[rail for rail, _ in answers], state="noted",
        reason="", job=incident.job,
    )  # fmt: skip
    refusal = _refusal(answers)
    wants = " ".join([asked.kind, *verdict.targets])
    if not acts(asked):
        quiet = f"; {refusal.name}: {refusal.reason}" if refusal is not None else ""
        return _as(made, f"{verdict.action}: nothing is to be done{quiet}")
    if refusal is not None:
        return _as(made, f"{wants} is refused by {refusal.name}: {refusal.reason}", "refused")
    because = f" ({lowered.name}: {lowered.reason})" if lowered is not None else ""
    if mode == "observe":
        return _as(made, f"observed only: would {wants}{because}")
    if mode == "approve":
        return _as(made, f"{wants} waits for a person{because}", "waiting")
    return _as(made, f"{wants}: all {len(made.rails)} rails let it pass", "approved")


def recheck(
    decision: Decision,
    incident: Incident | None,
    context: RailContext,
    settings: RailSettings,
    now_s: float,
) -> Decision:
    """An approved decision right before its act: as it is, or expired or refused in its next
    revision. Others are never acted on, and stay as they are.

    incident  as it stands now; None where it is no longer known

    `context.used` counts the decision itself already, and what was approved beside it: together
    they are within the budgets, or it is refused. A breaker that others opened meanwhile refuses
    too. A person's approval stands in for good coverage, and for a fresh verdict. So does, for the
    verdict, that it was begun in time: a decision that no longer expires was.
    """
    if decision.state != "approved":
        return decision
    if decision.expires_at is not None and now_s >= decision.expires_at:
        late_s = now_s - decision.expires_at
        return _next(decision, "expired", f"it expired {late_s:.0f} s ago", now_s)
    if incident is None:
        return _next(decision, "refused", "its incident is no longer known", now_s)
    if not is_said(decision.verdict, incident):
        return _next(decision, "refused", "the ladder no longer says it", now_s)
    asked = Question(decision.verdict, incident, context, settings, now_s)
    counts = _OF_COUNTS_AGAIN + (_OF_BREAKER if context.breaker_open else ())
    by_person = decision.by != "rails"
    may_be_old = by_person or decision.expires_at is None
    refusing = [
        rail
        for rail, effect in _answers(asked, counts)
        if not rail.passed
        and not (by_person and effect == "approve")
        and not (may_be_old and rail.name == "fresh verdict")
    ]
    if refusing:
        first = refusing[0]
        return _next(decision, "refused", f"{first.name}: {first.reason}", now_s)
    return decision


def is_said(verdict: Verdict, incident: Incident) -> bool:
    """Whether the ladder still says it.

    An isolation stays said; a retry is over when the ladder asks for the next step.
    """
    if verdict.action in ISOLATING:
        return verdict in (incident.verdict, *incident.verdicts)
    return verdict == (incident.verdicts[-1] if incident.verdicts else incident.verdict)


def may_change(decision: Decision) -> bool:
    """Whether rails alone refused it, and only such as pass by themselves, budgets too.

    It is worth deciding again, in its next revision, while its verdict is fresh.
    """
    refusing = [rail.name for rail in decision.rails if not rail.passed]
    passing = all(name in _PASSING or name.startswith("budget ") for name in refusing)
    return decision.state == "refused" and decision.by == "rails" and bool(refusing) and passing


def tells(decision: Decision) -> bool:
    """Whether a person is to be told: never of nothing, of maintenance, or of a rule on trial."""
    quiet = any(rail.name in ("maintenance", "shadow") and not rail.passed
                for rail in decision.rails)  # fmt: skip
    return decision.verdict.action != "none" and not quiet


def _answers(asked: Question, counts: Sequence[tuple[Rule, Effect]]) -> list[Answer]:
    rules = list(_OF_ALL)
    if acts(asked):
        rules += _OF_ACTS
    if asked.isolates:
        rules += [*_OF_NODES, *counts]
    return [(rail, effect) for rule, effect in rules for rail in rule(asked)]


def _refusal(answers: Sequence[Answer]) -> Rail | None:
    return next((r for r, effect in answers if effect == "refuse" and not r.passed), None)


def _mode(asked: Question, answers: Sequence[Answer]) -> tuple[Mode, Rail | None]:
    """The configured mode, or the more careful one that a rail asks for, and that rail."""
    settings = asked.settings
    mode: Mode = settings.mode.get(asked.kind, settings.mode_default)
    lowered: Rail | None = None
    if asked.kind in _NEVER_AUTO and mode == "auto":
        mode = "approve"
        lowered = Rail("mode", False, f"{asked.kind} is never done without a person")
    for rail, effect in answers:
        if effect == "refuse" or rail.passed:
            continue
        if _CAUTION.index(effect) < _CAUTION.index(mode):
            mode, lowered = effect, rail
    return mode, lowered


def _as(made: Decision, reason: str, state: str = "noted") -> Decision:
    return msgspec.structs.replace(made, reason=reason, state=state)


def _next(decision: Decision, state: str, reason: str, now_s: float) -> Decision:
    return msgspec.structs.replace(
        decision, state=state, reason=reason, at=now_s, by="rails", revision=decision.revision + 1
    )
