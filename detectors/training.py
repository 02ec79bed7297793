"""NaN and infinite loss or gradient norm: the job computes nonsense from here on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from detectors.base import Quiet, Sighting, View
from detectors.columns import value_at
from telemetry.records import Steps
from telemetry.settings import EngineSettings


class Progress(msgspec.Struct):
    """One job.

    newest        step last counted as finite or not
    finite        finite steps in a row
    norm_steps    steps in a row whose gradient norm alone was not finite
    norm_onset_s  when the first of those was reported
    seen          what is open, None where all is well
    """

    heard_s: float
    newest: int = -1
    finite: int = 0
    norm_steps: int = 0
    norm_onset_s: float = 0.0
    seen: Sighting | None = None


class Training(Quiet):
    """A loss that is no number at once; a gradient norm only when it stays so.

    With fp16 loss scaling single steps have an infinite gradient norm and are skipped: that is
    healthy. A value that is missing is neither finite nor not.
    """

    name = "training"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings.training
        self._jobs: dict[str, Progress] = {}

    def on_steps(self, steps: Steps, view: View, now_s: float) -> Sequence[Sighting]:
        """Judge each row."""
        job = self._jobs.pop(steps.job, None) or Progress(now_s)
        job.heard_s = now_s
        self._jobs[steps.job] = job
        said = self._make_room() if len(self._jobs) > self._settings.jobs_max else []
        if not (steps.loss or steps.grad_norm or steps.nonfinite):
            return said  # per-rank records say nothing of either
        for row in range(max(1, len(steps.step), len(steps.ranks))):
            said += self._judge(job, steps, row)
        return said

    def _judge(self, job: Progress, steps: Steps, row: int) -> list[Sighting]:
        bad = set(value_at(steps.nonfinite, row) or ())
        step = value_at(steps.step, row)
        number = job.newest + 1 if step is None else step
        if bad & {"loss"}:
            job.newest, job.finite = number, 0
            return self._open(job, steps, "loss", row, steps.at)
        if bad & {"grad_norm"}:
            job.finite = 0
            if job.norm_steps == 0:
                job.norm_onset_s = steps.at
            job.norm_steps += number != job.newest or job.norm_steps == 0
            job.newest = number
            if job.norm_steps >= self._settings.grad_norm_steps:
                return self._open(job, steps, "grad_norm", row, job.norm_onset_s)
            return []
        known = value_at(steps.loss, row) is not None or value_at(steps.grad_norm, row) is not None
        if not known or number == job.newest:
            return []
        job.newest, job.norm_steps = number, 0
        job.finite = min(job.finite + 1, self._settings.clear_steps)
        if job.seen is None or job.finite < self._settings.clear_steps:
            return []
        seen, job.seen = job.seen, None
        return [replace(seen, active=False)]

    def _open(
        self, job: Progress, steps: Steps, what: str, row: int, onset_s: float
    ) -> list[Sighting]:
        if job.seen is not None:
            return []
        step = value_at(steps.step, row)
        words = {"loss": "the loss", "grad_norm": "the gradient norm"}[what]
        where = "" if step is None else f" at step {step}"
        job.seen = Sighting(
            active=True, detector=self.name, node="", entity="", metric=what, onset_s=onset_s,
            kind="loss_anomaly", cause="unknown", severity="critical", job=steps.job,
            text=f"{words} is NaN or infinite{where}", score=1.0,
        )  # fmt: skip
        return [job.seen]

    def advance(self, now_s: float, view: View) -> Sequence[Sighting]:
        """A job that ends no step for `idle_s` is over for us: what is open is cleared."""
        said: list[Sighting] = []
        for name, job in list(self._jobs.items()):
            if now_s - job.heard_s <= self._settings.idle_s:
                break
            said += self._forget(name)
        return said

    def _make_room(self) -> list[Sighting]:
        return self._forget(next(iter(self._jobs)))

    def _forget(self, name: str) -> list[Sighting]:
        seen = self._jobs.pop(name).seen
        return [] if seen is None else [replace(seen, active=False)]

    def snapshot(self) -> Any:
        """The jobs, the longest silent first."""
        return msgspec.to_builtins(self._jobs)

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        self._jobs = msgspec.convert(state, dict[str, Progress])
