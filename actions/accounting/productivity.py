"""Where the time of jobs went: wall-clock, productive, stopped, made again; per job and fleet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from actions.accounting.interruptions import Interruption
from actions.accounting.jobs import Jobs, Listed
from actions.accounting.slots import HOUR_SLOTS, SLOT_S, SLOTS_MAX, Slots, sliding_hours
from actions.accounting.training import JobLife, Period
from telemetry.accounts import Hour, JobAccount, Productivity

EDGE_S = 1e-3  # a slot that lacks less is whole


@dataclass
class JobTime:
    """One job within the window, and the interruptions that count.

    span        [begin, end) of it that lies in the window, None where nothing does
    planned     further ones: restarts for updates
    waits       seconds that each interruption waited for a diagnosis, None unknown
    """

    name: str
    life: JobLife
    listed: Listed
    span: Period | None
    ended_at: float | None
    wall: Slots = field(default_factory=Slots)
    interruptions: list[Interruption] = field(default_factory=list)
    planned: list[Interruption] = field(default_factory=list)
    waits: list[float | None] = field(default_factory=list)


def job_times(jobs: Jobs, window: Period, observed: Period) -> list[JobTime]:
    """All jobs that told steps and have time in the window, by name."""
    found = []
    for name, life in sorted(jobs.lives.items()):
        listed = jobs.listed.get(name, Listed())
        if life.begun_at is None:
            continue
        begun_s, ended_at = _life(life, listed, observed)
        end_s = observed[1] if ended_at is None else ended_at
        span = (max(begun_s, window[0]), min(end_s, window[1]))
        one = JobTime(name, life, listed, span if span[0] < span[1] else None, ended_at)
        if one.span is None:
            continue
        one.wall.add(*one.span)
        one.interruptions = [i for i in life.interruptions if window[0] <= i.at < window[1]]
        found.append(one)
    return found


def _life(life: JobLife, listed: Listed, observed: Period) -> tuple[float, float | None]:
    """When it began, as far as it was seen, and when it ended, None while it runs."""
    assert life.begun_at is not None
    begun_s = max(life.begun_at, observed[0])
    if listed.start is not None and observed[0] <= listed.start < begun_s:
        begun_s = listed.start
    if listed.end is None:
        return begun_s, None
    return begun_s, max(listed.end, life.newest_at)


def productivity(one: JobTime, window: Period) -> Productivity:
    """Of one job."""
    wall_s, productive_s = one.wall.total_s, one.life.productive.total_s
    stopped_s, end_s = 0.0, one.span[1] if one.span is not None else window[1]
    for stop in one.life.interruptions:
        stopped_s += stop.stopped_s(window[0], end_s)
    recomputed_s = one.life.recomputed.total_s
    hours = list(_hours(one.life.productive, one.wall))
    count = len(one.interruptions)
    waits = [wait for wait in one.waits if wait is not None]
    return Productivity(
        wall_s=wall_s, productive_s=productive_s, ettr=_ratio(productive_s, wall_s),
        hour_last=hours[-1] if hours else None,
        hour_lowest=min(hours, key=lambda hour: (hour.ettr, hour.at), default=None),
        stopped_s=stopped_s, recomputed_s=recomputed_s,
        other_s=max(0.0, wall_s - productive_s - stopped_s - recomputed_s),
        diagnosis_wait_s=sum(waits) if waits else None,
        interruptions=count, planned=len(one.planned), unexplained=len(one.waits) - len(waits),
        restarts=sum(stop.restarts for stop in (*one.interruptions, *one.planned)),
        mtbf_s=wall_s / count if count else None,
    )  # fmt: skip


def _hours(productive: Slots, wall: Slots) -> list[Hour]:
    whole = sliding_hours(dict(productive.items()), dict(wall.items()), SLOT_S - EDGE_S)
    return [Hour(slot * SLOT_S, ettr) for slot, ettr in whole]


def job_account(one: JobTime, time: Productivity) -> JobAccount:
    """The job as it is shown."""
    assert one.span is not None
    return JobAccount(
        id=one.name, nodes=one.listed.nodes, begun_at=one.span[0], ended_at=one.ended_at,
        step=one.life.high, time=time,
    )  # fmt: skip


def fleet(
    jobs: Sequence[JobTime], times: Sequence[Productivity], window: Period | None
) -> Productivity:
    """Of all jobs together; nothing is known where no job told steps."""
    if not jobs or window is None:
        return Productivity()
    weights = _weights(jobs)
    productive, wall = fleet_slots(jobs, weights)
    first, last = math.ceil(window[0] / SLOT_S), math.floor((window[1] + EDGE_S) / SLOT_S)
    whole = {slot: wall_s for slot, wall_s in wall.items() if first <= slot < last}
    hours = [Hour(slot * SLOT_S, ettr) for slot, ettr in sliding_hours(productive, whole, EDGE_S)]
    done_s = sum(w * j.life.productive.total_s for w, j in zip(weights, jobs, strict=True))
    whole_s = sum(w * j.wall.total_s for w, j in zip(weights, jobs, strict=True))
    wall_s = _sum(times, "wall_s")
    count = sum(time.interruptions or 0 for time in times)
    return Productivity(
        wall_s=wall_s, productive_s=_sum(times, "productive_s"), ettr=_ratio(done_s, whole_s),
        hour_last=hours[-1] if hours else None,
        hour_lowest=min(hours, key=lambda hour: (hour.ettr, hour.at), default=None),
        stopped_s=_sum(times, "stopped_s"), recomputed_s=_sum(times, "recomputed_s"),
        other_s=_sum(times, "other_s"), diagnosis_wait_s=_sum(times, "diagnosis_wait_s"),
        interruptions=count, planned=sum(time.planned for time in times),
        unexplained=sum(time.unexplained for time in times),
        restarts=sum(time.restarts or 0 for time in times),
        mtbf_s=wall_s / count if count and wall_s is not None else None,
    )  # fmt: skip


def clock_hours(jobs: Sequence[JobTime]) -> list[Hour]:
    """The fleet's ETTR of each hour of the clock, for a plot; `at` is the hour's end."""
    productive, wall = fleet_slots(jobs, _weights(jobs))
    done: dict[int, float] = {}
    whole: dict[int, float] = {}
    for slot, wall_s in wall.items():
        hour = slot // HOUR_SLOTS
        done[hour] = done.get(hour, 0.0) + productive.get(slot, 0.0)
        whole[hour] = whole.get(hour, 0.0) + wall_s
    hour_s = HOUR_SLOTS * SLOT_S
    return [Hour((hour + 1) * hour_s, min(1.0, done[hour] / whole[hour])) for hour in sorted(whole)]


def is_weighted(jobs: Sequence[JobTime]) -> bool:
    """Whether the fleet's ETTR goes by nodes: only where the nodes of every job are known."""
    return all(one.listed.nodes is not None for one in jobs)


def _weights(jobs: Sequence[JobTime]) -> list[float]:
    if not is_weighted(jobs):
        return [1.0] * len(jobs)
    return [float(one.listed.nodes or 0) for one in jobs]


def fleet_slots(
    jobs: Sequence[JobTime], weights: Sequence[float]
) -> tuple[Mapping[int, float], Mapping[int, float]]:
    """Productive and wall-clock seconds of each slot, the newest `SLOTS_MAX` slots."""
    newest = max((slot for one in jobs for slot, _ in one.wall.items()), default=0)
    productive: dict[int, float] = {}
    wall: dict[int, float] = {}
    for one, weight in zip(jobs, weights, strict=True):
        for into, slots in ((productive, one.life.productive), (wall, one.wall)):
            for slot, seconds in slots.items():
                if slot > newest - SLOTS_MAX and seconds > 0.0:
                    into[slot] = into.get(slot, 0.0) + weight * seconds
    return productive, wall


def _ratio(part: float, whole: float) -> float | None:
    return min(1.0, part / whole) if whole > 0.0 else None


def _sum(times: Sequence[Productivity], name: str) -> float | None:
    """Of those that are known; None where none is."""
    known = [value for time in times if (value := getattr(time, name)) is not None]
    return sum(known) if known else None
