"""Loss and gradient norm that jump, MFU that sinks: a job against its own past.

Two gates for a jump. The published one (ByteRobust): five times the usual, at once. Ours: beyond
1.4 times (loss) or twice (gradient norm) the usual and beyond its noise, in most of the last steps;
a single step that does so is evidence only, it passes in most runs. One-sided, the first steps are
exempt, and it is for people to look at: no curve accuses a node. MFU is judged against the job's
own history, and where the steps tell their tokens, against the workload: longer sequences are work.
A loss that creeps up moves its own usual along, so it is judged against its lowest (`drift`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import msgspec

from detectors.base import Quiet, Sighting, View
from detectors.columns import value_at
from detectors.drift import Drift
from telemetry.findings import six_digits
from telemetry.records import Steps
from telemetry.settings import EngineSettings

MAD_TO_SIGMA = 1.4826  # of a normal distribution
UP = ("loss", "grad_norm")
Gate = Callable[[float, float, float], bool]
"""(value, usual, noise) -> whether the value lies beyond what is usual."""
WORDS = {"loss": "the loss", "grad_norm": "the gradient norm", "mfu_ratio": "MFU",
         "throughput": "the throughput"}  # fmt: skip


class Curve(msgspec.Struct):
    """One quantity of one job.

    usual    values of unflagged steps, newest last
    recent   (value, flagged) of the last steps
    onset_s  when the running row of flagged steps began
    open     what is said: "", "spike" (one step), "jump" or, of efficiency, "decline"
    calm     unflagged steps in a row
    """

    usual: list[float] = []
    recent: list[tuple[float, bool]] = []
    onset_s: float = 0.0
    open: str = ""
    calm: int = 0


class JobCurves(msgspec.Struct):
    """One job: its newest step, how many it ended here, tokens and times of usual steps."""

    step: int = -1
    steps: int = 0
    curves: dict[str, Curve] = {}
    tokens_per_s: list[float] = []
    drift: Drift = msgspec.field(default_factory=Drift)


class Curves(Quiet):
    """Steps of a job in order, each judged once, whoever tells it first."""

    name = "curves"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings.curves
        self._jobs: OrderedDict[str, JobCurves] = OrderedDict()

    def on_steps(self, steps: Steps, view: View, now_s: float) -> Sequence[Sighting]:
        """Judge the newest step of the record."""
        if steps.step_kind not in ("train", "unknown") or not steps.step:
            return ()
        if not (steps.loss or steps.grad_norm or steps.mfu_ratio or steps.throughput):
            return ()  # of its ranks
        columns = (steps.loss, steps.grad_norm, steps.mfu_ratio, steps.throughput)
        if all(value is None for column in columns for value in column):
            return ()  # a skipped step is told of before its own line
        step = max(steps.step)
        job = self._jobs.get(steps.job)
        if job is None:
            job = self._jobs[steps.job] = JobCurves(curves={}, tokens_per_s=[])
            if len(self._jobs) > self._settings.jobs_max:
                self._jobs.popitem(last=False)
        if step == job.step:
            return ()
        said: list[Sighting] = []
        if step < job.step and _restart(job):
            said.append(_drift(steps, active=False))
        job.step = step
        job.steps += 1
        row = steps.step.index(step)
        for name in UP:
            value = value_at(getattr(steps, name), row)
            if value is not None:
                said += self._judge(job, steps, name, value, self._is_high(name))
        said += self._creep(job, steps, row)
        said += self._efficiency(job, steps, row)
        return said

    def _creep(self, job: JobCurves, steps: Steps, row: int) -> list[Sighting]:
        """The loss against its lowest level; steps of a jump are the jump's."""
        value, rules, drift = value_at(steps.loss, row), self._settings, job.drift
        if value is None or job.steps <= rules.warmup_steps or job.curves["loss"].recent[-1][1]:
            return []
        if not drift.take(value, value_at(steps.tokens, row), steps.at, rules):
            return []
        if not drift.open:
            return [_drift(steps, active=False)]
        return [_drift(steps, True, drift.above_s, drift.levels[-1], drift.levels[0])]

    def _efficiency(self, job: JobCurves, steps: Steps, row: int) -> list[Sighting]:
        """MFU, or throughput where there is none, unless the workload explains it."""
        name = "mfu_ratio" if steps.mfu_ratio else "throughput"
        value = value_at(getattr(steps, name), row)
        if value is None:
            return []
        tokens, took = value_at(steps.tokens, row), value_at(steps.step_time_s, row)
        pace = tokens / took if tokens is not None and took else None
        usual = job.tokens_per_s
        worked = pace is not None and bool(usual) and pace >= 0.95 * median(usual)
        rules = self._settings

        def low(value: float, base: float, noise: float) -> bool:
            sunk = value < rules.efficiency_ratio * base and value < base - rules.sigmas * noise
            return sunk and not worked

        said = self._judge(job, steps, name, value, low)
        if pace is not None and not job.curves[name].recent[-1][1]:
            usual.append(pace)
            del usual[: -rules.usual_steps]
        return said

    def _is_high(self, name: str) -> Gate:
        rules = self._settings
        ratio = rules.loss_ratio if name == "loss" else rules.grad_norm_ratio

        def high(value: float, base: float, noise: float) -> bool:
            return base > 0.0 and value > ratio * base and value > base + rules.sigmas * noise

        return high

    def _judge(
        self, job: JobCurves, steps: Steps, name: str, value: float, beyond: Gate
    ) -> list[Sighting]:
        rules = self._settings
        curve = job.curves.setdefault(name, Curve(usual=[], recent=[]))
        ready = len(curve.usual) >= rules.usual_min_steps and job.steps > rules.warmup_steps
        base = median(curve.usual) if curve.usual else value
        noise = MAD_TO_SIGMA * median([abs(v - base) for v in curve.usual]) if ready else 0.0
        flagged = ready and beyond(value, base, noise)
        if flagged and not any(f for _, f in curve.recent):
            curve.onset_s = steps.at
        curve.recent.append((value, flagged))
        del curve.recent[: -rules.recent_steps]
        if not flagged:
            curve.usual.append(value)
            del curve.usual[: -rules.usual_steps]
        curve.calm = 0 if flagged else curve.calm + 1
        return self._changes(curve, steps, name, value, base)

    def _changes(
        self, curve: Curve, steps: Steps, name: str, value: float, base: float
    ) -> list[Sighting]:
        rules = self._settings
        flags = sum(f for _, f in curve.recent)
        at_once = name in UP and curve.recent[-1][1] and value >= rules.at_once_ratio * base
        if at_once or flags >= rules.recent_flagged_steps:
            state = "jump" if name in UP else "decline"
        elif curve.recent[-1][1] and name in UP:
            state = curve.open or "spike"
        elif curve.open and curve.calm >= rules.clear_steps:
            state = ""
        else:
            return []
        if state == curve.open or (curve.open == "jump" and state == "spike"):
            return []
        said = []
        if curve.open:
            said.append(_sighting(steps.job, name, curve, active=False))
        curve.open = state
        if state:
            said.append(_sighting(steps.job, name, curve, active=True, value=value, base=base))
        return said

    def snapshot(self) -> Any:
        """The jobs, in the order of their appearance."""
        return msgspec.to_builtins(list(self._jobs.items()))

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        self._jobs = OrderedDict(msgspec.convert(state, list[tuple[str, JobCurves]]))


def _restart(job: JobCurves) -> bool:
    """The job goes on from an earlier step: its steps are not neighbours of the last ones.

    Returns whether a creep of its loss was said: the restart may be its remedy.
    """
    job.steps = 0
    for curve in job.curves.values():
        curve.recent = []
    return job.drift.restart()


def _drift(
    steps: Steps, active: bool, onset_s: float = 0.0, level: float = 0.0, best: float = 0.0
) -> Sighting:
    if not active:
        return Sighting(
            active=False, detector="curves", node="", entity="", metric="loss_drift",
            onset_s=steps.at, job=steps.job,
        )  # fmt: skip
    return Sighting(
        active=True, detector="curves", node="", entity="", metric="loss_drift", onset_s=onset_s,
        kind="loss_anomaly", cause="unknown", severity="warning", job=steps.job,
        observed=six_digits(level), expected=six_digits(best),
        text=f"the loss creeps up: {level:.4g} against its lowest level of {best:.4g} "
        f"({100.0 * (level / best - 1.0):+.0f} %)",
    )  # fmt: skip


def _sighting(
    job: str, name: str, curve: Curve, active: bool, value: float = 0.0, base: float = 0.0
) -> Sighting:
    # A decline is one thing whether the log tells MFU or throughput.
    metric = f"{name if name in UP else 'efficiency'}_{curve.open}"
    if not active:
        return Sighting(
            active=False, detector="curves", node="", entity="", metric=metric,
            onset_s=curve.onset_s, job=job,
        )  # fmt: skip
    jump = curve.open != "spike"
    side = "up to" if name in UP else "down to"
    text = f"{WORDS[name]} went {side} {value:.4g} from its usual {base:.4g}"
    return Sighting(
        active=True, detector="curves", node="", entity="", metric=metric,
        onset_s=curve.onset_s, role="fault" if jump and name in UP else "evidence",
        kind="loss_anomaly" if name in UP else "job_slow", cause="unknown", severity="warning",
        job=job, text=text if jump else f"{text} for a step", observed=six_digits(value),
        expected=six_digits(base), unit="ratio" if name == "mfu_ratio" else "",
    )  # fmt: skip
