"""The published rule of slow workers: two standard deviations from the mean, on the slow side.

Slow is high in time and low in throughput; a source prints the other sign for time. Below
`group_min` workers no value can be two deviations away, so fewer are never judged.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detectors.base import FloatArray

SIGMAS = 2.0
RELATIVE_FLOOR = 1e-6  # of the mean: workers in lockstep differ by rounding only


def slow_by_time(seconds: FloatArray, group_min: int) -> NDArray[np.bool_]:
    """Which workers take longer than mean + 2 sd.

    seconds  shape (workers,), NaN missing; a missing one is never slow
    returns  shape (workers,)
    """
    return _above(seconds, group_min)


def slow_by_throughput(per_second: FloatArray, group_min: int) -> NDArray[np.bool_]:
    """Which workers do less than mean - 2 sd; shapes as above."""
    return _above(-per_second, group_min)


def _above(values: FloatArray, group_min: int) -> NDArray[np.bool_]:
    told = ~np.isnan(values)
    if np.count_nonzero(told) < group_min:
        return np.zeros(values.shape, dtype=np.bool_)
    mean = float(np.mean(values[told]))
    floor = RELATIVE_FLOOR * abs(mean)
    with np.errstate(invalid="ignore"):
        return np.asarray(values > mean + max(SIGMAS * float(np.std(values[told])), floor))
