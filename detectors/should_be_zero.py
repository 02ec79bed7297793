"""Abnormal-operation metrics judged by themselves: what should be zero is not, whoever else has it.

Evidence only, and no suspect by itself. `zscore` is blind once a fifth of the peers suffer; this
tells correlation that a node's leaf mates suffer too, before anyone is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from detectors.base import FloatArray, Quiet, Sighting, Tick, View
from detectors.onsets import tick_onset
from detectors.zscore import cause_of
from telemetry.findings import six_digits
from telemetry.metrics import Metric
from telemetry.settings import EngineSettings, ShouldBeZeroSettings


def hold_ticks(settings: ShouldBeZeroSettings, interval_s: float) -> int:
    """The ticks that must be bad: `hold_s` of them, two at least."""
    return max(2, math.ceil(settings.hold_s / interval_s - 1e-9))


class Suffering(msgspec.Struct):
    """What is open: the metric's source, the worst entity and the job when it was said."""

    source: str
    entity: str
    job: str


class ShouldBeZero(Quiet):
    """Vectorised over (metrics, nodes); only cells that change become objects."""

    name = "should_be_zero"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings.should_be_zero
        self._open: dict[tuple[str, str], Suffering] = {}  # (metric, node)

    def on_tick(self, tick: Tick, view: View, now_s: float) -> Sequence[Sighting]:
        """Judge the last `hold_s`: at or beyond the effect in nearly all samples, at least two."""
        rows = [r for r, m in enumerate(tick.metrics) if m.judged and m.class_ == "abnormal"]
        if not rows:
            return ()
        ticks = hold_ticks(self._settings, tick.interval_s)
        window = tick.worst[-ticks:, rows, :]
        metrics = [tick.metrics[row] for row in rows]
        bad, over = self._masks(window, metrics, ticks)
        was = self._was(metrics, tick.nodes)
        said = [
            self._say(tick, rows[r], c, window[:, r, c], view)
            for r, c in zip(*(axis.tolist() for axis in np.nonzero(bad & ~was)), strict=True)
        ]
        for r, c in zip(*(axis.tolist() for axis in np.nonzero(over & was)), strict=True):
            said.append(self._clear(metrics[r].name, tick.nodes[c], tick.at_s))
        return said if tick.partial else [*said, *self._left(tick)]

    def _masks(
        self, window: FloatArray, metrics: Sequence[Metric], ticks: int
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Cells that suffer and cells that no longer do, both of shape (metrics, nodes).

        window  shape (ticks, metrics, nodes), rates per second, NaN missing; missing ticks
                neither open nor clear
        """
        effect = np.array([metric.effect_min for metric in metrics])[None, :, None]
        with np.errstate(invalid="ignore"):
            hits = np.count_nonzero(window >= effect, axis=0)
        samples = np.count_nonzero(~np.isnan(window), axis=0)
        enough = samples >= max(2, math.ceil(ticks / 2))
        bad = enough & (hits >= self._settings.share * samples - 1e-9)
        over = (samples > 0) & (hits <= self._settings.clear_share * samples + 1e-9) & ~bad
        return bad, over

    def _was(self, metrics: Sequence[Metric], nodes: tuple[str, ...]) -> NDArray[np.bool_]:
        was = np.zeros((len(metrics), len(nodes)), dtype=np.bool_)
        if not self._open:
            return was
        row = {metric.name: r for r, metric in enumerate(metrics)}
        column = {node: c for c, node in enumerate(nodes)}
        for metric, node in self._open:
            if metric in row and node in column:
                was[row[metric], column[node]] = True
        return was

    def _say(self, tick: Tick, row: int, column: int, values: FloatArray, view: View) -> Sighting:
        metric, node = tick.metrics[row], tick.nodes[column]
        hits = np.flatnonzero(values >= metric.effect_min)
        back = values.size - 1 - int(hits[0])
        onset_s, resolution_s = tick_onset(tick, row, column, back)
        observed = six_digits(float(np.median(values[hits])))
        entity, job = tick.entity_name(row, column), view.place(node, tick.at_s).job
        self._open[metric.name, node] = Suffering(tick.source, entity, job)
        return Sighting(
            active=True, detector=self.name, node=node, entity=entity, metric=metric.name,
            onset_s=onset_s, role="evidence", kind=metric.family,
            cause=cause_of(metric.family), job=job,
            text=f"{metric.name} of {entity or node} is {observed:g} {metric.judged_unit} "
            f"where it should be 0, for {self._settings.hold_s:g} s",
            observed=observed, expected=0.0, unit=metric.judged_unit,
            onset_resolution_s=resolution_s,
        )  # fmt: skip

    def _clear(self, metric: str, node: str, at_s: float) -> Sighting:
        kept = self._open.pop((metric, node))
        return Sighting(
            active=False, detector=self.name, node=node, entity=kept.entity, metric=metric,
            onset_s=at_s, role="evidence", job=kept.job,
        )  # fmt: skip

    def _left(self, tick: Tick) -> list[Sighting]:
        """Nodes that are no longer among the source's nodes have nothing left to suffer."""
        if not self._open:
            return []
        here = set(tick.nodes)
        gone = [k for k, v in self._open.items() if v.source == tick.source and k[1] not in here]
        return [self._clear(metric, node, tick.at_s) for metric, node in sorted(gone)]

    def snapshot(self) -> Any:
        """What is open; the windows are the engine's."""
        return [[*key, msgspec.to_builtins(kept)] for key, kept in sorted(self._open.items())]

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        rows = msgspec.convert(state, list[tuple[str, str, Suffering]])
        self._open = {(metric, node): kept for metric, node, kept in rows}
