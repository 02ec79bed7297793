"""The job's own time: when each step starts and ends, and what the GPUs do meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.faults import Fault
from evaluation.noise import FloatArray, IntArray, Noise
from telemetry.records import StepKind

TRAIN, PAUSE, HANG, IDLE = range(4)

FIRST_STEP_FACTOR = 4.0
WARMUP_STEPS = 5
CHECKPOINT_STEPS = 100
EVALUATION_STEPS = 500
RESTART_S = 90.0
LAUNCH_S = 2.0
PAUSES_S: dict[str, float] = {"checkpoint": 9.0, "evaluation": 14.0}
_STEP_NOISE = 0.004
_HICCUP_SHARE = 0.003
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
        self._stops = [fault for fault in faults if fault.what.job != "goes on"]
        self._noise = Noise(seed, _PURPOSE)
        self._at_s = start_s + LAUNCH_S
        self._number = 1
        self._since_launch = 0
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
        kind = self._kind()
        slow = max((f.what.slow for f in self._faults if f.active(start_s)), default=1.0)
        load = min((f.what.load for f in self._faults if f.active(start_s)), default=1.0) / slow
        pause_s = PAUSES_S.get(kind, 0.0)
        end_s = start_s + self._duration_s(kind, slow) + pause_s
        stop = next((fault for fault in self._stops if fault.onset_s < end_s), None)
        if pause_s > 0.0:
            self._segment(start_s, PAUSE, load)
        self._segment(start_s + pause_s, TRAIN, load)
        if stop is not None:
            self._stop(stop)
            return None
        step = self._step(kind, start_s, end_s)
        self._at_s = end_s
        self._number += 1
        self._since_launch += 1
        return step

    def _kind(self) -> StepKind:
        if self._since_launch == 0:
            return "first"
        if self._since_launch < WARMUP_STEPS:
            return "warmup"
        if self._number % EVALUATION_STEPS == EVALUATION_STEPS // 2 + 1:
            return "evaluation"
        return "checkpoint" if self._number % CHECKPOINT_STEPS == 1 else "train"

    def _duration_s(self, kind: StepKind, slow: float) -> float:
        factor = slow * (1.0 + _STEP_NOISE * float(self._noise.normal(1)[0]))
        if self._noise.rng.random() < _HICCUP_SHARE:
            factor *= 1.5
        if kind == "first":
            factor *= FIRST_STEP_FACTOR
        elif kind == "warmup":
            factor *= 1.0 + 0.3 * (1.0 - self._since_launch / WARMUP_STEPS)
        return round(self._base_s * factor, 4)

    def _step(self, kind: StepKind, start_s: float, end_s: float) -> Step:
        number, noise = self._number, self._noise.normal(2)
        time_s = round(end_s - start_s, 4)
        is_nan = any(f.what.name == "nan" and f.active(end_s) for f in self._faults)
        # A rational curve: falls from about 11 to 1.8 as real losses do, without exp or log.
        loss = 1.8 + 9.2 / (1.0 + number / 60.0) + 0.02 * float(noise[0])
        grad_norm = 0.4 + 3.0 / (1.0 + number / 40.0) * (1.0 + 0.1 * float(noise[1]))
        return Step(
            number=number,
            start_s=start_s,
            end_s=round(end_s, 3),
            time_s=time_s,
            kind=kind,
            loss=None if is_nan else float(f"{loss:.6E}"),
            grad_norm=None if is_nan else round(grad_norm, 3),
            throughput=round(420.0 * self._base_s / time_s, 1),
            tokens=4_194_304,
        )

    def _stop(self, fault: Fault) -> None:
        """The job ends in the middle of a step, for good or until it restarts itself."""
        self._stops.remove(fault)
        # A fault that strikes while the job restarts finds nothing to stop but delays it.
        onset_s = max(fault.onset_s, self._times[-1])
        self._segment(onset_s, HANG if fault.what.job == "hangs" else IDLE, 0.0)
        if fault.what.job != "restarts":
            self._ended = True
            return
        self._at_s = onset_s + RESTART_S
        self._number = (self._number - 1) // CHECKPOINT_STEPS * CHECKPOINT_STEPS + 1
        self._since_launch = 0

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
