"""Puts the rows of one training step together that its nodes send in separate records.

A step is whole when every known rank reported it, or when a step two newer was seen.
"""

from __future__ import annotations

import msgspec
import numpy as np

from detectors.base import FloatArray, IntArray
from detectors.columns import value_at
from telemetry.records import StepKind, Steps

WHOLE_JOB = -1  # the rank under which a log speaks for the job as a whole
NEWER_STEPS = 2
KNOWN_STEPS = 8  # a rank that is missing from so many judged steps is no longer waited for
PENDING_MAX = 16


class Gathering(msgspec.Struct):
    """Rows of one step so far; the columns are parallel, None missing."""

    step: int
    at_s: float
    kind: StepKind
    ranks: list[int] = []
    nodes: list[str] = []
    step_time_s: list[float | None] = []
    compute_time_s: list[float | None] = []


class WholeStep(msgspec.Struct, frozen=True):
    """One step of one job.

    began_s         event time at which it began: its first report minus its step time
    step_time_s     median over the ranks, None where no rank said
    ranks, nodes    parallel; nodes "" where the record named none
    compute_time_s  shape (ranks,), NaN missing
    """

    step: int
    at_s: float
    began_s: float
    kind: StepKind
    step_time_s: float | None
    ranks: IntArray
    nodes: list[str]
    compute_time_s: FloatArray


class Gatherer(msgspec.Struct):
    """One job's steps under way.

    last      rank -> the last step it reported; what is below it is a restart
    judged    the newest step handed on, None before the first
    """

    pending: dict[int, Gathering] = {}
    last: dict[int, int] = {}
    judged: int | None = None

    def restarted(self, steps: Steps) -> bool:
        """Whether a rank of the record went back: the job runs again from a checkpoint."""
        return any(step < self.last.get(rank, step) for rank, step, *_ in _rows(steps))

    def add(self, steps: Steps) -> list[WholeStep]:
        """The steps that this record completes, in order; rows of judged steps are too late."""
        for rank, step, time_s, compute_s in _rows(steps):
            if step <= self.last.get(rank, step - 1):
                continue
            self.last[rank] = step
            if self.judged is not None and step <= self.judged:
                continue
            one = self.pending.get(step)
            if one is None:
                one = self.pending[step] = Gathering(step, steps.at, steps.step_kind)
            one.ranks.append(rank)
            one.nodes.append(steps.node)
            one.step_time_s.append(time_s)
            one.compute_time_s.append(compute_s)
        return self._whole()

    def _whole(self) -> list[WholeStep]:
        done: list[WholeStep] = []
        newest = max(self.pending, default=0)
        for step in sorted(self.pending):
            full = len(self.pending[step].ranks) >= len(self.last)
            crowded = len(self.pending) > PENDING_MAX
            if not (full or step + NEWER_STEPS <= newest or crowded):
                break
            done.append(_closed(self.pending.pop(step)))
            self.judged = step
        if done and self.judged is not None:
            oldest = self.judged - KNOWN_STEPS
            self.last = {rank: step for rank, step in self.last.items() if step >= oldest}
        return done


def _rows(steps: Steps) -> list[tuple[int, int, float | None, float | None]]:
    """(rank, step, step time, compute time) of each row that says which step it is."""
    ranks = steps.ranks or [WHOLE_JOB]
    rows = []
    for row, rank in enumerate(ranks):
        step = value_at(steps.step, row)
        if step is not None:
            rows.append(
                (rank, step, value_at(steps.step_time_s, row), value_at(steps.compute_time_s, row))
            )
    return rows


def _closed(one: Gathering) -> WholeStep:
    times = [time_s for time_s in one.step_time_s if time_s is not None]
    step_time_s = float(np.median(times)) if times else None
    compute = [np.nan if c is None else c for c in one.compute_time_s]
    return WholeStep(
        step=one.step, at_s=one.at_s, began_s=one.at_s - (step_time_s or 0.0), kind=one.kind,
        step_time_s=step_time_s, ranks=np.array(one.ranks, dtype=np.int64), nodes=one.nodes,
        compute_time_s=np.array(compute, dtype=np.float64),
    )  # fmt: skip
