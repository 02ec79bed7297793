"""Compute time of every rank, before the collective that makes all ranks equally slow.

The spread is that of the published ByteDance traces (docs/simulator.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from evaluation.cluster import Cluster
from evaluation.faults import Fault
from evaluation.noise import FloatArray, Noise
from evaluation.training import Step

COMPUTE_SHARE = 0.75
REPORT_S = 5.0
RANK_OFFSET = 0.0036  # lasting spread of ranks that do the same work
RANK_NOISE = 0.004  # from step to step
RANK_TAIL = (0.03, 3.0)  # share of a rank's steps that vary more, and how much more
LAST_STAGE = 1.045  # it computes the loss besides
_PURPOSE = 4


class RankSteps:
    """Compute times per node, at most one report per node in `REPORT_S`."""

    def __init__(self, cluster: Cluster, faults: Sequence[Fault], step_time_s: float) -> None:
        self._faults = [f for f in faults if f.what.ranks or f.what.uneven > 0.0]
        self._base_s = step_time_s * COMPUTE_SHARE
        self._noise = Noise(cluster.seed, _PURPOSE)
        stages = np.array(cluster.stages)
        last = (stages == stages.max()) & (stages > 0)
        ranks = self._noise.normal(cluster.nodes, cluster.gpus)
        self._usual = np.where(last, LAST_STAGE, 1.0)[:, None] * (1.0 + RANK_OFFSET * ranks)
        self._said_s = float("-inf")

    def due(self, step: Step) -> Iterator[tuple[int, list[float | None]]]:
        """(node position, compute time in seconds of each of its ranks)."""
        if step.end_s - self._said_s < REPORT_S:
            return
        self._said_s = step.end_s
        noise = RANK_NOISE * self._noise.normal(*self._usual.shape)
        share, more = RANK_TAIL
        noise.flat[self._noise.places(noise.size, share)] *= more
        times = self._base_s * self._usual * (1.0 + noise)
        if step.kind in ("first", "warmup"):
            times *= 1.3
        for fault in self._faults:
            if fault.active(step.start_s):
                self._slow_down(times, fault, step)
        times = np.rint(times * 1e4) / 1e4
        yield from enumerate(times.tolist())

    def _slow_down(self, times: FloatArray, fault: Fault, step: Step) -> None:
        extra = 1.0 + (fault.slow(step.start_s) - 1.0) / COMPUTE_SHARE
        if fault.what.uneven > 0.0:
            # The mean rank has its share of the slowdown, the slowest of the step all of it.
            spread = 1.0 + fault.what.uneven * fault.size * self._noise.normal(*times.shape)
            times *= np.maximum(spread, 0.5)
        elif fault.what.ranks == "unit":
            times[fault.place, fault.gpu] *= extra
        else:
            times[list(fault.places)] *= extra
