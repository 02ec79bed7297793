"""Puts the rows of one training step together that its nodes send in separate records.

A step is whole when every known rank reported it, or when a step two newer was seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import msgspec
import numpy as np

from detectors.base import FloatArray, IntArray
from detectors.columns import full_column
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

    def restarted(self, parts: Sequence[Part]) -> bool:
        """Whether a rank of the record went back: the job runs again from a checkpoint."""
        return any(self._newest(part.ranks, part.step) > part.step for part in parts)

    def add(self, parts: Sequence[Part], steps: Steps) -> list[WholeStep]:
        """The steps that this record completes, in order; rows of judged steps are too late."""
        for part in parts:
            if self._newest(part.ranks, part.step - 1) < part.step:
                self._put(part, steps)
            else:
                for row in part.single_rows():
                    if self._newest(row.ranks, row.step - 1) < row.step:
                        self._put(row, steps)
        return self._whole()

    def _newest(self, ranks: list[int], otherwise: int) -> int:
        """The newest step that one of the ranks reported; `otherwise` for those that never did."""
        return max(map(self.last.get, ranks, repeat(otherwise)))

    def _put(self, part: Part, steps: Steps) -> None:
        """Rows of ranks that did not report this step before."""
        self.last.update(dict.fromkeys(part.ranks, part.step))
        if self.judged is not None and part.step <= self.judged:
            return
        one = self.pending.get(part.step)
        if one is None:
            one = self.pending[part.step] = Gathering(part.step, steps.at, steps.step_kind)
        one.ranks += part.ranks
        one.nodes += [steps.node] * len(part.ranks)
        one.step_time_s += part.step_time_s
        one.compute_time_s += part.compute_time_s

    def _whole(self) -> list[WholeStep]:
        done: list[WholeStep] = []
        newest = max(self.pending, default=0)
        while self.pending:
            step = min(self.pending)
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


@dataclass(slots=True)
class Part:
    """Rows of one record that speak of the same step; the lists are parallel."""

    step: int
    ranks: list[int]
    step_time_s: list[float | None]
    compute_time_s: list[float | None]

    def single_rows(self) -> Iterator[Part]:
        """Each row by itself."""
        rows = zip(self.ranks, self.step_time_s, self.compute_time_s, strict=True)
        for rank, time_s, compute_s in rows:
            yield Part(self.step, [rank], [time_s], [compute_s])


def parts_of(steps: Steps) -> list[Part]:
    """The rows that say which step they are of; mostly one part, a step that a node ended."""
    ranks = steps.ranks or [WHOLE_JOB]
    rows = len(ranks)
    times_s = full_column(steps.step_time_s, rows)
    compute_s = full_column(steps.compute_time_s, rows)
    if len(steps.step) == 1 and len(set(ranks)) == rows:
        return [Part(steps.step[0], ranks, times_s, compute_s)]
    return [
        Part(step, [rank], [time_s], [one_s])
        for step, rank, time_s, one_s in zip(
            full_column(steps.step, rows), ranks, times_s, compute_s, strict=True
        )
        if step is not None
    ]


def _closed(one: Gathering) -> WholeStep:
    times_s = np.array(one.step_time_s, dtype=np.float64)
    told_s = times_s[~np.isnan(times_s)]
    step_time_s = float(np.median(told_s)) if told_s.size else None
    return WholeStep(
        step=one.step, at_s=one.at_s, began_s=one.at_s - (step_time_s or 0.0), kind=one.kind,
        step_time_s=step_time_s, ranks=np.array(one.ranks, dtype=np.int64), nodes=one.nodes,
        compute_time_s=np.array(one.compute_time_s, dtype=np.float64),
    )  # fmt: skip
