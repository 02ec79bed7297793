"""How long each part of an incident took: detect, decide, act, recover; pure, from what is known.

A phase whose begin or end nobody told is not in the result: missing is never 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from actions.accounting.deeds import Course, Deed
from actions.accounting.interruptions import Interruption
from actions.accounting.stories import Story
from telemetry.accounts import Phase
from telemetry.actions import CommandStep, Recovery, RecoveryState

SLACK_S = 300.0  # evidence and steps are told by different clocks
_STEPS: tuple[tuple[CommandStep, RecoveryState, Phase], ...] = (
    ("drain", "suspect", "drain"), ("stop", "stopping", "stop"), ("clean", "cleaning", "clean"),
    ("replace", "replacing", "replace"), ("restart", "restarting", "start"),
)  # fmt: skip


class Carried(msgspec.Struct, frozen=True):
    """How a decision was carried out: its commands, and its recovery where it had one."""

    deeds: Sequence[Deed] = ()
    recovery: Recovery | None = None

    @property
    def begun_at(self) -> float | None:
        """The first intent of what was really done."""
        return self.deeds[0].command.intent_at if self.deeds else None

    @property
    def started_at(self) -> float | None:
        """The job runs again: the recovery read it back, else the restart was done."""
        runs = self._left("restarting")
        done = [deed.outcome.at for deed in self.deeds
                if deed.command.step == "restart" and deed.outcome is not None]  # fmt: skip
        return runs if runs is not None else max(done, default=None)

    def step_s(self, step: CommandStep, state: RecoveryState) -> float | None:
        """How long one step took, all attempts together."""
        if self.recovery is not None and not self.recovery.dry_run:
            passed = [one for one in self.recovery.history if one.state == state]
            if passed:
                return sum(max(0.0, one.until - one.since) for one in passed)
        mine = [deed for deed in self.deeds if deed.command.step == step]
        ended = [deed.outcome.at for deed in mine if deed.outcome is not None]
        return _between(mine[0].command.intent_at, max(ended)) if ended else None

    def _left(self, state: RecoveryState) -> float | None:
        if self.recovery is None or self.recovery.dry_run or self.recovery.state != "running":
            return None
        return max((one.until for one in self.recovery.history if one.state == state), default=None)


def phases_of(
    story: Story, course: Course | None, carried: Carried, stop: Interruption | None
) -> dict[Phase, float]:
    """Seconds of each phase that is known.

    course  the decision that counts: the approved one, else the first that wanted something done
    carried what was really done for it
    stop    the interruption that the incident explains
    """
    found: dict[Phase, float | None] = {"detect": _between(story.onset, story.opened_at)}
    decided_at = story.acted_at if course is None else course.decided_at
    found["decide"] = _between(story.opened_at, decided_at)
    if course is not None:
        found["approval"] = _between(course.waited_from, course.approved_at)
    if carried.begun_at is not None:
        found["act"] = _between(decided_at, carried.begun_at)
        for step, state, phase in _STEPS:
            found[phase] = carried.step_s(step, state)
    if stop is not None:
        found.update(_recovery(stop, carried))
        found["diagnosis_wait"] = diagnosis_wait_s(stop, decided_at)
    return {phase: took_s for phase, took_s in found.items() if took_s is not None}


def recovery_of(stop: Interruption) -> dict[Phase, float]:
    """The phases of a restart that was not ours."""
    return {phase: took_s for phase, took_s in _recovery(stop, Carried()).items()
            if took_s is not None}  # fmt: skip


def diagnosis_wait_s(stop: Interruption, decided_at: float | None) -> float | None:
    """How long the job stood still until it was decided what to do."""
    if stop.stopped_at is None or decided_at is None:
        return None
    until_s = decided_at if stop.first_began_at is None else min(decided_at, stop.first_began_at)
    return max(0.0, until_s - stop.stopped_at)


def _recovery(stop: Interruption, carried: Carried) -> dict[Phase, float | None]:
    """From our first intent, or, where the restart was not ours, from the stop."""
    ours_at, started_at = carried.begun_at, carried.started_at
    start_at = started_at if started_at is not None else stop.started_at
    found: dict[Phase, float | None] = {
        "recover": _between(ours_at if ours_at is not None else stop.stopped_at,
                            stop.first_ended_at),
        "load": _between(start_at, stop.first_began_at),
        "first_step": _between(stop.first_began_at, stop.first_ended_at),
        "recompute": _between(stop.first_ended_at, stop.recovered_at),
    }  # fmt: skip
    if ours_at is None:
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
