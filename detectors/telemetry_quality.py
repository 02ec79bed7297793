"""Metrics that lie, freeze or vanish. Such telemetry proves nothing about the machine.

stuck     a profiling ratio is zero for ten minutes while the GPUs are busy (NVIDIA/DCGM#303)
frozen    a noisy value repeats to the last digit for 20 samples (gpu-monitoring-tools#46)
gone      a metric that was there comes no more, though its node reports (dcgm-exporter#700)
quiet     one device's series stop while those beside it go on (go-dcgm#38)

All are evidence of kind `telemetry_gap`; what is open on the metric elsewhere stays open.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from detectors.base import Quiet, Sighting, Tick, View
from detectors.freshness import Freshness, KeptFreshness, refreshed
from detectors.stuck import ENGINE, PROFILED, stuck_cells
from telemetry.settings import EngineSettings

# A sum of noise that never repeats; a GPU at rest may draw the same watt for minutes, but not
# the same milliwatt.
NOISY = "gpu_power_watts"
EVERYBODY = ""

Mask = NDArray[np.bool_]
Counts = NDArray[np.int16]
Key = tuple[str, str, str, str]  # what, source, metric or device, node


class State(msgspec.Struct):
    """All of it, for a snapshot; open is (what, source, metric, node, entity)."""

    sources: dict[str, KeptFreshness]
    open: list[tuple[str, str, str, str, str]]


class TelemetryQuality(Quiet):
    """Counts per (metric, node) and per (node, device); objects only for what changes."""

    name = "telemetry_quality"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings.telemetry_quality
        self._sources: dict[str, Freshness] = {}
        self._open: dict[Key, str] = {}  # -> entity

    def on_tick(self, tick: Tick, view: View, now_s: float) -> Sequence[Sighting]:
        """Look at what came and what did not. A late frame alone is no news."""
        if tick.partial or not tick.metrics:
            return ()
        fresh = self._fresh(tick)
        fresh.count(tick, stuck_cells(tick, self._settings.busy_percent), NOISY)
        said = self._stuck(tick, fresh)
        said += self._frozen(tick, fresh)
        said += self._gone(tick, fresh)
        said += self._quiet(tick, fresh)
        return said

    def _fresh(self, tick: Tick) -> Freshness:
        known = self._sources.get(tick.source)
        names = [metric.name for metric in tick.metrics]
        width = tick.watched.shape[2]
        if known is None:
            known = Freshness(names, tick.nodes, width)
        fresh = self._sources[tick.source] = known.aligned(names, tick.nodes, width)
        return fresh

    def _ticks(self, seconds: float, tick: Tick) -> int:
        return max(2, math.ceil(seconds / tick.interval_s - 1e-9))

    # -- the four

    def _stuck(self, tick: Tick, fresh: Freshness) -> list[Sighting]:
        needed = self._ticks(self._settings.stuck_s, tick)
        said: list[Sighting] = []
        for row, metric in enumerate(tick.metrics):
            if metric.name in PROFILED:
                bad, calm = fresh.stuck[row] >= needed, ~np.isnan(tick.worst[-1, row])
                calm &= fresh.stuck[row] == 0
                said += self._changes("stuck", tick, metric.name, bad, calm, fresh.stuck[row])
        return said

    def _frozen(self, tick: Tick, fresh: Freshness) -> list[Sighting]:
        needed = self._settings.frozen_samples - 1
        if all(metric.name != NOISY for metric in tick.metrics):
            return []
        bad, calm = fresh.same >= needed, fresh.same == 0
        return self._changes("frozen", tick, NOISY, bad, calm, fresh.same)

    def _gone(self, tick: Tick, fresh: Freshness) -> list[Sighting]:
        """Per metric: one finding where nearly all who had it lost it, else one a node."""
        needed = self._ticks(self._settings.gone_s, tick)
        said: list[Sighting] = []
        reports = ~np.isnan(tick.worst[-1]).all(axis=0)
        for row, metric in enumerate(tick.metrics):
            had = fresh.had[row] >= self._settings.seen_samples
            if not had.any() and not self._open:
                continue
            bad, here = had & reports & (fresh.missing[row] >= needed), fresh.missing[row] == 0
            said += self._changes("gone", tick, metric.name, bad, here, fresh.missing[row])
        return said

    def _quiet(self, tick: Tick, fresh: Freshness) -> list[Sighting]:
        """Devices of a node that send nothing while others of the same node do."""
        needed = self._ticks(self._settings.gone_s, tick)
        lost = fresh.device_known & (fresh.device_missing >= needed)
        lost &= (fresh.device_missing == 0).any(axis=1)[:, None]
        device = _device(tick)
        was = {key for key in self._open if key[0] == "quiet" and key[1] == tick.source}
        if not device or not (was or lost.any()):
            return []
        column = {node: c for c, node in enumerate(tick.nodes)}
        said: list[Sighting] = []
        for _, _, place, node in sorted(was):
            if node in column and fresh.device_missing[column[node], int(place)] == 0:
                said.append(self._over(("quiet", tick.source, place, node), tick.at_s))
        for c, slot in zip(*(axis.tolist() for axis in np.nonzero(lost)), strict=True):
            key = ("quiet", tick.source, str(slot), tick.nodes[c])
            names = tick.entities.get(tick.nodes[c], {}).get(device, ())
            if key not in self._open and slot < len(names):
                entity = f"{device}:{names[slot]}"
                text = f"{entity} sends nothing any more while the others of its node do"
                age = int(fresh.device_missing[c, slot])
                said += self._say(key, entity, "", tick, age, text)
        return said

    # -- saying it

    def _changes(
        self, what: str, tick: Tick, metric: str, bad: Mask, calm: Mask, age: Counts
    ) -> list[Sighting]:
        """What began and what ended on one metric; shape (nodes,) each, `age` in ticks."""
        was = {key for key in self._open if key[0] == what and key[1:3] == (tick.source, metric)}
        if not was and not bad.any():
            return []
        said = self._ended(was, tick, calm)
        nodes = np.flatnonzero(bad)
        if nodes.size > 1 and nodes.size >= self._settings.everybody_share * len(tick.nodes):
            key = (what, tick.source, metric, EVERYBODY)
            text = f"{_words(what, metric)} on {nodes.size} of {len(tick.nodes)} nodes"
            if key in self._open:
                return said
            return [*said, *self._say(key, "", metric, tick, int(age[nodes].min()), text)]
        if (what, tick.source, metric, EVERYBODY) in self._open:
            return said
        for c in nodes.tolist():
            key = (what, tick.source, metric, tick.nodes[c])
            if key not in self._open:
                text = f"{_words(what, metric)} on {tick.nodes[c]}"
                said += self._say(key, "", metric, tick, int(age[c]), text)
        return said

    def _ended(self, was: Iterable[Key], tick: Tick, calm: Mask) -> list[Sighting]:
        column = {node: c for c, node in enumerate(tick.nodes)}
        most = 1.0 - self._settings.everybody_share
        over = []
        back: bool
        for key in sorted(was):
            if key[3] == EVERYBODY:
                back = int(np.count_nonzero(calm)) > most * len(tick.nodes)
            else:
                back = key[3] in column and bool(calm[column[key[3]]])
            if back:
                over.append(self._over(key, tick.at_s))
        return over

    def _say(
        self, key: Key, entity: str, metric: str, tick: Tick, age: int, text: str
    ) -> list[Sighting]:
        if len(self._open) >= self._settings.findings_max:
            return []
        self._open[key] = entity
        return [
            Sighting(
                active=True, detector=self.name, node=key[3], entity=entity or key[0],
                metric=metric, onset_s=tick.at_s - age * tick.interval_s, role="evidence",
                kind="telemetry_gap", cause="telemetry", severity="info", text=text,
                observed=float(age) * tick.interval_s, unit="seconds",
            )
        ]  # fmt: skip

    def _over(self, key: Key, at_s: float) -> Sighting:
        entity = self._open.pop(key)
        return Sighting(
            active=False, detector=self.name, node=key[3], entity=entity or key[0],
            metric="" if key[0] == "quiet" else key[2], onset_s=at_s, role="evidence",
        )  # fmt: skip

    # -- state

    def reset(self, source: str) -> None:
        """Another interval: counting begins anew, what is open stays so."""
        self._sources.pop(source, None)

    def bytes(self) -> int:
        """What the arrays take, all sources together."""
        return sum(fresh.bytes for fresh in self._sources.values())

    def snapshot(self) -> Any:
        """All of it."""
        rows = [(*key, entity) for key, entity in sorted(self._open.items())]
        kept = {source: fresh.kept() for source, fresh in self._sources.items()}
        return msgspec.to_builtins(State(kept, rows))

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        kept = msgspec.convert(state, State)
        self._sources = {source: refreshed(one) for source, one in kept.sources.items()}
        self._open = {(a, b, c, d): entity for a, b, c, d, entity in kept.open}


def _device(tick: Tick) -> str:
    """The class of the devices whose columns `watched` has; one a source, "" for none."""
    classes = {metric.device for metric in tick.watched_metrics} - {"node"}
    return next(iter(classes)) if len(classes) == 1 else ""


def _words(what: str, metric: str) -> str:
    if what == "stuck":
        return f"collector fault: {metric} stands at 0 while the GPUs are busy ({ENGINE} too)"
    if what == "frozen":
        return f"collector fault: {metric} repeats to the last digit"
    return f"telemetry missing: {metric} comes no more"
