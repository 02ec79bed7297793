"""All jobs of a log: their lives, and what the scheduler lists of them."""

from __future__ import annotations

import math
from collections import OrderedDict

import msgspec

from actions.accounting.training import JobLife, Period
from telemetry.records import Allocation, Job, Steps

JOBS_MAX = 1_000  # that tell steps; the quietest is forgotten
LISTED_MAX = 20_000
LISTING_RECORDS_MAX = 10_000


class Listed(msgspec.Struct):
    """What the scheduler says of one job; `nodes` the most that it held at once."""

    start: float | None = None
    end: float | None = None
    nodes: int | None = None
    attempt: int = 0
    newest: Job | None = None


class _Listing(msgspec.Struct):
    """A full listing that is still being read."""

    id: str = ""
    parts: int = 0
    names: set[str] = set()


class Jobs:
    """See above. `dropped` counts the jobs that were too many, and are not accounted for."""

    def __init__(self, period: Period | None = None) -> None:
        self._period = period
        self.lives: OrderedDict[str, JobLife] = OrderedDict()
        self.listed: OrderedDict[str, Listed] = OrderedDict()
        self.dropped = 0
        self._listing = _Listing()

    def steps(self, record: Steps, at: float, since_s: float) -> None:
        """Steps of a job; the log began at `since_s`."""
        if not record.step:
            return
        life = self.lives.get(record.job)
        if life is None:
            life = self.lives[record.job] = JobLife(since_s, self._period)
            listed = self.listed.get(record.job)
            if listed is not None and listed.newest is not None:
                life.listed(listed.newest, at)
            if len(self.lives) > JOBS_MAX:
                self.lives.popitem(last=False)
                self.dropped += 1
        self.lives.move_to_end(record.job)
        life.take(record, at)

    def allocation(self, record: Allocation, at: float) -> None:
        """A change, or a part of a full listing: what a whole one lacks is over."""
        for job in record.jobs:
            self._job(job, at)
        if not record.listing:
            return
        listing = self._listing
        if record.listing != listing.id:
            listing = self._listing = _Listing(id=record.listing, names=set())
        listing.parts += 1
        if listing.parts > LISTING_RECORDS_MAX:
            return
        listing.names.update(job.id for job in record.jobs)
        if record.last and listing.parts == record.count:
            self._whole(listing.names, at)

    def silent(self, window: Period | None, only: str) -> int:
        """How many listed jobs ran in the window and told no step; `only` that one, "" all."""
        from_s, to_s = window or (-math.inf, math.inf)
        return sum(
            (known.end is None or known.end >= from_s)
            and (known.start is None or known.start <= to_s)
            for name, known in self.listed.items()
            if name not in self.lives and only in ("", name)
        )

    def _job(self, job: Job, at: float) -> None:
        known = self.listed.pop(job.id, None) or Listed()
        self.listed[job.id] = known
        start = _time(job.start)
        known.start = start if known.start is None else min(known.start, start or known.start)
        known.end = _time(job.end)
        known.newest = msgspec.structs.replace(job, nodes=[], start=start)
        nodes = _held_at_once(job)
        known.nodes = nodes if known.nodes is None else max(known.nodes, nodes or 0)
        if (life := self.lives.get(job.id)) is not None:
            life.listed(known.newest, at)
        if len(self.listed) > LISTED_MAX:
            self.listed.popitem(last=False)

    def _whole(self, names: set[str], at: float) -> None:
        for name, known in self.listed.items():
            if name not in names and known.end is None:
                known.end = at


def _held_at_once(job: Job) -> int | None:
    """The most nodes that the job holds at one time; None where none is named."""
    if not job.nodes:
        return None
    changes: list[tuple[float, int]] = []
    for held in job.nodes:
        since = _time(held.since)
        changes.append((since if since is not None else -math.inf, 1))
        if (until := _time(held.until)) is not None:
            changes.append((until, -1))
    most = now = 0
    for _, change in sorted(changes):  # who leaves at a moment does so before who comes
        now += change
        most = max(most, now)
    return most or None


def _time(at: float | None) -> float | None:
    """A time that can be one; schedulers write 0 where there is none."""
    return at if at is not None and math.isfinite(at) and at > 0.0 else None
