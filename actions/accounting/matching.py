"""Which incident explains which interruption, and which decision and commands are an incident's."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from actions.accounting.deeds import Course, Deed, Deeds
from actions.accounting.interruptions import Interruption
from actions.accounting.phases import SLACK_S, explains
from actions.accounting.productivity import JobTime
from actions.accounting.stories import Story
from telemetry.actions import Request
from telemetry.findings import ACTING, Kind

STILL_S = 60.0
TRIED_MAX = 500  # incidents of one job that are compared with one interruption
_STOPPING: frozenset[Kind] = frozenset({"job_hang", "user_error", "gpu_lost", "node_silent"})


def by_job(stories: Sequence[Story]) -> dict[str, list[Story]]:
    """Incidents of each job; those of our own telemetry stop none."""
    found: dict[str, list[Story]] = {}
    for story in stories:
        if story.job and story.cause != "telemetry":
            found.setdefault(story.job, []).append(story)
    return found


def set_planned_aside(one: JobTime, ordered_at: Sequence[float]) -> None:
    """Restarts that somebody wanted are no failures; each order is of one interruption.

    ordered_at  when the restart that runs an update was ordered, the job being stopped by then
    """
    for at in ordered_at:
        for stop in one.interruptions:
            until_s = stop.first_ended_at
            if stop.at - SLACK_S <= at and (until_s is None or at <= until_s + SLACK_S):
                one.interruptions.remove(stop)
                one.planned.append(stop)
                break


def add_standstill(one: JobTime, stories: Sequence[Story], until_s: float) -> None:
    """A job that an incident stopped and nobody started anew is interrupted too."""
    last_at = one.life.last_at
    if last_at is None or until_s - last_at < STILL_S:
        return
    newest = one.life.interruptions[-1] if one.life.interruptions else None
    if newest is not None and newest.awaits_steps:
        return
    resumed_at = None if newest is None else newest.first_ended_at
    since_s = max(last_at - SLACK_S, resumed_at or 0.0)  # an older one explains the stop before
    for story in stories:
        stops = story.kind in _STOPPING or story.acted_at is not None
        if stops and story.opened_at >= since_s and _is_open_after(story, last_at):
            stop = Interruption(stopped_at=last_at, restarts=0)
            one.life.interruptions.append(stop)
            one.interruptions.append(stop)
            return


def _is_open_after(story: Story, at: float) -> bool:
    return story.closed_at is None or story.closed_at > at


def explanation(
    stop: Interruption, stories: Sequence[Story], taken: Container[str]
) -> Story | None:
    """The incident that fits best: one that wanted something done, not yet taken, the nearest."""
    fitting = [story for story in stories[-TRIED_MAX:] if explains(story, stop)]
    if not fitting:
        return None
    return min(fitting, key=lambda one: (
        one.id in taken, one.acted_at is None, abs(one.opened_at - stop.at), one.id,
    ))  # fmt: skip


def course_of(deeds: Deeds, story: Story) -> Course | None:
    """The decision that counts: one that was carried out, else approved, else one that acts."""
    courses = [one for one in deeds.courses_of(story.id) if one.newest.verdict.action in ACTING]
    if not courses:
        return None

    def rank(one: Course) -> tuple[bool, bool]:
        done = any(deed.is_real for deed in deeds.deeds_of(one.newest.id))
        return not done, one.approved_at is None

    return min(courses, key=rank)


def done_for(deeds: Deeds, story: Story) -> list[tuple[Course, Deed]]:
    """What was really done for the incident, oldest first."""
    found = [
        (course, deed)
        for course in deeds.courses_of(story.id)
        for deed in deeds.deeds_of(course.newest.id)
        if deed.is_real
    ]
    return sorted(found, key=lambda one: one[1].command.intent_at)


class Hands:
    """What people did themselves: nodes that they took out, and steps of theirs that worked."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._isolated: dict[str, list[float]] = {}
        self._worked: set[str] = set()
        self.false_alarms: set[str] = set()
        for one in requests:
            if not one.accepted:
                continue
            if one.verb == "isolate":
                self._isolated.setdefault(one.target, []).append(one.at)
            elif one.verb == "false_alarm":
                self.false_alarms.add(one.target)
            elif one.verb == "tried" and one.attempt is not None and one.attempt.worked:
                self._worked.add(one.target)

    def resolved(self, story: Story) -> bool:
        """Whether a person took out a suspect while it was open, or told of what worked."""
        end_s = story.closed_at if story.closed_at is not None else float("inf")
        nodes = dict.fromkeys((*story.suspects, *story.blamed))
        times = [at for node in nodes for at in self._isolated.get(node, ())]
        return story.id in self._worked or any(story.opened_at <= at <= end_s for at in times)
