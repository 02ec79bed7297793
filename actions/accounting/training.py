"""One job's life, as its steps and the scheduler tell it: what was productive, what stopped it.

A fold over step records in the order of the log. A step counts once, when it is first made; the
time that counts is cut to what passed since the step before, so that intervals never overlap and
never exceed the wall-clock. Source of the quantity: ByteRobust (SOSP'25), ETTR.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from statistics import median

import msgspec

from actions.accounting.interruptions import Interruption
from actions.accounting.reporters import TRAINING, Reporters
from actions.accounting.slots import Slots
from telemetry.records import Job, StepKind, Steps

INTERRUPTIONS_MAX = 2_000
RECENT_MAX = 256
USUAL_STEPS = 32
PENDING_MAX = 100
RESTARTS_MAX = 1_000  # at once
UNTIMED_STEPS = 2.0  # a step without a time of its own took at most so many usual ones
LATE_LISTING_S = 600.0
_PLAIN: frozenset[StepKind] = frozenset({"train", "unknown", "warmup"})

Period = tuple[float, float]  # [from, to)


class _Pending(msgspec.Struct, frozen=True):
    """Steps that did more than train, while nobody knows yet how long a step takes."""

    start_s: float
    at: float
    steps: int
    new: int


class JobLife:
    """See above.

    since_s    the log began: what a step took before it is not of the log
    period     all that counts; the rest is followed all the same
    begun_at   the first step that anybody told of began, as far as it is of the log
    last_at    the newest step ended
    high       the highest step ever made, -1 before the first
    """

    def __init__(self, since_s: float, period: Period | None = None) -> None:
        self._since_s = since_s
        self._period = period
        self.begun_at: float | None = None
        self.last_at: float | None = None
        self.high = -1
        self.productive = Slots()
        self.recomputed = Slots()
        self.interruptions: deque[Interruption] = deque(maxlen=INTERRUPTIONS_MAX)
        self.attempt: int | None = None
        self._start: float | None = None
        self._step: int | None = None  # the newest of the running attempt
        self._frontier = 0.0  # what lies before is accounted for
        self._reporters = Reporters()
        self._times: deque[float] = deque(maxlen=USUAL_STEPS)
        self._pending: list[_Pending] = []
        self._recent: deque[tuple[float, float | None]] = deque(maxlen=RECENT_MAX)

    @property
    def newest_at(self) -> float:
        """What lies before is accounted for."""
        return self._frontier

    # -- steps

    def take(self, steps: Steps, at: float) -> None:
        """Steps ended, or a first step begins, at `at`."""
        step = max(steps.step, default=-1)
        if step < 0:
            return
        took_s = _took_s(steps.step_time_s)
        trains = steps.step_kind in TRAINING
        if self._reporters.hear(steps, step, at, took_s):
            self._begin_anew(step, at, took_s)
        elif trains and self._is_awaited(at):
            self._reporters.begin_epoch(at - (took_s or 0.0), step)
            self._step = None
        if took_s is None and steps.step_kind not in _PLAIN:
            if steps.step_kind == "first":
                self._first_begins(at)
            return
        is_first = self.begun_at is None
        if is_first:
            self.begun_at = self._frontier = max(at - (took_s or 0.0), min(self._since_s, at))
        if is_first or at > self._frontier:
            self._ended(step, at, took_s, steps.step_kind)
        elif self._reporters.is_of_now(at) and step > self.high:
            self.high, self._step = step, max(step, self._step or 0)

    def close(self) -> None:
        """Nothing more comes: what waited for a usual step is taken as it is."""
        for one in self._pending:
            self._split(one, (one.at - one.start_s) / one.steps)
        self._pending.clear()

    def _ended(self, step: int, at: float, took_s: float | None, kind: StepKind) -> None:
        steps = 1 if self._step is None else step - self._step
        if steps <= 0:
            if kind not in TRAINING:  # an evaluation or a checkpoint took the time
                self._frontier = at
            return
        one_s = took_s if took_s is not None else self._untimed_s(at, steps)
        if one_s is not None:
            new = min(steps, max(0, step - self.high))
            start_s = max(self._frontier, at - one_s * steps)
            self._count(_Pending(start_s, at, steps, new), kind)
        if kind in _PLAIN and one_s is not None:
            self._times.append(one_s)
        self._resumed(step, at, took_s)
        self._step, self.high = step, max(step, self.high)
        self._frontier = self.last_at = at
        self._recent.append((at, took_s))

    def _count(self, made: _Pending, kind: StepKind) -> None:
        """A first step loads and compiles, others evaluate and save: only a usual step counts."""
        if kind in _PLAIN:
            self._split(made, (made.at - made.start_s) / made.steps)
            if self._pending:
                usual_s = (made.at - made.start_s) / made.steps
                waited, self._pending = self._pending, []
                for one in waited:
                    self._split(one, usual_s)
        elif self._times:
            self._split(made, median(self._times))
        elif len(self._pending) < PENDING_MAX:
            self._pending.append(made)

    def _split(self, made: _Pending, one_s: float) -> None:
        """The end of the time for steps that are new, before it the steps that were made before."""
        one_s = min(one_s, (made.at - made.start_s) / made.steps)
        new_from_s = made.at - one_s * made.new
        self._place(self.productive, new_from_s, made.at)
        self._place(self.recomputed, new_from_s - one_s * (made.steps - made.new), new_from_s)

    def _place(self, slots: Slots, from_s: float, to_s: float) -> None:
        if self._period is not None:
            from_s, to_s = max(from_s, self._period[0]), min(to_s, self._period[1])
        slots.add(from_s, to_s)

    def _untimed_s(self, at: float, steps: int) -> float | None:
        """A step's time where the log prints none: from the step before, if there is one."""
        if self.last_at is None or self._step is None:
            return median(self._times) if self._times else None
        each_s = (at - self.last_at) / steps
        return min(each_s, UNTIMED_STEPS * median(self._times)) if self._times else each_s

    # -- interruptions

    def _begin_anew(self, step: int, at: float, took_s: float | None) -> None:
        open_one = self._open()
        if open_one is None:
            self.interruptions.append(Interruption(stopped_at=self.last_at))
        elif open_one.first_began_at is not None:
            open_one.is_tried_again(at - (took_s or 0.0), 1)
        self._reporters.begin_epoch(at - (took_s or 0.0), step)
        self._step = None

    def _is_awaited(self, at: float) -> bool:
        """Whether the scheduler told of a new attempt and this is its first step."""
        open_one = self._open()
        if open_one is None or open_one.started_at is None or self._step is None:
            return False
        return at > open_one.started_at

    def _first_begins(self, at: float) -> None:
        open_one = self._open()
        if open_one is not None and open_one.first_began_at is None:
            open_one.first_began_at = at

    def _resumed(self, step: int, at: float, took_s: float | None) -> None:
        if not self.interruptions:
            return
        last = self.interruptions[-1]
        if last.awaits_steps and self._step is None:
            last.resume(at, took_s)
        if last.recovered_at is None and not last.awaits_steps and step > self.high:
            last.recovered_at = at

    def _open(self) -> Interruption | None:
        last = self.interruptions[-1] if self.interruptions else None
        return last if last is not None and last.awaits_steps else None

    # -- what the scheduler says

    def listed(self, job: Job, at: float) -> None:
        """The job as a listing at `at` shows it; a higher attempt is a restart."""
        known = self.attempt
        self.attempt = job.attempt if known is None else max(known, job.attempt)
        start_s, before_s = job.start, self._start
        self._start = job.start if job.start is not None else self._start
        if known is None or job.attempt <= known:
            return
        is_exact = start_s is not None and before_s is not None and start_s > before_s
        restarts = min(job.attempt - known, RESTARTS_MAX)
        self._restarted(start_s if is_exact and start_s is not None else at, restarts, is_exact)

    def _restarted(self, start_s: float, restarts: int, is_exact: bool) -> None:
        last = self.interruptions[-1] if self.interruptions else None
        if last is not None and not last.listed and _is_of(last, start_s, is_exact):
            last.listed = True
            last.restarts = max(last.restarts, restarts)
            ended_at = last.first_began_at or last.first_ended_at
            if ended_at is None or start_s <= ended_at:
                last.started_at = start_s
            return
        open_one = self._open()
        if open_one is not None:
            open_one.is_tried_again(start_s, restarts)
            return
        self.interruptions.append(self._among_recent(start_s, restarts))

    def _among_recent(self, start_s: float, restarts: int) -> Interruption:
        """The listing may come after the first steps of the attempt, which then looked like any."""
        before = [at for at, _ in self._recent if at <= start_s]
        made = Interruption(
            stopped_at=before[-1] if before else None,
            started_at=start_s, restarts=restarts, listed=True,
        )  # fmt: skip
        after = next(((at, took_s) for at, took_s in self._recent if at > start_s), None)
        if after is not None:
            made.resume(*after)
            made.recovered_at = after[0]
        return made


def _is_of(last: Interruption, start_s: float, is_exact: bool) -> bool:
    """Whether an attempt that began then is the one that the steps already showed."""
    if last.stopped_at is not None and start_s < last.stopped_at:
        return False
    if last.first_ended_at is None:
        return True
    return start_s <= last.first_ended_at + (0.0 if is_exact else LATE_LISTING_S)


def _took_s(column: Sequence[float | None]) -> float | None:
    """The slowest rank's time; what is no time at all is none."""
    known = [one for one in column if one is not None and math.isfinite(one) and one > 0.0]
    return max(known, default=None)
