"""Axes with round numbers: which ticks, and where."""

from __future__ import annotations

import math
from dataclasses import dataclass

from console.text import short, utc

_TIME_STEPS_S = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    86_400, 172_800, 604_800, 2_592_000, 31_536_000, 315_360_000,
)  # fmt: skip
VALUE_MAX = 1e300  # beyond it differences overflow; no measurement is


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick at `share` (0 to 1) of the axis; `minor` ones go first where space is short."""

    share: float
    label: str
    minor: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """The range [low, high] of an axis, low < high, and its ticks."""

    low: float
    high: float
    ticks: tuple[Tick, ...]

    def share(self, value: float) -> float:
        """Where `value` stands, 0 at `low`, 1 at `high`; outside values stand at the edge."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


def drawable(value: float | None) -> bool:
    """Whether a value is there and can be drawn."""
    return value is not None and abs(value) <= VALUE_MAX  # false for NaN and infinity


def value_axis(low: float, high: float, ticks_max: int = 5) -> Axis:
    """An axis that holds [low, high], ends on round numbers and never dips below 0 needlessly."""
    assert low <= high
    spread = max(abs(low), abs(high))
    if high - low <= max(1e-9 * spread, 1e-250):  # a flat line stands in the middle
        room = spread * 0.1 if spread > 1e-200 else 1.0
        low, high = (max(0.0, low - room) if low >= 0 else low - room), high + room
    step = _round_step((high - low) / (ticks_max - 1))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    values = [k * step for k in range(first, last + 1)]
    low, high = values[0], values[-1]
    ticks = tuple(Tick((v - low) / (high - low), short(float(f"{v:.6g}"))) for v in values)
    return Axis(low, high, ticks)


def _round_step(rough: float) -> float:
    size = 10.0 ** math.floor(math.log10(rough))
    return next(
        (k * size for k in (1.0, 2.0, 2.5, 5.0) if rough <= k * size * (1 + 1e-9)), 10 * size
    )


def time_axis(low: float, high: float, ticks_max: int = 10) -> Axis:
    """A UTC axis from `low` to `high` (Unix seconds) with ticks on round times of day."""
    assert low <= high
    if high - low < 1.0:
        low, high = low - 0.5, high + 0.5
    span = high - low
    step = next((s for s in _TIME_STEPS_S if span / s <= ticks_max), _TIME_STEPS_S[-1])
    first, last = math.ceil(low / step), math.floor(high / step)
    form = _time_form(step, span)
    # Every second tick is minor, counted from round time so that the plots of one incident agree.
    ticks = tuple(
        Tick((k * step - low) / span, utc(k * step, form), minor=k % 2 == 1)
        for k in range(first, min(last, first + ticks_max) + 1)
    )
    return Axis(low, high, ticks)


def _time_form(step_s: int, span_s: float) -> str:
    if step_s >= 86_400:
        return "%Y-%m-%d"
    if span_s > 86_400:
        return "%d %b %H:%M"
    return "%H:%M" if step_s >= 60 else "%H:%M:%S"
