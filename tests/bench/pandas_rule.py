"""The published rule as one would write it with pandas: the yardstick of the benchmarks."""

from __future__ import annotations

import numpy as np
import pandas as pd

from detectors.base import FloatArray, IntArray


def abnormal(
    raw: FloatArray,
    group: IntArray,
    *,
    counter: bool,
    high: bool,
    interval_s: float,
    ticks: int,
    coverage: float,
) -> pd.DataFrame:
    """Whether each node was beyond mean + 2 sd of its group for the last `ticks`, at every tick.

    raw      shape (time, nodes, entities) of one metric, NaN missing; counters rise
    returns  a frame of (time, nodes), from row `ticks` - 1 on as the rule has it
    """
    time, nodes, entities = raw.shape
    columns = pd.MultiIndex.from_product([range(nodes), range(entities)], names=["node", "entity"])
    frame = pd.DataFrame(raw.reshape(time, -1), columns=columns)
    if counter:
        frame = frame.diff() / interval_s
    by_node = frame.T.groupby(level="node")
    worst = (by_node.max() if high else by_node.min()).T
    by_group = worst.T.groupby(group)
    mean = by_group.transform("mean").T
    sd = by_group.transform(lambda column: column.std(ddof=0)).T
    beyond = worst > mean + 2.0 * sd if high else worst < mean - 2.0 * sd
    known = worst.notna()
    samples = known.rolling(ticks, min_periods=1).sum()
    normal = (known & ~beyond).rolling(ticks, min_periods=1).sum()
    found: pd.DataFrame = (normal == 0) & (samples >= np.ceil(coverage * ticks)) & beyond
    return found
