"""Profiling ratios that stand at zero while the GPUs are busy: the collector's fault (DCGM#303).

NVIDIA/DCGM#303 and #202: after an Xid the profiling module stops counting while plain utilisation
says 100 %. Such a zero is no value.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detectors.base import Tick

ENGINE = "gpu_engine_active_ratio"
BUSY = "gpu_utilization_percent"
PROFILED = frozenset(
    {ENGINE, "gpu_sm_active_ratio", "gpu_tensor_active_ratio", "gpu_dram_active_ratio"}
)


def stuck_cells(tick: Tick, busy_percent: float) -> NDArray[np.bool_] | None:
    """Which cells of the newest tick are a stuck zero, shape (metrics, nodes); None for none.

    The engine of a GPU cannot be idle while the least used GPU of the node is busy. The other
    ratios are not believed where the engine's is not: one module counts them all.
    """
    rows = {metric.name: row for row, metric in enumerate(tick.metrics)}
    if ENGINE not in rows or BUSY not in rows:
        return None
    now = tick.worst[-1]
    with np.errstate(invalid="ignore"):
        nodes = (now[rows[ENGINE]] == 0.0) & (now[rows[BUSY]] >= busy_percent)
    if not nodes.any():
        return None
    profiled = np.array([metric.name in PROFILED for metric in tick.metrics])
    with np.errstate(invalid="ignore"):
        return np.asarray(profiled[:, None] & nodes[None, :] & (now == 0.0))
