"""When a condition that is judged on ticks began, and how exactly that is known.

A sample speaks for the time since the one before it: what began was there at some moment of the
tick or of the interval before it, and of the ticks without a sample between the two.
"""

from __future__ import annotations

import numpy as np

from detectors.base import FloatArray, Tick


def tick_onset(tick: Tick, row: int, column: int, back: int) -> tuple[float, float]:
    """(onset, resolution) in seconds of what began `back` ticks before this one."""
    window = tick.worst[: max(0, tick.worst.shape[0] - back - 1), row, column]
    heard = np.flatnonzero(~np.isnan(window))
    missed = 0 if heard.size == 0 else window.size - 1 - int(heard[-1])
    return tick.at_s - back * tick.interval_s, (1 + missed) * tick.interval_s


def turning_point(away: FloatArray) -> int:
    """Where in `away` a lasting shift most likely began: its maximum-likelihood change point.

    away     shape (ticks,), oldest first, bad direction positive, NaN missing; it ends in the shift
    returns  the place of the first shifted value; noise just before the shift is not in it
    """
    level = float(np.nanmean(away[-max(1, away.size // 2) :]))
    from_here = np.cumsum(np.nan_to_num(away - level / 2.0)[::-1])[::-1]
    first = int(np.argmax(from_here))
    known = np.flatnonzero(~np.isnan(away[first:]))
    return first + (int(known[0]) if known.size else 0)
