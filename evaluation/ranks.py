"""Compute time of every rank, before the collective that makes all ranks equally slow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from evaluation.cluster import Cluster
from evaluation.faults import Fault
from evaluation.noise import Noise
from evaluation.training import Step

COMPUTE_SHARE = 0.75
REPORT_S = 5.0
_PURPOSE = 4


class RankSteps:
    """Compute times per node, at most one report per node in `REPORT_S`."""

    def __init__(self, cluster: Cluster, faults: Sequence[Fault], step_time_s: float) -> None:
        self._cluster = cluster
        self._faults = [f for f in faults if f.what.slow > 1.0 or f.what.job == "hangs"]
        self._base_s = step_time_s * COMPUTE_SHARE
        self._noise = Noise(cluster.seed, _PURPOSE)
        stages = np.array(cluster.stages, dtype=np.float64)
        ranks = self._noise.normal(cluster.nodes, cluster.gpus)
        # The last stage also computes the loss; a rank is up to a percent off for good.
        self._usual = (1.0 + 0.01 * stages)[:, None] * (1.0 + 0.003 * ranks)
        self._said_s = float("-inf")

    def due(self, step: Step) -> Iterator[tuple[int, list[float | None]]]:
        """(node position, compute time in seconds of each of its ranks)."""
        if step.end_s - self._said_s < REPORT_S:
            return
        self._said_s = step.end_s
        noise = self._noise.normal(*self._usual.shape)
        times = self._base_s * self._usual * (1.0 + 0.008 * noise)
        if step.kind in ("first", "warmup"):
            times *= 1.3
        for fault in self._faults:
            if fault.active(step.start_s):
                extra = 1.0 + (fault.what.slow - 1.0) / COMPUTE_SHARE
                if fault.what.name == "thermal":
                    times[fault.place, fault.gpu] *= extra
                elif fault.what.scope == "job":
                    times[list(fault.places)] *= extra
        times = np.rint(times * 1e4) / 1e4
        yield from enumerate(times.tolist())
