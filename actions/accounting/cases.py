"""Incidents with all that belongs to them: interruption, decision, commands, how they ended."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from actions.accounting.deeds import Course, Deed, Deeds
from actions.accounting.interruptions import Interruption
from actions.accounting.matching import Hands, course_of, done_for
from actions.accounting.mechanisms import mechanism_of
from actions.accounting.phases import Carried, diagnosis_wait_s, phases_of, recovery_of
from actions.accounting.productivity import JobTime
from actions.accounting.stories import Story
from telemetry.accounts import IncidentAccount, Mechanism, Phase, Spread

PHASES: tuple[Phase, ...] = (
    "detect", "decide", "approval", "act", "recover", "drain", "stop", "clean", "replace", "start",
    "down", "load", "first_step", "recompute", "diagnosis_wait",
)  # fmt: skip
OF_STOPS: frozenset[Phase] = frozenset(
    {"recover", "down", "load", "first_step", "recompute", "diagnosis_wait"}
)
OF_COMMANDS: frozenset[Phase] = frozenset({"act", "drain", "stop", "clean", "replace", "start"})


class Cases:
    """Made of interruptions first, then asked for each incident.

    stops   incident -> the first interruption that it explains
    """

    def __init__(self, deeds: Deeds) -> None:
        self.deeds = deeds
        self.hands = Hands(deeds.requests.values())
        self.stops: dict[str, Interruption] = {}
        self._alone: list[dict[Phase, float]] = []  # phases of stops that are no incident's own

    def add(self, job: JobTime, stop: Interruption, story: Story | None) -> None:
        """An interruption of a job, and the incident that explains it, None where none does."""
        if story is None:
            job.waits.append(None)
            self._alone.append(recovery_of(stop))
            return
        course = course_of(self.deeds, story)
        job.waits.append(
            diagnosis_wait_s(stop, story.acted_at if course is None else course.decided_at)
        )
        if story.id in self.stops:
            self._alone.append(recovery_of(stop))
        else:
            self.stops[story.id] = stop

    def row(self, story: Story) -> IncidentAccount:
        """One incident as it is shown."""
        course = course_of(self.deeds, story)
        done = done_for(self.deeds, story)
        stop = self.stops.get(story.id)
        is_false = story.id in self.hands.false_alarms
        return IncidentAccount(
            id=story.id, job=story.job, scope=story.scope, kind=story.kind, cause=story.cause,
            onset=story.onset, opened_at=story.opened_at, closed_at=story.closed_at,
            decision="" if course is None else course.newest.state,
            mechanism=None if is_false else self._mechanism(story),
            final_cause=story.final_cause, false_alarm=is_false,
            phases=phases_of(story, course, self._carried(done), stop),
        )  # fmt: skip

    def _carried(self, done: Sequence[tuple[Course, Deed]]) -> Carried:
        """All that was done, and the recovery of the last decision that had one."""
        known = (self.deeds.recoveries.get(course.newest.id) for course, _ in reversed(done))
        recovery = next((one for one in known if one is not None), None)
        return Carried([deed for _, deed in done], recovery)

    def _mechanism(self, story: Story) -> Mechanism | None:
        """None while it is open, and without the log of actions, where nobody knows who acted."""
        if story.closed_at is None or self.deeds.records == 0:
            return None
        stop = self.stops.get(story.id)
        done = [(course, deed) for course, deed in done_for(self.deeds, story)
                if not self._is_escalated(course)]  # fmt: skip
        return mechanism_of(
            done,
            by_hand=self.hands.resolved(story),
            restarted=stop is not None and stop.restarts > 0 and not stop.awaits_steps,
        )

    def _is_escalated(self, course: Course) -> bool:
        """A person had to go on from where we stopped."""
        recovery = self.deeds.recoveries.get(course.newest.id)
        return recovery is not None and recovery.state == "escalated"

    def spreads(
        self, rows: Sequence[IncidentAccount], explaining: Sequence[IncidentAccount]
    ) -> list[Spread]:
        """Each phase over all incidents, those of recovery over all interruptions.

        explaining  the incidents of `stops`, which may have opened before the period
        """
        carried_out = [row for row in rows if "act" in row.phases]
        stopped = [row.phases for row in explaining] + self._alone
        waited = [row for row in rows if "approval" in row.phases]
        found = []
        for phase in PHASES:
            if phase == "down":  # where it was ours, it has its parts
                of = [one for one in stopped if "act" not in one]
            elif phase in OF_STOPS:
                of = stopped
            elif phase in OF_COMMANDS:
                of = [row.phases for row in carried_out]
            else:
                of = [row.phases for row in (waited if phase == "approval" else rows)]
            found.append(spread(phase, [one[phase] for one in of if phase in one], len(of)))
        return found


def spread(phase: Phase, seconds: Sequence[float], of: int) -> Spread:
    """Mean, median and most of what is known."""
    if not seconds:
        return Spread(phase=phase, count=0, of=of, mean_s=None, median_s=None, max_s=None)
    return Spread(
        phase=phase, count=len(seconds), of=of, mean_s=fmean(seconds), median_s=median(seconds),
        max_s=max(seconds),
    )  # fmt: skip
