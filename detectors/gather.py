"""Puts the records of one training step together that its nodes send one by one.

A step is whole when everybody known reported it, or when a step two newer was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import msgspec
import numpy as np

from detectors.base import FloatArray, IntArray
from detectors.columns import full_column, value_at
from telemetry.records import StepKind, Steps

WHOLE_JOB = -1  # the rank under which a log speaks for the job as a whole
NEWER_STEPS = 2
KNOWN_STEPS = 8  # who is missing from so many judged steps is no longer waited for
PENDING_MAX = 16


class WholeStep(msgspec.Struct, frozen=True):
    """One step of one job.

    began_s         event time at which it began: its first report minus its step time
    step_time_s     median over the ranks, None where no rank said
    ranks           shape (ranks,), each once
    report          shape (ranks,), the place in `nodes` of the record that spoke for the rank
    nodes           who sent each record, "" where it named no node
    compute_time_s  shape (ranks,), NaN missing
    throughput      shape (ranks,), NaN missing; only where no rank told its compute time
    tokens          of all records together, None where one of them did not say
    """

    step: int
    at_s: float
    began_s: float
    kind: StepKind
    step_time_s: float | None
    ranks: IntArray
    report: IntArray
    nodes: list[str]
    compute_time_s: FloatArray
    tokens: float | None = None
    throughput: FloatArray | None = None


class Gatherer(msgspec.Struct):
    """One job's steps under way. A reporter goes by the first rank that its records speak for.

    pending   step -> its records so far, one a reporter
    last      reporter -> the last step it reported; what is below it is a restart
    judged    the newest step handed on, None before the first
    """

    pending: dict[int, list[Steps]] = {}
    last: dict[int, int] = {}
    judged: int | None = None

    def restarted(self, records: Sequence[Steps]) -> bool:
        """Whether a reporter went back: the job runs again from a checkpoint."""
        for one in records:
            step = one.step[0]
            if self.last.get(_reporter(one), step) > step:
                return True
        return False

    def add(self, records: Sequence[Steps]) -> list[WholeStep]:
        """The steps that records of one step each complete, in order; judged ones are past."""
        pending, last, judged, another = self.pending, self.last, self.judged, False
        for one in records:
            reporter, step = _reporter(one), one.step[0]
            if step <= last.get(reporter, step - 1):
                continue
            last[reporter] = step
            if judged is None or step > judged:
                known = pending.get(step)
                if known is None:
                    pending[step], another = [one], True
                else:
                    known.append(one)
        # Most records make nothing whole: there the oldest step still lacks somebody.
        if another or (pending and len(pending[min(pending)]) >= len(last)):
            return self._whole()
        return []

    def _whole(self) -> list[WholeStep]:
        done: list[WholeStep] = []
        newest = max(self.pending, default=0)
        while self.pending:
            step = min(self.pending)
            full = len(self.pending[step]) >= len(self.last)
            crowded = len(self.pending) > PENDING_MAX
            if not (full or step + NEWER_STEPS <= newest or crowded):
                break
            done.append(_closed(step, self.pending.pop(step)))
            self.judged = step
        if done and self.judged is not None:
            oldest = self.judged - KNOWN_STEPS
            self.last = {who: step for who, step in self.last.items() if step >= oldest}
        return done


def by_step(steps: Steps) -> list[Steps]:
    """Records of one step each: mostly the record itself. Rows that name no step are left out."""
    if len(steps.step) == 1:
        return [steps]
    rows = len(steps.ranks) or 1
    times_s, compute_s = steps.step_time_s, steps.compute_time_s
    return [
        msgspec.structs.replace(
            steps, ranks=steps.ranks[row : row + 1], step=[step],
            step_time_s=[value_at(times_s, row)], compute_time_s=[value_at(compute_s, row)],
            tokens=[value_at(steps.tokens, row)], throughput=[value_at(steps.throughput, row)],
        )
        for row, step in enumerate(full_column(steps.step, rows))
        if step is not None
    ]  # fmt: skip


def _reporter(steps: Steps) -> int:
    return steps.ranks[0] if steps.ranks else WHOLE_JOB


def _closed(step: int, records: list[Steps]) -> WholeStep:
    ranks = [one.ranks or [WHOLE_JOB] for one in records]
    sizes = list(map(len, ranks))
    listed = list(chain.from_iterable(ranks))
    all_ranks = np.fromiter(listed, dtype=np.int64, count=len(listed))
    once: slice | IntArray = slice(None)
    if len(set(listed)) < len(listed):  # a rank that two records speak for: the first did
        once = np.sort(np.unique(all_ranks, return_index=True)[1])
    times_s = _spread([one.step_time_s for one in records], sizes)[once]
    told_s = times_s[~np.isnan(times_s)]
    step_time_s = float(np.median(told_s)) if told_s.size else None
    at_s = records[0].at
    compute_s = _spread([one.compute_time_s for one in records], sizes)[once]
    throughput = None
    if np.isnan(compute_s).all() and any(one.throughput for one in records):
        throughput = _spread([one.throughput for one in records], sizes)[once]
    return WholeStep(
        step=step, at_s=at_s, began_s=at_s - (step_time_s or 0.0), kind=records[0].step_kind,
        step_time_s=step_time_s, ranks=all_ranks[once],
        report=np.repeat(np.arange(len(records)), sizes)[once],
        nodes=[one.node for one in records],
        compute_time_s=compute_s,
        tokens=_tokens(records), throughput=throughput,
    )  # fmt: skip


def _tokens(records: list[Steps]) -> float | None:
    told = [value for one in records for value in one.tokens or [None]]
    known = [value for value in told if value is not None]
    return sum(known) if len(known) == len(told) else None


def _spread(columns: list[list[float | None]], sizes: list[int]) -> FloatArray:
    """The columns one after the other, each of its size, NaN missing."""
    values: list[float | None] = []
    for column, size in zip(columns, sizes, strict=True):
        values += column if len(column) == size else full_column(column, size)
    return np.fromiter(values, dtype=np.float64, count=len(values))
