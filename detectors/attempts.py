"""Jobs that restart and never get further: three attempts that end at the same step are critical.

Each attempt may look healthy for itself: it starts, computes and dies where the one before died.
Source: nvrx_watch (cycles complete, the best checkpoint stays). An attempt ends when a reporter
goes back; one that got beyond the best step of all before is progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from detectors.base import Quiet, Sighting, View
from telemetry.records import Steps
from telemetry.settings import EngineSettings

NOTHING = -1
REPORTERS_MAX = 200_000  # ranks that tell of one job


class JobAttempts(msgspec.Struct):
    """One job.

    newest   the highest step of this attempt, `best` of those before
    stuck    attempts in a row that ended no higher than the best; the first of them set it
    last     reporter (its first rank) -> its newest step
    """

    at_s: float
    newest: int = NOTHING
    best: int = NOTHING
    stuck: int = 0
    first_s: float = 0.0
    last: dict[int, int] = {}
    said: Sighting | None = None


class Attempts(Quiet):
    """Jobs in the order of last hearing; beyond `jobs_max` the oldest is forgotten."""

    name = "attempts"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings.attempts
        self._jobs: dict[str, JobAttempts] = {}

    def on_steps(self, steps: Steps, view: View, now_s: float) -> Sequence[Sighting]:
        """A reporter that goes back ends the attempt."""
        if not steps.step:
            return ()
        job = self._jobs.pop(steps.job, None) or JobAttempts(steps.at, first_s=steps.at)
        self._jobs[steps.job] = job
        said = self._make_room() if len(self._jobs) > self._settings.jobs_max else []
        reporter = steps.ranks[0] if steps.ranks else -1
        lowest = highest = steps.step[0]
        if len(steps.step) > 1:
            lowest, highest = min(steps.step), max(steps.step)
        if (
            lowest < job.last.get(reporter, lowest)
            and steps.at - job.at_s >= self._settings.apart_s
        ):
            said += self._ended(job, steps.job, steps.at)
        if reporter in job.last or len(job.last) < REPORTERS_MAX:
            job.last[reporter] = highest
        job.newest = max(job.newest, highest)
        if job.said is not None and job.newest > job.best:
            said.append(replace(job.said, active=False))
            job.said = None
        return said

    def _ended(self, job: JobAttempts, name: str, at_s: float) -> list[Sighting]:
        further = job.newest > job.best
        job.stuck = 1 if further else job.stuck + 1
        job.first_s = at_s if further else job.first_s
        job.best = max(job.best, job.newest)
        job.newest, job.last, job.at_s = NOTHING, {}, at_s
        if job.stuck < self._settings.count or job.said is not None:
            return []
        job.said = Sighting(
            active=True, detector=self.name, node="", entity="", metric="attempt_end_step",
            onset_s=job.first_s, kind="job_hang", cause="unknown", severity="critical", job=name,
            observed=float(job.best), unit="step", score=1.0,
            text=f"{job.stuck} attempts in a row ended at step {job.best} or before: "
            "the job restarts and gets no further",
        )  # fmt: skip
        return [job.said]

    def _make_room(self) -> list[Sighting]:
        oldest = self._jobs.pop(next(iter(self._jobs)))
        return [] if oldest.said is None else [replace(oldest.said, active=False)]

    def snapshot(self) -> Any:
        """The jobs, the longest silent first."""
        return msgspec.to_builtins(self._jobs, str_keys=True)

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        self._jobs = msgspec.convert(state, dict[str, JobAttempts], strict=False)
