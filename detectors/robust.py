"""Robust centre and scale of peers, leave-one-out, and one step of a CUSUM: plain functions.

Only + - * /, comparisons and sorting, so the result is the same on every machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detectors.base import FloatArray, IntArray

MAD_TO_SIGMA = 1.4826
LEAVE_ONE_OUT_MAX = 8  # in larger groups one value moves the median by less than its own error
OTHERS_MIN = 3
# Croux and Rousseeuw (COMPSTAT 1992): what makes 1.4826 MAD unbiased for n = 2 to 9 values.
_SMALL_SAMPLE = (1.0, 1.0, 1.196, 1.495, 1.363, 1.206, 1.200, 1.140, 1.129, 1.107)


def small_sample_factors(count: IntArray) -> FloatArray:
    """What 1.4826 MAD of `count` values is multiplied with; n / (n - 0.8) above nine."""
    table = np.array(_SMALL_SAMPLE)
    few = table[np.minimum(count, len(_SMALL_SAMPLE) - 1)]
    return np.asarray(np.where(count < len(_SMALL_SAMPLE), few, count / (count - 0.8)))


def peers(
    values: FloatArray, group: IntArray, group_min: int
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """What each node's peers have in the middle, and how far they are spread about it.

    values   shape (metrics, nodes), any units, NaN missing
    group    shape (nodes,), -1 for none
    returns  centre and scale, shape (metrics, nodes): median and 1.4826 MAD of the group, in
             groups of at most `LEAVE_ONE_OUT_MAX` without the node itself; NaN in groups of fewer
             than `group_min` values and for nodes without one
    The scale is that of (value - centre): it contains the error of the centre.
    """
    centre = np.full(values.shape, np.nan)
    scale = np.full(values.shape, np.nan)
    by_size: dict[int, list[NDArray[np.intp]]] = {}
    for members in groups_of(group):
        if members.size >= group_min:
            by_size.setdefault(members.size, []).append(members)
    for size, alike in by_size.items():
        place = np.stack(alike)  # (groups, size): groups of one size are one array
        x = values[:, place]
        if size <= LEAVE_ONE_OUT_MAX:
            middle, spread = others(x, max(OTHERS_MIN, group_min - 1))
        else:
            middle, spread = _all(x, group_min)
        centre[:, place], scale[:, place] = middle, spread
    centre[np.isnan(values)] = np.nan
    return centre, scale


def groups_of(group: IntArray) -> list[NDArray[np.intp]]:
    """The columns of each group, in the order of its number."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    parts = np.split(order, starts[1:])
    return [part for part in parts if part.size and group[part[0]] >= 0]


def _all(x: FloatArray, group_min: int) -> tuple[FloatArray, FloatArray]:
    """Median and scale over the last axis, which stays as an axis of one."""
    count = np.count_nonzero(~np.isnan(x), axis=-1)
    middle = _middle(np.sort(x, axis=-1), count)[..., None]
    mad = _middle(np.sort(np.abs(x - middle), axis=-1), count)
    factor = small_sample_factors(count) * np.sqrt(1.0 + 1.0 / np.maximum(count, 1))
    spread = np.where(count >= group_min, MAD_TO_SIGMA * mad * factor, np.nan)
    return np.where(count[..., None] >= group_min, middle, np.nan), spread[..., None]


def others(x: FloatArray, others_min: int) -> tuple[FloatArray, FloatArray]:
    """For each value the median of the others on its last axis, and their scale about it.

    x        shape (..., values), NaN missing
    returns  two of the same shape, NaN where fewer than `others_min` others have a value
    """
    here = ~np.isnan(x)
    left = np.count_nonzero(here, axis=-1)[..., None] - here
    order = np.argsort(x, axis=-1, kind="stable")  # NaN last
    rank = np.argsort(order, axis=-1, kind="stable")
    ordered = np.take_along_axis(x, order, axis=-1)
    low, high = np.maximum(left - 1, 0) // 2, left // 2
    last = x.shape[-1] - 1
    low = np.minimum(low + (low >= rank), last)
    high = np.minimum(high + (high >= rank), last)
    middle = (
        np.take_along_axis(ordered, low, axis=-1) + np.take_along_axis(ordered, high, axis=-1)
    ) / 2.0
    away = np.abs(x[..., None, :] - middle[..., :, None])
    own = np.arange(x.shape[-1])
    away[..., own, own] = np.nan
    mad = _middle(np.sort(away, axis=-1), left)
    factor = small_sample_factors(left) * np.sqrt(1.0 + np.pi / 2.0 / np.maximum(left, 1))
    enough = here & (left >= others_min)
    return np.where(enough, middle, np.nan), np.where(enough, MAD_TO_SIGMA * mad * factor, np.nan)


def _middle(ordered: FloatArray, count: IntArray) -> FloatArray:
    """Median of the first `count` of the last axis; NaN where there are none."""
    last = ordered.shape[-1] - 1
    low = np.maximum((count - 1) // 2, 0)[..., None]
    high = np.minimum(count // 2, last)[..., None]
    middle = (
        np.take_along_axis(ordered, low, axis=-1) + np.take_along_axis(ordered, high, axis=-1)
    ) / 2.0
    return np.asarray(middle[..., 0])


def cusum(
    total: FloatArray, z: FloatArray, drift: FloatArray, step: float, most: float
) -> FloatArray:
    """The next total of Page's one-sided CUSUM, between 0 and `most`; a missing z changes nothing.

    total, z  any one shape; z in sigmas, positive where bad
    drift     what is taken off each time: half the shift that it is tuned for
    step      the most that one sample adds; one takes off at most 2 `drift` + `step`
    """
    move = np.clip(z, -drift - step, drift + step) - drift
    moved = np.clip(total + move, 0.0, most)
    return np.asarray(np.where(np.isnan(z), total, moved))
