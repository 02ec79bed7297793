"""The metrics that a source's frames carry: judged ones first, then those that are only watched."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from detectors.base import FloatArray
from telemetry.metrics import CATALOGUE, Metric

VALUE_MAX = 2.0**64  # no counter counts further; squares of what is below stay finite

# What no GPU that answers its driver has at 0.
VITAL = frozenset({"gpu_power_watts", "gpu_sm_clock_mhz", "gpu_memory_clock_mhz"})


class Rows:
    """Rows in the catalogue's order; `judged` are compared, `watched` are states and context.

    The arrays describe `all` rows, but `bad_high`, `scale` and `performance` only the judged, and
    `wrap_at` only the `counters`, which are the places of these rows; `vital` are the places of
    VITAL.
    """

    def __init__(self, source: str, names: Iterable[str]) -> None:
        base = source.partition("@")[0]  # "gpu@9401" is a second exporter of source "gpu"
        wanted = set(names)
        self.source = source
        self._possible = {row.name for row in CATALOGUE if row.source == base}
        found = [row for row in CATALOGUE if row.source == base and row.name in wanted]
        self.judged: tuple[Metric, ...] = tuple(row for row in found if row.judged)
        self.watched: tuple[Metric, ...] = tuple(row for row in found if not row.judged)
        self.all = (*self.judged, *self.watched)
        self.names = {row.name for row in self.all}
        counters = np.array([m.kind == "counter" for m in self.all], dtype=np.bool_)
        self.counters = np.flatnonzero(counters)
        self.wrap_at = np.array([2.0**m.width_bits for m in self.all])[counters]
        self.low = np.array([max(m.valid_min, -VALUE_MAX) for m in self.all])
        self.high = np.array([min(m.valid_max, VALUE_MAX) for m in self.all])
        self.vital = np.array([i for i, m in enumerate(self.all) if m.name in VITAL], dtype=np.intp)
        self.bad_high = np.array([m.bad == "high" for m in self.judged], dtype=np.bool_)
        self.scale = np.array([m.effect_min for m in self.judged])
        performance = [m.class_ == "performance" for m in self.judged]
        self.performance = np.array(performance, dtype=np.bool_)

    def with_names(self, names: Iterable[str]) -> Rows:
        """These rows and those of `names` that the catalogue has for the source."""
        fresh = self._possible.intersection(names) - self.names
        return Rows(self.source, self.names | fresh) if fresh else self

    def places_in(self, old: Rows) -> NDArray[np.intp]:
        """For each of all rows its place in `old`, -1 where it is new."""
        place = {row.name: i for i, row in enumerate(old.all)}
        return np.array([place.get(row.name, -1) for row in self.all], dtype=np.intp)


def moved_rows(array: FloatArray, source: NDArray[np.intp], width: int) -> FloatArray:
    """(nodes, rows * width) with its rows at new places; a new row (-1) is NaN."""
    nodes = array.shape[0]
    before = array.reshape(nodes, -1, width) if array.size else np.empty((nodes, 0, width))
    after = np.full((nodes, source.size, width), np.nan)
    kept = np.flatnonzero(source >= 0)
    after[:, kept] = before[:, source[kept]]
    return after.reshape(nodes, source.size * width)
