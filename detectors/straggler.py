"""Jobs that became slow, from step time; ranks that compute too long, from compute time.

A job is slow when most of its last steps are beyond its own earlier steps, by ratio and by spread:
one long checkpoint is not. Slow steps never enter the reference, so a job stays slow until it is
as fast as before, restarts with `clear_steps` normal steps, or ends no step for `idle_s`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from statistics import median
from typing import Any

import msgspec

from detectors.base import Quiet, Sighting, View
from detectors.gather import Gatherer, WholeStep, by_step
from detectors.slow_ranks import SlowRanks
from telemetry.findings import six_digits
from telemetry.records import Steps
from telemetry.settings import EngineSettings, StragglerSettings

MAD_TO_SIGMA = 1.4826


class Timed(msgspec.Struct, frozen=True):
    """One training step: when it began, how long it took, whether that was too long."""

    began_s: float
    step_time_s: float
    slow: bool


class Pace(msgspec.Struct):
    """One job's step times.

    warm      steps since its (re)start, counted up to the warm-up
    baseline  seconds of normal steps older than `recent`, oldest first
    recent    the last steps, oldest first
    paces     tokens per second of the last normal steps, where the job tells its tokens
    normal    normal steps in a row
    seen      what is open, None while the job runs at its pace
    """

    warm: int = 0
    baseline: list[float] = []
    recent: list[Timed] = []
    paces: list[float] = []
    normal: int = 0
    seen: Sighting | None = None

    def judge(self, whole: WholeStep, job: str, settings: StragglerSettings) -> list[Sighting]:
        """Take one training step in; what begins or ends with it."""
        if whole.step_time_s is None or whole.step_time_s <= 0.0:
            return []
        if self.warm < settings.warmup_steps:
            self.warm += 1
            return []
        reference_s, spread_s = _reference(self.baseline, settings)
        bound_s = max(settings.slow_ratio * reference_s, reference_s + settings.sigmas * spread_s)
        slow = whole.step_time_s > bound_s * (1.0 + 1e-9)
        pace = None if whole.tokens is None else whole.tokens / whole.step_time_s
        slow = slow and not self._worked(pace, settings)
        if pace is not None and not slow:
            self.paces = [*self.paces, pace][-settings.baseline_steps :]
        self.recent.append(Timed(whole.began_s, whole.step_time_s, slow))
        if len(self.recent) > settings.recent_steps:
            oldest = self.recent.pop(0)
            if not oldest.slow:
                self.baseline = [*self.baseline, oldest.step_time_s][-settings.baseline_steps :]
        self.normal = 0 if slow else min(self.normal + 1, settings.clear_steps)
        return self._turn(job, reference_s, settings)

    def _worked(self, pace: float | None, settings: StragglerSettings) -> bool:
        """Whether a step was long by its work: a batch or a sequence that grew is no slowness."""
        if pace is None or not self.paces:
            return False
        return pace * settings.slow_ratio >= median(self.paces)

    def _turn(self, job: str, reference_s: float, settings: StragglerSettings) -> list[Sighting]:
        late = [one for one in self.recent if one.slow]
        if self.seen is None and len(late) >= settings.recent_slow_steps:
            observed_s = median([one.step_time_s for one in self.recent])
            climb_s = self._climb_s(late[0], reference_s, settings)
            self.seen = _sighting(job, late[0].began_s - climb_s, observed_s, reference_s, climb_s)
            return [self.seen]
        if self.seen is not None and self.normal >= settings.clear_steps:
            return self.forget()
        return []

    def _climb_s(self, first: Timed, reference_s: float, settings: StragglerSettings) -> float:
        """How long it took from the first step that was longer than usual to one beyond the bound.

        What grows slowly did not begin with the first step that was too long.
        """
        bound_s = (1.0 + (settings.slow_ratio - 1.0) / 2.0) * reference_s
        before = [one.step_time_s for one in self.recent[: self.recent.index(first)]]
        climbing = takewhile(lambda took_s: took_s > bound_s, reversed([*self.baseline, *before]))
        return sum(climbing)

    def restart(self) -> None:
        """The job runs again: its first steps are slow by nature, its old pace still holds."""
        self.warm, self.normal, self.recent = 0, 0, []

    def forget(self) -> list[Sighting]:
        """Clear what is open."""
        seen, self.seen = self.seen, None
        return [] if seen is None else [replace(seen, active=False)]


class JobSteps(msgspec.Struct):
    """Everything kept of one job."""

    heard_s: float
    gatherer: Gatherer
    pace: Pace
    ranks: SlowRanks


class Straggler(Quiet):
    """Jobs in the order of last hearing; beyond `jobs_max` the oldest is forgotten."""

    name = "straggler"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings.straggler
        self._jobs: dict[str, JobSteps] = {}

    def on_steps(self, steps: Steps, view: View, now_s: float) -> Sequence[Sighting]:
        """Gather the record's rows and judge the steps that are whole with it."""
        job = self._jobs.pop(steps.job, None) or JobSteps(now_s, Gatherer(), Pace(), SlowRanks())
        job.heard_s = now_s
        self._jobs[steps.job] = job
        said: list[Sighting] = []
        if len(self._jobs) > self._settings.jobs_max:
            said += self._forget(next(iter(self._jobs)))
        records = by_step(steps)
        if job.gatherer.restarted(records):
            job.gatherer = Gatherer()
            job.pace.restart()
            said += job.ranks.forget()
        for whole in job.gatherer.add(records):
            if whole.kind in ("train", "unknown"):
                said += job.pace.judge(whole, steps.job, self._settings)
                said += job.ranks.judge(whole, steps.job, view, self._settings)
        return said

    def advance(self, now_s: float, view: View) -> Sequence[Sighting]:
        """A job that ends no step for `idle_s` is over for us: what is open is cleared."""
        said: list[Sighting] = []
        for name, job in list(self._jobs.items()):
            if now_s - job.heard_s <= self._settings.idle_s:
                break
            said += self._forget(name)
        return said

    def _forget(self, name: str) -> list[Sighting]:
        job = self._jobs.pop(name)
        return [*job.pace.forget(), *job.ranks.forget()]

    def snapshot(self) -> Any:
        """The jobs, the longest silent first."""
        return msgspec.to_builtins(self._jobs, str_keys=True)

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        self._jobs = msgspec.convert(state, dict[str, JobSteps], strict=False)


def _reference(baseline: list[float], settings: StragglerSettings) -> tuple[float, float]:
    """(median, robust sigma) of the job's own steps in seconds; (inf, 0) while they are too few."""
    if len(baseline) < settings.baseline_min_steps:
        return math.inf, 0.0
    middle = median(baseline)
    return middle, MAD_TO_SIGMA * median([abs(step_s - middle) for step_s in baseline])


def _sighting(
    job: str, onset_s: float, observed_s: float, expected_s: float, climb_s: float
) -> Sighting:  # fmt: skip
    change = 100.0 * (observed_s / expected_s - 1.0)
    return Sighting(
        active=True, detector=Straggler.name, node="", entity="", metric="step_time_s",
        onset_s=onset_s, kind="job_slow", cause="unknown", job=job, unit="s", score=1.0,
        observed=six_digits(observed_s), expected=six_digits(expected_s),
        onset_resolution_s=six_digits(observed_s + climb_s),
        text=f"step time {observed_s:.3g} s against {expected_s:.3g} s ({change:+.0f} %)",
    )  # fmt: skip
