"""Array kernels of the engine: plain functions, float64, no order but the one given.

Nothing here may depend on CPU features: no exp, log or BLAS; sums run over nodes sorted by name.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detectors.base import FlagArray, FloatArray, IntArray

MISSING, NORMAL, ABNORMAL = 0, 1, 2
TIE = 1e-9  # "beyond" means by more than this share of the bound, so that a tie is no coin toss


def counter_rates(
    now: FloatArray, before: FloatArray, elapsed_s: FloatArray, wrap_at: FloatArray,
    rebooted: NDArray[np.bool_] | None = None,
) -> FloatArray:  # fmt: skip
    """Counts per second between two readings of the same counters.

    now, before  shape (nodes, metrics, entities), raw counts, NaN missing
    elapsed_s    shape (nodes,), real seconds between the readings; NaN or <= 0 gives NaN
    wrap_at      shape (metrics,), 2**width; a decrease from the upper half of the range of a
                 counter of at most 32 bits is a wrap, any other decrease a reset, after which all
                 that is counted is new
    rebooted     shape (nodes,), whether the boot id changed in between: all counts are new
    A reading that `remembered` made negative is what a counter had before it fell to 0: an exporter
    that forgot for a moment goes on from there, one that was set back counts from 0.
    returns      the shape of `now`, >= 0
    """
    held = before < 0.0
    if held.any():
        before = np.where(held, np.where(now >= -before, -before, 0.0), before)
    delta = now - before
    falls = delta < 0.0
    if falls.any():
        limit = wrap_at[None, :, None]
        wraps = falls & (limit <= 2.0**32) & (before > limit / 2) & (now < limit / 2)
        delta = np.where(wraps, delta + limit, np.where(falls, now, delta))
    if rebooted is not None and rebooted.any():
        fresh = np.where(np.isnan(before), np.nan, now)
        delta = np.where(rebooted[:, None, None], fresh, delta)
    seconds = np.where(elapsed_s > 0.0, elapsed_s, np.nan)
    return np.asarray(delta / seconds[:, None, None], dtype=np.float64)


def remembered(now: FloatArray, before: FloatArray) -> FloatArray:
    """What the next reading of the same counters is compared with, in the shape of both.

    The reading itself; but of a counter that stands at 0 and had something before, minus that.
    What was not read (NaN) is as unknown as before.
    """
    fallen = (now == 0.0) & (np.abs(before) > 0.0)
    return np.where(fallen, -np.abs(before), now) if fallen.any() else now


def worst_entity(values: FloatArray, bad_high: NDArray[np.bool_]) -> tuple[FloatArray, IntArray]:
    """The worst entity of each node and metric in the metric's bad direction.

    values    shape (nodes, metrics, entities), NaN missing
    bad_high  shape (metrics,), True where high is bad
    returns   worst, shape (metrics, nodes), NaN where all are missing; and its entity's index,
              -1 there
    """
    sign = np.where(bad_high, 1.0, -1.0)[:, None]
    # By entity, so that each pass runs over the nodes, which lie side by side.
    bad = np.array(values.transpose(2, 1, 0), order="C")
    bad *= sign
    top = np.fmax.reduce(bad, axis=0, initial=-np.inf)
    before: IntArray = np.zeros(top.shape, dtype=np.int64)  # entities before the first worst one
    searched = np.ones(top.shape, dtype=np.bool_)
    for one in bad:
        searched &= one != top
        before += searched
    missing = np.isneginf(top)
    # A zero is given without its sign, of which fmax makes no promise.
    worst = np.where(missing, np.nan, top * sign + 0.0)
    return worst, np.where(missing, -1, before)


def group_moments(
    values: FloatArray, group: IntArray, groups: int, group_min: int
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Mean and population standard deviation of each metric over each peer group.

    values   shape (metrics, nodes), NaN missing, nodes sorted by name
    group    shape (nodes,), in [0, groups) or -1
    returns  mean and sd, shape (metrics, groups), NaN where fewer than `group_min` nodes have a
             value; and how many have one, shape (metrics, groups)
    """
    metrics = values.shape[0]
    mean = np.full((metrics, groups), np.nan)
    sd = np.full((metrics, groups), np.nan)
    count = np.zeros((metrics, groups), dtype=np.int64)
    for g in range(groups):
        members = np.flatnonzero(group == g)
        if members.size == 0:
            continue
        x = values if members.size == values.shape[1] else values[:, members]
        present = ~np.isnan(x)
        n = present.sum(axis=1)
        count[:, g] = n
        with np.errstate(invalid="ignore", divide="ignore"):
            m = np.where(present, x, 0.0).sum(axis=1) / n
            d = np.where(present, x - m[:, None], 0.0)
            s = np.sqrt((d * d).sum(axis=1) / n)
        enough = n >= group_min
        mean[:, g] = np.where(enough, m, np.nan)
        sd[:, g] = np.where(enough, s, np.nan)
    return mean, sd, count


def beyond(
    values: FloatArray,
    mean: FloatArray,
    sd: FloatArray,
    sigmas: float,
    bad_high: NDArray[np.bool_],
    scale: FloatArray,
) -> NDArray[np.bool_]:
    """Where a value lies beyond mean + sigmas * sd in the bad direction, ties excluded.

    values, mean, sd  shape (metrics, nodes); NaN anywhere is "not beyond"
    bad_high, scale   shape (metrics,); `scale` is the size below which a bound counts as zero
    Aegis (NSDI'25) publishes the high side only; the low side is our labelled extension.
    """
    sign = np.where(bad_high, 1.0, -1.0)[:, None]
    bound = mean + sign * sigmas * sd
    slack = TIE * np.maximum(np.abs(bound), scale[:, None])
    with np.errstate(invalid="ignore"):
        return np.asarray(sign * (values - bound) > slack)


def run_of_abnormal(flags: FlagArray, ticks: int, coverage: float) -> NDArray[np.bool_]:
    """Abnormal at every tick of the last `ticks` that has a sample, with enough samples.

    flags    shape (window, metrics, nodes), oldest first; window may be longer than `ticks`
    returns  shape (metrics, nodes); a missing tick neither breaks nor extends the run, samples are
             needed in at least `coverage` of the ticks, and in the last one
    """
    last = flags[-ticks:]
    abnormal = np.asarray(last[-1] == ABNORMAL)
    cells = np.nonzero(abnormal)  # the few that may be it
    run = last[:, cells[0], cells[1]]
    broken = (run == NORMAL).any(axis=0)
    samples = np.count_nonzero(run, axis=0)
    abnormal[cells] = ~broken & (samples >= needed_samples(ticks, coverage))
    return abnormal


def needed_samples(ticks: int, coverage: float) -> int:
    """Smallest whole number of samples that covers `coverage` of `ticks`."""
    exact = ticks * coverage
    whole = int(exact)
    return whole if exact - whole <= TIE * ticks else whole + 1
