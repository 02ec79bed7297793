"""Whether steps that were made twice, before and after a planned restart, agree. Pure.

A job that goes on from a checkpoint makes the steps after it once more. With the same code they
agree but for the order of floating-point sums; where they do not, the update changed what is
learned, or how fast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from telemetry.actions import Compared
from telemetry.records import Steps
from telemetry.settings import VersionSettings

NOT_FINITE = 1e9  # the difference, relative, of what was a number and is none any more
WARMUP_STEPS = 2  # after a start the first steps are slow, whatever runs


class Made(msgspec.Struct):
    """One step, as it was made: the mean over those who told of it; None where nobody did.

    step_time_s  of the slowest
    """

    loss: float | None = None
    grad_norm: float | None = None
    step_time_s: float | None = None
    nonfinite: set[str] = set()
    told: dict[str, int] = {}


class Run:
    """The steps of one job, by number; the newest `steps_max` of them."""

    def __init__(self, steps_max: int) -> None:
        self._steps_max = steps_max
        self.steps: dict[int, Made] = {}
        self.last = -1

    def take(self, said: Steps) -> None:
        """Training steps alone count; the same ones of another rank are averaged."""
        if said.step_kind not in ("train", "unknown"):
            return
        for row, number in enumerate(said.step):
            made = self.steps.setdefault(number, Made())
            if row < len(said.nonfinite):
                made.nonfinite.update(said.nonfinite[row])
            _average(made, "loss", _at(said.loss, row))
            _average(made, "grad_norm", _at(said.grad_norm, row))
            took_s = _at(said.step_time_s, row)
            if took_s is not None and took_s > 0.0:
                made.step_time_s = max(made.step_time_s or 0.0, took_s)
            self.last = max(self.last, number)
        while len(self.steps) > self._steps_max:
            del self.steps[min(self.steps)]


def compare(
    before: Run, after: Run, settings: VersionSettings, *, whole: bool = True
) -> list[Compared] | None:
    """Each quantity that was told of enough steps of both runs; [] where none of them was.

    None while the new run has not passed where the earlier one ended: with `whole` more is to come.
    """
    if before.last < 0:
        return []
    if whole and after.last < before.last:
        return None
    common = sorted(before.steps.keys() & after.steps.keys())
    found = [
        _largest("loss", common, before.steps, after.steps, settings.loss_rel, settings.steps_min),
        _largest(
            "grad_norm", common, before.steps, after.steps, settings.grad_norm_rel,
            settings.steps_min,
        ),
        _slower(common, before.steps, after.steps, settings),
    ]  # fmt: skip
    return [one for one in found if one is not None]


def _largest(
    quantity: str, common: Sequence[int], before: Mapping[int, Made], after: Mapping[int, Made],
    limit: float, steps_min: int,
) -> Compared | None:  # fmt: skip
    worst, steps = 0.0, 0
    for number in common:
        was, now = getattr(before[number], quantity), getattr(after[number], quantity)
        broke = quantity in after[number].nonfinite and quantity not in before[number].nonfinite
        if broke and was is not None:
            return Compared(quantity, len(common), NOT_FINITE, limit)
        if was is None or now is None:
            continue
        steps += 1
        scale = max(abs(was), 1e-12)
        worst = max(worst, abs(now - was) / scale)
    return Compared(quantity, steps, worst, limit) if steps >= steps_min else None


def _slower(
    common: list[int], before: Mapping[int, Made], after: Mapping[int, Made],
    settings: VersionSettings,
) -> Compared | None:  # fmt: skip
    """Of throughput: the same steps hold the same tokens, so that their time tells it."""
    pairs = [
        (was, now) for number in common[WARMUP_STEPS:]
        if (was := before[number].step_time_s) is not None
        and (now := after[number].step_time_s) is not None
    ]  # fmt: skip
    if len(pairs) < settings.steps_min:
        return None
    slower = 1.0 - median(was for was, _ in pairs) / median(now for _, now in pairs)
    return Compared("throughput", len(pairs), max(slower, 0.0), settings.throughput_drop_rel)


def _at(column: list[float | None], row: int) -> float | None:
    """Of length 1 where the log speaks for the whole job; None where nobody told, or not finite."""
    if not column:
        return None
    value = column[row] if row < len(column) else column[0] if len(column) == 1 else None
    return value if value is not None and math.isfinite(value) else None


def _average(made: Made, quantity: str, value: float | None) -> None:
    if value is None:
        return
    count = made.told.get(quantity, 0)
    mean = getattr(made, quantity) or 0.0
    setattr(made, quantity, mean + (value - mean) / (count + 1))
    made.told[quantity] = count + 1
