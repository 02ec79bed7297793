"""The accountant: records of three topics in, one `Account` of a stretch of time out.

Telemetry, incidents and actions may come one after another or mixed; each in its own order. Memory
is bounded whatever comes; what was left out is said in the notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from actions.accounting import audit
from actions.accounting.cases import Cases
from actions.accounting.deeds import Course, Deeds
from actions.accounting.jobs import Jobs
from actions.accounting.lemons import LEMON_S, Xids, lemons
from actions.accounting.matching import add_standstill, by_job, explanation, set_planned_aside
from actions.accounting.mechanisms import of_update, shares
from actions.accounting.productivity import (
    JobTime,
    clock_hours,
    fleet,
    is_weighted,
    job_account,
    job_times,
    productivity,
)
from actions.accounting.stories import Stories, Story
from actions.accounting.training import Period
from actions.updating import UPDATE_RUNG
from telemetry.accounts import Account, Lemon
from telemetry.actions import ActionRecord, Command, Update
from telemetry.findings import ISOLATING, Incident
from telemetry.records import Allocation, End, Event, Record, Steps

INCIDENTS_SHOWN = 5_000


class Accountant:
    """See above.

    period  [from, to) of what is accounted for, Unix seconds; None: all that is there
    job     only this one; "" is all
    """

    def __init__(self, period: Period | None = None, job: str = "") -> None:
        self.period, self._job = period, job
        self.jobs, self._stories, self._deeds = Jobs(period), Stories(), Deeds()
        self._xids = Xids()
        self._seen: Period | None = None

    # -- records in

    def telemetry(self, record: Record, arrival: float) -> None:
        """A record of `nodewarden.telemetry`; a node's clock never runs ahead of the log's."""
        if isinstance(record, End):
            return  # it lies past all timers, and nobody saw the job until then
        at = min(record.at, arrival) if arrival > 0.0 else record.at
        since_s = self.passed(max(arrival, at))
        match record:
            case Steps():
                if self._job in ("", record.job):
                    self.jobs.steps(record, at, since_s)
            case Allocation():
                self.jobs.allocation(record, at)
            case Event():
                self._xids.take(record, at)
            case _:
                pass

    def passed(self, arrival: float) -> float:
        """The telemetry reached that time; returns the first time that it has.

        All that records tell accounting that are neither steps nor listings nor events.
        """
        first, last = self._seen or (arrival, arrival)
        self._seen = (min(first, arrival), max(last, arrival))
        return self._seen[0]

    def incident(self, incident: Incident) -> None:
        """A revision of `nodewarden.incidents`."""
        self._stories.take(incident)

    def action(self, record: ActionRecord) -> None:
        """A record of `nodewarden.actions`."""
        self._deeds.take(record)

    # -- the account out

    def account(self, notes: Sequence[str] = ()) -> Account:
        """What all that amounts to; nothing more may be taken afterwards."""
        for life in self.jobs.lives.values():
            life.close()
        stories = [one for one in self._stories.told() if self._job in ("", one.job)]
        times = self._times()
        cases = self._cases(stories, times)
        rows = [cases.row(story) for story in stories if self._is_inside(story.opened_at)]
        stopped = [cases.row(story) for story in stories if story.id in cases.stops]
        window = self._window()
        spent = [productivity(one, window) for one in times if window is not None]
        courses, deeds_of = self._courses(), self._deeds
        requests = [one for one in deeds_of.requests.values() if self._is_inside(one.at)]
        updates = [
            one for one in deeds_of.updates.values() if self._is_asked(one.asked_at, one.job)
        ]
        planned = [
            of_update(one)
            for one in self._planned()
            if one.ran_at is not None and self._is_asked(one.ran_at, one.job)
        ]
        deeds = [deed for one in courses for deed in self._deeds.deeds_of(one.newest.id)]
        return Account(
            period=window or self.period, job=self._job, fleet=fleet(times, spent, window),
            jobs=[job_account(one, time) for one, time in zip(times, spent, strict=True)],
            silent_jobs=self.jobs.silent(window, self._job), hours=clock_hours(times),
            times=cases.spreads(rows, stopped),
            mechanisms=shares([*(row.mechanism for row in rows), *planned]),
            incidents=rows[-INCIDENTS_SHOWN:],
            has_actions=self._deeds.records > 0,
            decided=audit.decided(courses), rails=audit.rails(courses),
            requests=audit.requests(requests), outcomes=audit.outcomes(deeds),
            recoveries=audit.recoveries(
                one for one in deeds_of.recoveries.values()
                if self._is_asked(one.began_at, one.job)
            ),
            updates=audit.updates(updates),
            lemons=self._lemons(cases, stories), decisions=audit.listed(courses),
            notes=[*notes, *self._notes(times, len(rows))],
        )  # fmt: skip

    def _window(self) -> Period | None:
        """What was asked for and seen of the telemetry; None where nothing was."""
        if self._seen is None or self.period is None:
            return self._seen
        window = max(self._seen[0], self.period[0]), min(self._seen[1], self.period[1])
        return window if window[0] <= window[1] else None

    def _is_inside(self, at: float) -> bool:
        return self.period is None or self.period[0] <= at < self.period[1]

    def _is_asked(self, at: float, job: str) -> bool:
        return self._is_inside(at) and self._job in ("", job)

    def _planned(self) -> list[Update]:
        """Updates that had a restart of their own."""
        return [
            one
            for one in self._deeds.updates.values()
            if one.joined_at is not None
            and (course := self._deeds.courses.get(one.decision)) is not None
            and course.newest.verdict.rung == UPDATE_RUNG
        ]

    def _times(self) -> list[JobTime]:
        window = self._window()
        if window is None or self._seen is None:
            return []
        return job_times(self.jobs, window, self._seen)

    def _cases(self, stories: Sequence[Story], times: Sequence[JobTime]) -> Cases:
        """Interruptions with the incidents that explain them."""
        cases = Cases(self._deeds)
        known, planned = by_job(stories), self._planned()
        for one in times:
            assert self._seen is not None, "a job that told steps was seen"
            mine = known.get(one.name, [])
            set_planned_aside(one, [u.joined_at or 0.0 for u in planned if u.job == one.name])
            add_standstill(one, mine, self._seen[1])
            for stop in one.interruptions:
                cases.add(one, stop, explanation(stop, mine, cases.stops))
        return cases

    def _courses(self) -> list[Course]:
        return [
            one
            for one in self._deeds.courses.values()
            if self._is_asked(one.first_at, one.newest.job)
        ]

    def _lemons(self, cases: Cases, stories: Sequence[Story]) -> list[Lemon]:
        to_s = self._newest(stories) if self.period is None else self.period[1]
        blaming = [one for one in stories if one.id not in cases.hands.false_alarms]
        isolated = self._isolated(to_s) if self._deeds.records else None
        return lemons(blaming, cases.stops.keys(), isolated, self._xids, to_s)

    def _newest(self, stories: Sequence[Story]) -> float:
        """The newest time of all three topics."""
        intents = [deed.command.intent_at for deed in self._deeds.all_deeds()]
        opened = [one.opened_at for one in stories]
        return max([self._seen[1] if self._seen is not None else 0.0, *intents, *opened])

    def _isolated(self, to_s: float) -> dict[str, int]:
        """How often each node was taken out, once for each decision."""
        out = {
            (deed.command.decision, node)
            for deed in self._deeds.all_deeds()
            if deed.is_real and _takes_out(deed.command)
            and to_s - LEMON_S <= deed.command.intent_at <= to_s
            for node in deed.command.targets
        }  # fmt: skip
        return Counter(node for _, node in out)

    def _notes(self, times: Sequence[JobTime], incidents: int) -> Iterator[str]:
        if self.jobs.dropped:
            yield f"{self.jobs.dropped} jobs beyond the limit are not accounted for"
        if self._stories.dropped:
            yield f"{self._stories.dropped} of the oldest incidents were too many to keep"
        for what, count in sorted(self._deeds.dropped.items()):
            yield f"{count} of the oldest {what} were too many to keep"
        if incidents > INCIDENTS_SHOWN:
            yield f"{incidents - INCIDENTS_SHOWN} of the oldest incidents are counted, not listed"
        if len(times) > 1 and not is_weighted(times):
            yield "nobody told how many nodes each job has: the fleet's ETTR counts jobs alike"
        if self._job and not times and self._job not in self.jobs.listed:
            yield f"nobody tells of a job {self._job}: neither steps nor the scheduler"
        elif self._seen is not None and not times:
            yield "no job told a step: ETTR and MTBF are not known"
        if not self._deeds.records:
            yield "no record of the action service: what was decided and done is not known"


def _takes_out(command: Command) -> bool:
    """Whether its targets leave service: by its step where it has one, else by its action."""
    return command.step == "drain" or (command.step == "" and command.action in ISOLATING)
