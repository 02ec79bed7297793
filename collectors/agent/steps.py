"""Training steps as ranks tell them, gathered into few records. Pure.

A healthy node says its steps at most every 5 s, all its ranks in one record; steps in between are
told as their mean. What is no ordinary step is said at once: a NaN, a step that took much longer
than usual, a step number that went back.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from telemetry.records import StepKind, Steps

SOURCE = "training"
EVERY_S = 5.0
LINGER_S = 0.2  # ranks of a node end a step within this
SLOW_RATIO = 2.0  # of the median of the steps before
RECENT = 32
RECENT_MIN = 5
RANKS_MAX = 1_024  # of all jobs that a node may work for
WHOLE_JOB = -1

_MEANS = ("step_time_s", "compute_time_s", "tokens", "throughput", "mfu_ratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One step of one rank that ended at `at_s`; rank None speaks for the job as a whole.

    steps   how many steps its means speak for
    """

    job: str
    rank: int | None
    step: int
    at_s: float
    kind: StepKind = "train"
    step_time_s: float | None = None
    compute_time_s: float | None = None
    loss: float | None = None
    grad_norm: float | None = None
    tokens: float | None = None
    mfu_ratio: float | None = None
    throughput: float | None = None
    nonfinite: tuple[str, ...] = ()
    steps: int = 1


@dataclass(slots=True)
class _Known:
    """What was said of one rank."""

    step: int
    times_s: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))


class StepBatcher:
    """Rows in, records out when they are due. Times are monotonic seconds.

    dropped   rows of ranks beyond `RANKS_MAX`
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._rows: dict[tuple[str, StepKind, int], StepRow] = {}
        self._ready: list[Steps] = []
        self._known: OrderedDict[tuple[str, int], _Known] = OrderedDict()
        self._first_s: float | None = None  # when the oldest row that waits came
        self._said_s = -math.inf
        self._urgent = False
        self.dropped = 0

    def add(self, row: StepRow, now_s: float) -> None:
        """One step ended."""
        key = (row.job, row.kind, WHOLE_JOB if row.rank is None else row.rank)
        before = self._rows.get(key)
        if before is None and len(self._rows) >= RANKS_MAX:
            self.dropped += 1
            return
        if self._is_news(row):
            if before is not None:  # it is not averaged with what came before it
                self._flush()
                before = None
            self._urgent = True
        self._rows[key] = row if before is None else _joined(before, row)
        self._first_s = now_s if self._first_s is None else self._first_s

    def due_s(self) -> float | None:
        """When `take` has something to give; None while nothing waits."""
        if self._first_s is None:
            return -math.inf if self._ready else None
        return -math.inf if self._urgent else max(self._first_s + LINGER_S, self._said_s + EVERY_S)

    def take(self, now_s: float, *, everything: bool = False) -> list[Steps]:
        """The records that are due, or all that wait."""
        due_s = self.due_s()
        if due_s is None or (now_s < due_s and not everything):
            return []
        self._flush()
        self._said_s = now_s
        said, self._ready = self._ready, []
        return said

    def _flush(self) -> None:
        groups: dict[tuple[str, StepKind, bool], list[StepRow]] = {}
        for row in self._rows.values():
            groups.setdefault((row.job, row.kind, row.rank is None), []).append(row)
        for (job, kind, _), rows in groups.items():
            rows.sort(key=lambda row: -1 if row.rank is None else row.rank)
            self._ready.append(self._record(job, kind, rows))
        self._rows, self._first_s, self._urgent = {}, None, False

    def _is_news(self, row: StepRow) -> bool:
        key = (row.job, WHOLE_JOB if row.rank is None else row.rank)
        known = self._known.get(key)
        if known is None:
            self._known[key] = known = _Known(row.step)
            if len(self._known) > RANKS_MAX:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        back, known.step = row.step < known.step, row.step
        slow = False
        if row.step_time_s is not None and row.kind == "train":
            usual = median(known.times_s) if len(known.times_s) >= RECENT_MIN else math.inf
            slow = row.step_time_s > SLOW_RATIO * usual
            known.times_s.append(row.step_time_s)
        return slow or back or bool(row.nonfinite)

    def _record(self, job: str, kind: StepKind, rows: Sequence[StepRow]) -> Steps:
        steps = [row.step for row in rows]
        whole = rows[0].rank is None
        return Steps(
            at=max(row.at_s for row in rows),
            # A log that speaks for a job says nothing of the node on which it lies.
            node="" if whole else self._node,
            source=f"{SOURCE}@{self._node}" if whole else SOURCE,
            started_at=0.0, seq=0, job=job, step_kind=kind,
            ranks=[row.rank for row in rows if row.rank is not None],
            step=steps[:1] if len(set(steps)) == 1 else steps,
            step_time_s=_column([row.step_time_s for row in rows]),
            compute_time_s=_column([row.compute_time_s for row in rows]),
            loss=_column([row.loss for row in rows]),
            grad_norm=_column([row.grad_norm for row in rows]),
            tokens=_column([row.tokens for row in rows]),
            mfu_ratio=_column([row.mfu_ratio for row in rows]),
            throughput=_column([row.throughput for row in rows]),
            nonfinite=[list(row.nonfinite) for row in rows]
            if any(row.nonfinite for row in rows) else [],
        )  # fmt: skip


def _joined(before: StepRow, row: StepRow) -> StepRow:
    """The newer step, its times and rates the means of both."""
    steps = before.steps + row.steps
    means = {name: _mean(before, row, name) for name in _MEANS}
    return replace(row, steps=steps, **means)  # type: ignore[arg-type]


def _mean(before: StepRow, row: StepRow, name: str) -> float | None:
    old: float | None = getattr(before, name)
    new: float | None = getattr(row, name)
    if old is None or new is None:
        return new if old is None else old
    return (old * before.steps + new * row.steps) / (before.steps + row.steps)


def _column(values: list[float | None]) -> list[float | None]:
    """Empty where nobody says anything."""
    return [] if all(value is None for value in values) else values
