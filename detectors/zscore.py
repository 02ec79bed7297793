"""The published rule of Aegis (NSDI'25): beyond mean + 2 sd of the peers for all of T.

Per tick (default) the engine's flags say at which ticks a node was beyond its group's bound; the
node is abnormal when that holds for every tick of the last 10 min for which it has a sample. The
pooled form takes mean and sd over all nodes and ticks of the window. An outlier is evidence, never
a fault: it takes a slow job to make an incident of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors.base import FloatArray, Quiet, Sighting, Tick, View
from detectors.kernels import NORMAL, beyond, needed_samples, run_of_abnormal
from detectors.onsets import tick_onset
from telemetry.findings import Cause, Kind, six_digits
from telemetry.metrics import Metric
from telemetry.settings import EngineSettings

POOLED = "zscore_pooled"  # the name under which the pooled form speaks
NETWORK_KINDS: frozenset[Kind] = frozenset({"nic_fault", "nic_flap", "nic_congested", "fabric"})


def cause_of(kind: Kind) -> Cause:
    """What a metric of this family points at; what a host is busy with is its software's doing."""
    if kind == "host":
        return "site_software"
    return "network" if kind in NETWORK_KINDS else "hardware"


@dataclass(frozen=True, slots=True)
class _Judged:
    """One form's word on a tick; arrays of shape (metrics, nodes).

    abnormal  beyond for the whole window
    normal    has a value at this tick, and it is not beyond
    """

    detector: str
    abnormal: NDArray[np.bool_]
    normal: NDArray[np.bool_]
    mean: FloatArray
    sd: FloatArray
    ticks: int


class Zscore(Quiet):
    """Both published forms; which of them run is a setting."""

    name = "zscore"

    def __init__(self, settings: EngineSettings) -> None:
        self._rule = settings.zscore
        # (detector, node, metric) -> (entity, job) under which it was said
        self._active: dict[tuple[str, str, str], tuple[str, str]] = {}
        self._small: dict[str, float] = {}  # group too small since, by source and job

    def on_tick(self, tick: Tick, view: View, now_s: float) -> Sequence[Sighting]:
        """Judge the window that ends at this tick."""
        ticks = max(1, round(self._rule.window_s / tick.interval_s))
        said: list[Sighting] = []
        mask = run_of_abnormal(tick.flags, ticks, self._rule.coverage)
        normal = tick.flags[-1] == NORMAL
        per_tick = _Judged(self.name, mask, normal, tick.mean, tick.sd, ticks)
        said += self._changes(per_tick, tick, view)
        if self._rule.pooled and not tick.partial:
            said += self._changes(self._pooled(tick, ticks), tick, view)
        if not tick.partial:
            said += self._too_small(tick, view)
        return said

    def _changes(self, judged: _Judged, tick: Tick, view: View) -> list[Sighting]:
        names = tick.nodes
        rows, columns = np.nonzero(judged.abnormal)
        now_beyond = {
            (judged.detector, names[column], tick.metrics[row].name): (int(row), int(column))
            for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
        }
        over = self._cleared(judged, now_beyond, tick, view)
        said = [self._clear(key, tick) for key in over]
        for key, cell in sorted(now_beyond.items()):
            if key not in self._active:
                seen = self._sighting(judged, cell, tick, view)
                self._active[key] = (seen.entity, seen.job)
                said.append(seen)
        return said

    def _cleared(
        self,
        judged: _Judged,
        now_beyond: dict[tuple[str, str, str], tuple[int, int]],
        tick: Tick,
        view: View,
    ) -> list[tuple[str, str, str]]:
        """Open outliers that are over.

        Their value at this tick is normal; or the window holds no value of them any more; or the
        node left its job, and with it the peers that it was compared with. One tick without a
        value ends nothing.
        """
        if not self._active:
            return []
        rows = {metric.name: row for row, metric in enumerate(tick.metrics)}
        columns = {node: column for column, node in enumerate(tick.nodes)}
        over = []
        for key in self._active.keys() - now_beyond.keys():
            detector, node, metric = key
            if detector != judged.detector or metric not in rows or node not in columns:
                continue
            row, column = rows[metric], columns[node]
            if (
                judged.normal[row, column]
                or view.place(node, tick.at_s).job != self._active[key][1]
                or np.isnan(tick.worst[-judged.ticks :, row, column]).all()
            ):
                over.append(key)
        return sorted(over)

    def _sighting(self, judged: _Judged, cell: tuple[int, int], tick: Tick, view: View) -> Sighting:
        row, column = cell
        metric, node = tick.metrics[row], tick.nodes[column]
        known = ~np.isnan(tick.worst[-judged.ticks :, row, column])
        first = int(np.flatnonzero(known)[0])
        onset_s, resolution_s = tick_onset(tick, row, column, known.size - 1 - first)
        observed = float(tick.worst[-1, row, column])
        expected = float(judged.mean[row, column])
        spread = float(judged.sd[row, column])
        side = 1.0 if metric.bad == "high" else -1.0
        bound = expected + side * self._rule.sigmas * spread
        entity = tick.entity_name(row, column)
        return Sighting(
            active=True, detector=judged.detector, node=node, entity=entity, metric=metric.name,
            onset_s=onset_s, role="evidence", kind=metric.family, cause=cause_of(metric.family),
            severity="warning", job=view.place(node, tick.at_s).job,
            text=_text(metric, entity or node, observed, expected, bound, self._rule.window_s),
            observed=six_digits(observed), expected=six_digits(expected),
            unit=metric.judged_unit,
            score=six_digits(abs(observed - expected) / spread) if spread > 0.0 else 0.0,
            onset_resolution_s=resolution_s,
        )  # fmt: skip

    def _clear(self, key: tuple[str, str, str], tick: Tick) -> Sighting:
        detector, node, metric = key
        entity, job = self._active.pop(key)
        return Sighting(
            active=False, detector=detector, node=node, entity=entity, metric=metric,
            onset_s=tick.at_s, job=job,
        )  # fmt: skip

    def _pooled(self, tick: Tick, ticks: int) -> _Judged:
        """The rule over all values of all nodes and ticks of the window."""
        window = tick.worst[-ticks:]
        shape = window.shape[1:]
        mean, sd = np.full(shape, np.nan), np.full(shape, np.nan)
        for g in np.unique(tick.group[tick.group >= 0]).tolist():
            members = np.flatnonzero(tick.group == g)
            if members.size < self._rule.group_min:
                continue
            x = window[:, :, members]
            present = ~np.isnan(x)
            n = present.sum(axis=(0, 2))
            with np.errstate(invalid="ignore", divide="ignore"):
                m = np.where(present, x, 0.0).sum(axis=0).sum(axis=1) / n
                d = np.where(present, x - m[None, :, None], 0.0)
                s = np.sqrt((d * d).sum(axis=0).sum(axis=1) / n)
            mean[:, members], sd[:, members] = m[:, None], s[:, None]
        bad_high = np.array([metric.bad == "high" for metric in tick.metrics])
        scale = np.array([metric.effect_min for metric in tick.metrics])
        extreme = _least_bad(window, bad_high)
        judged = (tick.flags[-ticks:] != 0).any(axis=0)
        samples = np.count_nonzero(~np.isnan(window), axis=0)
        enough = samples >= needed_samples(ticks, self._rule.coverage)
        sampled = ~np.isnan(window[-1])
        rule = (mean, sd, self._rule.sigmas, bad_high, scale)
        abnormal = beyond(extreme, *rule) & enough & sampled & judged
        normal = sampled & judged & ~np.isnan(mean) & ~beyond(window[-1], *rule)
        return _Judged(POOLED, abnormal, normal, mean, sd, ticks)

    def _too_small(self, tick: Tick, view: View) -> list[Sighting]:
        """Say once of each job whose peer group never reached the minimum."""
        said = []
        for g in np.unique(tick.group[tick.group >= 0]).tolist():
            members = np.flatnonzero(tick.group == g)
            node = tick.nodes[int(members[0])]
            place = view.place(node, tick.at_s)
            key = f"{tick.source}|{place.job}|{place.stage}"
            if members.size >= self._rule.group_min:
                self._small.pop(key, None)
                continue
            since = self._small.setdefault(key, tick.at_s)
            if since < 0.0 or tick.at_s - since < self._rule.window_s:
                continue
            self._small[key] = -1.0  # said
            said.append(
                Sighting(
                    active=True,
                    detector=self.name,
                    node="",
                    entity="",
                    metric=key,
                    onset_s=since,
                    role="evidence",
                    kind="telemetry_gap",
                    cause="telemetry",
                    severity="info",
                    job=place.job,
                    text=f"group too small: {members.size} nodes do the same work, "
                    f"{self._rule.group_min} are needed to compare {tick.source} metrics",
                    observed=float(members.size),
                    expected=float(self._rule.group_min),
                    unit="nodes",
                )
            )
        return said

    def snapshot(self) -> Any:
        """Open outliers and small groups; the windows are the engine's."""
        active = [[*key, *where] for key, where in sorted(self._active.items())]
        return {"active": active, "small": self._small}

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        speaks = {self.name, POOLED} if self._rule.pooled else {self.name}
        self._active = {(d, n, m): (e, j) for d, n, m, e, j in state["active"] if d in speaks}
        self._small = dict(state["small"])


def _least_bad(window: FloatArray, bad_high: NDArray[np.bool_]) -> FloatArray:
    """The least bad value of the window: if even that is beyond, every one is. NaN if none."""
    low = np.fmin.reduce(window, axis=0)
    high = np.fmax.reduce(window, axis=0)
    return np.asarray(np.where(bad_high[:, None], low, high))


def _text(
    metric: Metric, subject: str, observed: float, expected: float, bound: float, window_s: float
) -> str:
    side = "above" if metric.bad == "high" else "below"
    return (
        f"{metric.name} of {subject} is {six_digits(observed):g} {metric.judged_unit}, "
        f"{side} the peers' λ+2δ bound of {six_digits(bound):g} (mean {six_digits(expected):g}) "
        f"at every sample of {window_s:g} s"
    )
