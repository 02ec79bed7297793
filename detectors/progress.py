"""Jobs that stand still: no step, idle tensor cores, silent RDMA; together they are a hang.

Three kinds of evidence, each of which a healthy job shows at times: a checkpoint ends no step, an
evaluation moves other bytes, a first step compiles for minutes. Each phase has a limit of its own,
learned from how long it took before, and a hard ceiling. No step within its limit while the tensor
cores of nearly all nodes idle is a hang; without such a witness only the ceiling makes one.
Sources: ByteRobust (RDMA zero for 10 min), DLRover (idle tensor cores and no step), NVRx (limit =
a multiple of the longest seen).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from statistics import median
from typing import Any

import msgspec
import numpy as np

from detectors.base import Quiet, Sighting, Tick, View
from telemetry.findings import six_digits
from telemetry.records import StepKind, Steps
from telemetry.settings import EngineSettings

TENSOR = "gpu_tensor_active_ratio"
RDMA = ("nic_receive_bytes_total", "nic_transmit_bytes_total")
JOBS_MAX = 1_000
TIMES_MAX, PAUSES_MAX = 32, 8
INIT = "initialisation"
IN_WORDS = {
    INIT: "its start", "first": "its first step", "train": "a training step",
    "evaluation": "an evaluation", "checkpoint": "a checkpoint",
}  # fmt: skip


class Pulse(msgspec.Struct):
    """One job's signs of life.

    phase      what runs now: INIT, "first", "train", "evaluation" or "checkpoint"
    sign_s     arrival of the newest sign, and `ended_s` its event time
    times      phase -> seconds between signs in it, newest last
    pauses     the longer times between training steps that were none of these phases
    stopped    said: no step within the limit; `hung`: said: a hang
    idle_s     since when nearly all tensor cores idle, None while they work
    quiet_s    since when nearly no RDMA byte moves
    """

    phase: str
    sign_s: float
    ended_s: float
    step: int = -1
    attempt: int = 0
    times: dict[str, list[float]] = {}
    pauses: list[float] = []
    stopped: bool = False
    hung: bool = False
    idle: bool = False
    quiet: bool = False
    idle_s: float | None = None
    quiet_s: float | None = None


class Progress(Quiet):
    """Evidence `no_step`, `tensor_idle`, `rdma_zero` of a job; their join is fault `hang`."""

    name = "progress"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings.progress
        self._beat_every_s = settings.ticks.beat_s
        self._jobs: OrderedDict[str, Pulse] = OrderedDict()
        self._beat_s: float | None = None

    # -- signs of life

    def on_steps(self, steps: Steps, view: View, now_s: float) -> Sequence[Sighting]:
        """A step ended, or a phase began or ended."""
        pulse = self._jobs.get(steps.job)
        step = steps.step[0] if len(steps.step) == 1 else max(steps.step, default=-1)
        if pulse is None:
            pulse = self._begin(steps.job, INIT, now_s, steps.at)
        kind: StepKind = "train" if steps.step_kind in ("unknown", "warmup") else steps.step_kind
        if step == pulse.step and kind == "train":
            return ()  # another rank tells of the same step
        if 0 <= step < pulse.step:
            pulse.step = step  # a restart, or a resume from earlier: the pause before it was none
        else:
            self._learn(pulse, now_s)
        timed = any(t is not None for t in steps.step_time_s)
        begins = kind in ("evaluation", "checkpoint", "first") and not timed
        pulse.phase = kind if begins else "train"
        pulse.sign_s, pulse.ended_s, pulse.step = now_s, steps.at, max(step, pulse.step)
        return self._alive(steps.job, pulse, steps.at)

    def _begin(self, job: str, phase: str, now_s: float, at_s: float) -> Pulse:
        pulse = self._jobs[job] = Pulse(
            phase=phase, sign_s=now_s, ended_s=at_s, times={}, pauses=[]
        )
        if len(self._jobs) > JOBS_MAX:
            self._jobs.popitem(last=False)
        return pulse

    def _learn(self, pulse: Pulse, now_s: float) -> None:
        """How long the phase took that now ended; what was called a hang and was none, too."""
        took = now_s - pulse.sign_s
        if took <= 0.0:
            return
        times = pulse.times.setdefault(pulse.phase, [])
        enough = pulse.phase == "train" and len(times) >= self._settings.train_samples
        long = enough and took > self._settings.train_multiple * median(times)
        kept, most = (pulse.pauses, PAUSES_MAX) if long else (times, TIMES_MAX)
        kept.append(took)
        del kept[:-most]

    def _alive(self, job: str, pulse: Pulse, at_s: float) -> list[Sighting]:
        said = [_clear(job, "no_step", at_s)] if pulse.stopped else []
        said += [_clear(job, "hang", at_s)] if pulse.hung else []
        pulse.stopped = pulse.hung = False
        return said

    # -- witnesses

    def on_tick(self, tick: Tick, view: View, now_s: float) -> Sequence[Sighting]:
        """Whether the job's tensor cores idle, and whether its NICs move anything."""
        if tick.partial or not self._jobs:
            return ()
        said: list[Sighting] = []
        idle, quiet = self._idle_nodes(tick), self._quiet_nodes(tick)
        columns = {node: column for column, node in enumerate(tick.nodes)}
        for job, pulse in self._jobs.items():
            mine = [columns[n] for n in view.job_nodes(job, tick.at_s) if n in columns]
            if not mine:
                continue
            if idle is not None:
                said += self._note(job, pulse, "tensor_idle", idle[mine], tick)
            if quiet is not None:
                said += self._note(job, pulse, "rdma_zero", quiet[mine], tick)
        return said

    def _idle_nodes(self, tick: Tick) -> np.ndarray[Any, np.dtype[np.float64]] | None:
        """1 where the node's tensor cores idle, 0 where not, NaN unknown; None: not measured."""
        row = next((r for r, m in enumerate(tick.metrics) if m.name == TENSOR), None)
        if row is None:
            return None
        worst = tick.worst[-1, row]
        return np.where(np.isnan(worst), np.nan, worst <= self._settings.tensor_idle_ratio)

    def _quiet_nodes(self, tick: Tick) -> np.ndarray[Any, np.dtype[np.float64]] | None:
        rows = [r for r, m in enumerate(tick.watched_metrics) if m.name in RDMA]
        if not rows:
            return None
        rates = tick.watched[rows]
        known = ~np.isnan(rates)
        moved = np.where(known, rates, 0.0).sum(axis=2).sum(axis=0)
        some = known.any(axis=2).any(axis=0)
        return np.where(some, moved <= self._settings.rdma_zero_bytes_per_second, np.nan)

    def _note(
        self,
        job: str,
        pulse: Pulse,
        metric: str,
        nodes: np.ndarray[Any, np.dtype[np.float64]],
        tick: Tick,
    ) -> list[Sighting]:
        known = nodes[~np.isnan(nodes)]
        rules = self._settings
        still = known.size > 0 and known.mean() >= rules.nodes_share
        tensor = metric == "tensor_idle"
        since = pulse.idle_s if tensor else pulse.quiet_s
        since = (tick.at_s if since is None else since) if still else None
        held_s = tick.at_s + tick.interval_s - since if since is not None else 0.0
        holds = since is not None and held_s >= (rules.tensor_idle_s if tensor else rules.rdma_s)
        said = pulse.idle if tensor else pulse.quiet
        if tensor:
            pulse.idle_s, pulse.idle = since, holds
        else:
            pulse.quiet_s, pulse.quiet = since, holds
        if said == holds:
            return []
        if not holds:
            return [_clear(job, metric, tick.at_s)]
        what = "tensor cores idle" if tensor else "no RDMA byte moves"
        text = f"{what} on {known.mean():.0%} of {known.size} nodes of {job} for {held_s:g} s"
        assert since is not None
        return [_evidence(job, metric, since, text, held_s)]

    # -- silence

    def advance(self, now_s: float, view: View) -> Sequence[Sighting]:
        """Say which jobs ended no step within their limit, and which of them hang."""
        leap_s = 0.0 if self._beat_s is None else now_s - self._beat_s
        self._beat_s = now_s
        running = {}
        said: list[Sighting] = []
        for job, start_s, attempt in view.running_jobs(now_s):
            running[job] = start_s
            pulse = self._jobs.get(job)
            if pulse is None:
                begun_s = now_s if start_s is None else start_s
                self._begin(job, INIT, begun_s, now_s).attempt = attempt
            elif attempt > pulse.attempt:
                pulse.attempt, pulse.phase = attempt, INIT  # it starts anew, and may take its time
                pulse.sign_s, pulse.ended_s = now_s, now_s
                said += self._alive(job, pulse, now_s)
        for job, pulse in list(self._jobs.items()):
            if running and job not in running:
                said += self._alive(job, pulse, now_s)  # it ended: nothing to wait for
                del self._jobs[job]
                continue
            if leap_s > self._settings.leap_s:
                # The log was cut off: the job may have lived on. Sparse samples count in part.
                pulse.sign_s += leap_s - self._settings.leap_s
            said += self._judge(job, pulse, now_s)
        return said

    def _judge(self, job: str, pulse: Pulse, now_s: float) -> list[Sighting]:
        since_s = now_s - pulse.sign_s
        limit_s = self._limit_s(pulse)
        if since_s + self._beat_every_s <= limit_s:
            return []  # said at the last beat within the limit, not at the first one after it
        said: list[Sighting] = []
        phase = IN_WORDS[pulse.phase]
        text = f"{job} ends no step: {since_s:.0f} s in {phase}, its limit is {limit_s:.0f} s"
        onset_s = pulse.ended_s
        if not pulse.stopped:
            pulse.stopped = True
            said.append(_evidence(job, "no_step", onset_s, text, since_s, limit_s))
        witness = pulse.idle or pulse.quiet
        if not pulse.hung and (witness or since_s > self._ceiling_s(pulse)):
            pulse.hung = True
            seen = " and ".join(
                words
                for held, words in ((pulse.idle, "tensor cores idle"), (pulse.quiet, "RDMA silent"))
                if held
            )
            said.append(
                Sighting(
                    active=True, detector=self.name, node="", entity="", metric="hang",
                    onset_s=onset_s, role="fault", kind="job_hang", cause="unknown",
                    severity="critical", job=job, text=f"{text}, {seen or 'beyond its ceiling'}",
                    observed=six_digits(since_s), expected=six_digits(limit_s), unit="s",
                )
            )  # fmt: skip
        return said

    def _limit_s(self, pulse: Pulse) -> float:
        """The phase's limit: learned, not under its floor, not over its ceiling."""
        rules = self._settings
        times = pulse.times.get(pulse.phase, [])
        ceiling_s = self._ceiling_s(pulse)
        if pulse.phase == "train":
            if len(times) < rules.train_samples:
                return max(rules.train_ceiling_s, rules.train_multiple * max(times, default=0.0))
            # A pause that came back before (a checkpoint that no line announces) is usual.
            usual_s = rules.pause_multiple * sorted(pulse.pauses)[-2] if pulse.pauses[1:] else 0.0
            learned_s = max(rules.train_multiple * median(times), usual_s)
            return min(max(rules.train_floor_s, learned_s), ceiling_s)
        if not times:
            return min(rules.unlearned_s, ceiling_s)
        floor_s = {
            "evaluation": rules.evaluation_floor_s,
            "checkpoint": rules.checkpoint_floor_s,
        }.get(pulse.phase, rules.init_floor_s)
        return min(max(floor_s, rules.phase_multiple * max(times)), ceiling_s)

    def _ceiling_s(self, pulse: Pulse) -> float:
        """Beyond it no witness is needed. That of training follows the job's own step time: steps
        of a quarter of an hour are no hang, nor are those of which too few were seen to tell.
        """
        rules = self._settings
        if pulse.phase == "train":
            times = pulse.times.get("train", [])
            if len(times) >= rules.train_samples:
                return max(rules.train_ceiling_s, rules.train_multiple * median(times))
            return max(
                rules.train_ceiling_s,
                rules.unlearned_s,
                rules.train_multiple * max(times, default=0.0),
            )
        return {
            "evaluation": rules.evaluation_ceiling_s,
            "checkpoint": rules.checkpoint_ceiling_s,
        }.get(pulse.phase, rules.init_ceiling_s)

    # -- snapshots

    def snapshot(self) -> Any:
        """Pulses in the order of their jobs' appearance."""
        return {"jobs": list(self._jobs.items()), "beat_s": self._beat_s}

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        self._beat_s = state["beat_s"]
        self._jobs = OrderedDict(msgspec.convert(state["jobs"], list[tuple[str, Pulse]]))

    def reset(self, source: str) -> None:
        """The source's interval changed: what its ticks witnessed begins anew."""
        for pulse in self._jobs.values():
            if source.startswith("gpu"):
                pulse.idle_s = None
            else:
                pulse.quiet_s = None


def _evidence(
    job: str, metric: str, onset_s: float, text: str, observed: float, expected: float | None = None
) -> Sighting:
    return Sighting(
        active=True, detector="progress", node="", entity="", metric=metric, onset_s=onset_s,
        role="evidence", kind="job_hang", cause="unknown", severity="warning", job=job, text=text,
        observed=six_digits(observed),
        expected=None if expected is None else six_digits(expected), unit="s",
    )  # fmt: skip


def _clear(job: str, metric: str, at_s: float) -> Sighting:
    return Sighting(
        active=False, detector="progress", node="", entity="", metric=metric, onset_s=at_s, job=job
    )
