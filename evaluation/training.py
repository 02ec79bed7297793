"""The job's own time: when each step starts and ends, and what the GPUs do meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.faults import Fault
from evaluation.losses import Losses
from evaluation.noise import FloatArray, IntArray, Noise
from telemetry.records import StepKind

# What the GPUs do; a stalled job holds its memory and computes nothing, a hanging one spins.
TRAIN, PAUSE, HANG, IDLE, STALL = range(5)

FIRST_STEP_FACTOR = 4.0
WARMUP_STEPS = 5
CHECKPOINT_STEPS = 100
EVALUATION_STEPS = 500
LAUNCH_S = 2.0
PAUSES_S: dict[str, float] = {"checkpoint": 9.0, "evaluation": 14.0}
TOKENS = 4_194_304
TFLOPS = 420.0
# Step-time jitter as in the logs of real jobs: docs/simulator.md has the numbers.
STEP_NOISE = 0.004
STEP_TAIL = (0.3, 3.25)  # share of steps that vary more, and how much more
HICCUP_SHARE = 0.003
HANG_AFTER_S = 3.0  # into the evaluation or checkpoint that hangs
_SEGMENTS_MAX = 4_096
_PURPOSE = 3


@dataclass(frozen=True, slots=True)
class Step:
    """One training step of the whole job; times in Unix seconds, `time_s` what the log prints."""

    number: int
    start_s: float
    end_s: float
    time_s: float
    kind: StepKind
    loss: float | None
    grad_norm: float | None
    throughput: float
    tokens: int


class Training:
    """A synchronous job as a lazy timeline. Steps come in order and only once."""

    def __init__(
        self, start_s: float, step_time_s: float, faults: Sequence[Fault], seed: int
    ) -> None:
        self._base_s = step_time_s
        self._faults = faults
        self._due = [f for f in faults if f.what.phase in PAUSES_S]
        self._stops = [f for f in faults if f.what.job != "goes on" and f not in self._due]
        self._noise = Noise(seed, _PURPOSE)
        self._losses = Losses(faults)
        self._at_s = start_s + LAUNCH_S
        self._number = 1
        self._since_launch = 0
        self._first_s: float | None = None
        self._ended = False
        self._times = [-np.inf]
        self._states = [IDLE]
        self._loads = [0.0]

    def advance(self, horizon_s: float) -> Iterator[Step]:
        """The steps that start before `horizon_s` and end, oldest first."""
        while not self._ended and self._at_s < horizon_s:
            step = self._next_step()
            if step is not None:
                yield step

    def states(self, at_s: FloatArray) -> tuple[IntArray, FloatArray]:
        """What the GPUs do at each time (TRAIN, ...) and how hard (1 is normal)."""
        places = np.searchsorted(np.array(self._times), at_s, side="right") - 1
        return np.array(self._states)[places], np.array(self._loads)[places]

    def _next_step(self) -> Step | None:
        start_s = self._at_s
        forced = next((fault for fault in self._due if fault.active(start_s)), None)
        kind = self._kind(forced)
        slow = max((f.slow(start_s) for f in self._faults), default=1.0)
        load = min((f.load(start_s) for f in self._faults), default=1.0) / slow
        pause_s = self._pause_s(kind, start_s)
        end_s = start_s + self._duration_s(kind, slow, start_s) + pause_s
        if pause_s > 0.0:
            self._segment(start_s, PAUSE, load)
        if forced is not None:
            self._due.remove(forced)
            if forced.what.job == "hangs":
                self._hang_in_pause(forced, start_s)
                return None
        self._segment(start_s + pause_s, TRAIN, load)
        stop = next((fault for fault in self._stops if fault.onset_s < end_s), None)
        if stop is not None:
            self._stop(stop)
            return None
        step = self._step(kind, start_s, end_s)
        self._at_s = end_s
        self._number += 1
        self._since_launch += 1
        return step

    def _kind(self, forced: Fault | None) -> StepKind:
        """What kind of step comes; a fault of a phase brings that phase on at once."""
        if forced is not None:
            return "evaluation" if forced.what.phase == "evaluation" else "checkpoint"
        if self._since_launch == 0:
            return "first"
        if self._since_launch < WARMUP_STEPS:
            return "warmup"
        if self._number % EVALUATION_STEPS == EVALUATION_STEPS // 2 + 1:
            return "evaluation"
        return "checkpoint" if self._number % CHECKPOINT_STEPS == 1 else "train"

    def _pause_s(self, kind: StepKind, start_s: float) -> float:
        """How long the GPUs wait before the step's own work begins."""
        if kind == "first" and self._first_s is not None:
            return max(0.0, self._first_s - self._base_s * FIRST_STEP_FACTOR)
        for fault in self._faults:
            pause_s = fault.what.pause_s
            if pause_s is not None and fault.what.phase == kind and fault.active(start_s):
                return pause_s
        return PAUSES_S.get(kind, 0.0)

    def _duration_s(self, kind: StepKind, slow: float, start_s: float) -> float:
        jitter = STEP_NOISE * float(self._noise.normal(1)[0])
        share, more = STEP_TAIL
        if self._noise.rng.random() < share:
            jitter *= more
        factor = slow * (1.0 + jitter)
        if self._noise.rng.random() < HICCUP_SHARE:
            factor *= 1.5
        for fault in self._faults:
            share, more = fault.what.pauses
            if share > 0.0 and fault.active(start_s) and self._noise.rng.random() < share:
                factor *= 1.0 + (more - 1.0) * fault.size
        if kind == "first":
            factor *= FIRST_STEP_FACTOR
        elif kind == "warmup":
            factor *= 1.0 + 0.3 * (1.0 - self._since_launch / WARMUP_STEPS)
        return round(self._base_s * factor, 4)

    def _step(self, kind: StepKind, start_s: float, end_s: float) -> Step:
        noise = self._noise.normal(2)
        time_s = round(end_s - start_s, 4)
        loss, grad_norm = self._losses.at(
            self._number, self._since_launch, end_s, float(noise[0]), float(noise[1])
        )
        work = 1.0
        for fault in self._faults:
            if fault.active(start_s):
                work *= 1.0 + (fault.what.work - 1.0) * fault.size
        pace = self._base_s * work / time_s
        return Step(
            number=self._number,
            start_s=start_s,
            end_s=round(end_s, 3),
            time_s=time_s,
            kind=kind,
            loss=loss,
            grad_norm=grad_norm,
            throughput=round(TFLOPS * pace, 1),
            tokens=round(TOKENS * work),
        )

    def _stop(self, fault: Fault) -> None:
        """The job ends in the middle of a step, for good or until it restarts itself."""
        self._stops.remove(fault)
        # A fault that strikes while the job restarts finds nothing to stop but delays it.
        onset_s = max(fault.onset_s, self._times[-1])
        again_s = onset_s + fault.what.down_s
        hangs_at_once = fault.what.job == "hangs" and not fault.what.phase
        self._segment(onset_s, HANG if hangs_at_once else IDLE, 0.0)
        if fault.what.phase:
            self._segment(again_s, HANG if fault.what.phase == "first" else STALL, 0.0)
        if fault.what.job != "restarts":
            self._ended = True
            return
        self._at_s = again_s
        self._first_s = fault.what.first_s
        self._number = (self._number - 1) // CHECKPOINT_STEPS * CHECKPOINT_STEPS + 1
        self._since_launch = 0
        if fault.what.warms_up:
            self._losses.restart(self._number)

    def _hang_in_pause(self, fault: Fault, start_s: float) -> None:
        """An evaluation hangs in a collective, a checkpoint while it writes."""
        state = HANG if fault.what.phase == "evaluation" else STALL
        self._segment(start_s + HANG_AFTER_S, state, 0.0)
        self._ended = True

    def _segment(self, start_s: float, state: int, load: float) -> None:
        start_s = max(start_s, self._times[-1])  # a stop may come before the pause is over
        if (state, load) == (self._states[-1], self._loads[-1]):
            return
        self._times.append(start_s)
        self._states.append(state)
        self._loads.append(load)
        if len(self._times) > 2 * _SEGMENTS_MAX:
            del self._times[:_SEGMENTS_MAX]
            del self._states[:_SEGMENTS_MAX]
            del self._loads[:_SEGMENTS_MAX]
