"""The Xid gauges of a dump, which comes series by series, into the order that the fold reads. Pure.

Kept is only where a gauge changed or was absent for a while: a few numbers a series.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from collectors.gauge_events import FORM_OF, GaugeEvents, Reading, xid_label
from collectors.series import Series
from collectors.series_arrays import FloatArray
from telemetry.records import Event

READINGS_MAX = 1_000_000
GAP_INTERVALS = 2.5


class GaugeRuns:
    """Add the runs of a stretch of time in any order, ask for its events, go on with the next.

    dropped   readings beyond `READINGS_MAX`
    metrics   names of the gauges that were there
    """

    def __init__(self) -> None:
        self._readings: list[Reading] = []
        self._starts: dict[str, float] = {}
        self._fold = GaugeEvents()
        self.dropped = 0
        self.metrics: set[str] = set()

    def heard(self, node: str, at_s: float) -> None:
        """The node's exporter answered at `at_s`."""
        self._starts[node] = min(at_s, self._starts.get(node, at_s))

    def add(self, node: str, series: Series, times: FloatArray, values: FloatArray) -> None:
        """A run of one Xid gauge: times rising, NaN where there was no value."""
        assert series.metric is not None
        self.metrics.add(series.metric.name)
        self.heard(node, float(times[0]))
        form, code = FORM_OF[series.metric.name], xid_label(series.labels)
        there = ~np.isnan(values)
        times, values = times[there], values[there]
        for at in _turns(times, values).tolist():
            if len(self._readings) >= READINGS_MAX:
                self.dropped += 1
                continue
            self._readings.append(
                Reading(node, series.entity, form, float(times[at]), float(values[at]), code)
            )

    def events(self) -> Iterator[Event]:
        """All that happened since it was asked last, node by node in the order of time."""
        readings, self._readings = self._readings, []
        readings.sort(key=lambda r: (r.node, r.at_s, r.form, r.instance, r.code))
        for r in readings:
            first = r.at_s <= self._starts[r.node]
            yield from self._fold.read(
                Reading(r.node, r.instance, r.form, r.at_s, r.value, r.code, first)
            )


def _turns(times: FloatArray, values: FloatArray) -> NDArray[np.int64]:
    """Where to look: the first and last, each change, and both sides of each gap."""
    if len(times) < 2:
        return np.arange(len(times), dtype=np.int64)
    steps = np.diff(times)
    gaps = np.flatnonzero(steps > GAP_INTERVALS * float(np.median(steps)))
    changes = np.flatnonzero(np.diff(values) != 0.0)
    ends = np.array([0, len(times) - 1])
    return np.unique(np.concatenate((ends, gaps, gaps + 1, changes + 1))).astype(np.int64)
