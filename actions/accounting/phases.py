"""How long each part of an incident took: detect, decide, act, recover; pure, from what is known.

A phase whose begin or end nobody told is not in the result: missing is never 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from actions.accounting.deeds import Course, Deed
from actions.accounting.interruptions import Interruption
from actions.accounting.stories import Story
from telemetry.accounts import Phase
from telemetry.actions import CommandStep

SLACK_S = 300.0  # evidence and steps are told by different clocks
_STEPS: tuple[tuple[CommandStep, Phase], ...] = (
    ("stop", "stop"), ("clean", "clean"), ("replace", "replace"), ("restart", "start"),
)  # fmt: skip


def phases_of(
    story: Story, course: Course | None, deeds: Sequence[Deed], stop: Interruption | None
) -> dict[Phase, float]:
    """Seconds of each phase that is known.

    course  the decision that counts: the approved one, else the first that wanted something done
    deeds   its commands, oldest first
    stop    the interruption that the incident explains
    """
    found: dict[Phase, float | None] = {"detect": _between(story.onset, story.opened_at)}
    decided_at = story.acted_at if course is None else course.decided_at
    found["decide"] = _between(story.opened_at, decided_at)
    if course is not None:
        found["approval"] = _between(course.waited_from, course.approved_at)
    real = [deed for deed in deeds if deed.is_real]
    intent_at = real[0].command.intent_at if real else None
    if real:
        found["act"] = _between(decided_at, intent_at)
        found.update(_carried_out(real))
    if stop is not None:
        found.update(_recovery(stop, real, intent_at))
        found["diagnosis_wait"] = diagnosis_wait_s(stop, decided_at)
    return {phase: took_s for phase, took_s in found.items() if took_s is not None}


def recovery_of(stop: Interruption) -> dict[Phase, float]:
    """The phases of a restart that was not ours."""
    return {phase: took_s for phase, took_s in _recovery(stop, (), None).items()
            if took_s is not None}  # fmt: skip


def diagnosis_wait_s(stop: Interruption, decided_at: float | None) -> float | None:
    """How long the job stood still until it was decided what to do."""
    if stop.stopped_at is None or decided_at is None:
        return None
    until_s = decided_at if stop.first_began_at is None else min(decided_at, stop.first_began_at)
    return max(0.0, until_s - stop.stopped_at)


def _carried_out(real: Sequence[Deed]) -> dict[Phase, float | None]:
    """From the first intent of a step to its last outcome; attempts in between count."""
    found: dict[Phase, float | None] = {}
    for step, phase in _STEPS:
        mine = [deed for deed in real if deed.command.step == step]
        if mine:
            ended = [deed.outcome.at for deed in mine if deed.outcome is not None]
            found[phase] = _between(mine[0].command.intent_at, max(ended))
    return found


def _recovery(
    stop: Interruption, real: Sequence[Deed], intent_at: float | None
) -> dict[Phase, float | None]:
    """From our first intent, or, where the restart was not ours, from the stop."""
    restarted = [d.outcome.at for d in real if d.command.step == "restart" and d.outcome]
    start_at = max(restarted) if restarted else stop.started_at
    found: dict[Phase, float | None] = {
        "recover": _between(intent_at if intent_at is not None else stop.stopped_at,
                            stop.first_ended_at),
        "load": _between(start_at, stop.first_began_at),
        "first_step": _between(stop.first_began_at, stop.first_ended_at),
        "recompute": _between(stop.first_ended_at, stop.recovered_at),
    }  # fmt: skip
    if intent_at is None:
        found["down"] = _between(stop.stopped_at, stop.started_at)
    return found


def explains(story: Story, stop: Interruption) -> bool:
    """Whether the incident was open, or at least had begun, while the job stood still."""
    begun_s = min(story.onset, story.opened_at)
    until_s = stop.first_ended_at
    if until_s is not None and begun_s > until_s + SLACK_S:
        return False
    since_s = stop.stopped_at if stop.stopped_at is not None else stop.at
    return story.closed_at is None or story.closed_at >= since_s - SLACK_S


def _between(from_s: float | None, to_s: float | None) -> float | None:
    """0 where clocks disagree about the order; None where one end is not known."""
    return None if from_s is None or to_s is None else max(0.0, to_s - from_s)
