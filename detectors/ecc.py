"""Corrected memory errors that come too often: nothing is lost yet, the memory is going.

A rate, not a count: a fast counter is what killed the agents that looked at single errors. It is
held open by any tick at the rate and ends after `clear_s` below it, so that a load that comes and
goes is one finding. Never certain: ECC corrects them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from detectors.base import Quiet, Sighting, Tick, View
from telemetry.findings import six_digits
from telemetry.records import Control
from telemetry.settings import EngineSettings

METRIC = "gpu_ecc_correctable_volatile_total"


class EccRun(msgspec.Struct):
    """One node: ticks in a row at the rate, since when, the last of them, what is open."""

    ticks: int
    since_s: float
    last_s: float
    said: Sighting | None = None


class Ecc(Quiet):
    """Nodes with a run; the others take no memory."""

    name = "ecc"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings.ecc
        self._runs: dict[str, EccRun] = {}

    def on_tick(self, tick: Tick, view: View, now_s: float) -> Sequence[Sighting]:
        """Count the ticks in which the node's worst GPU is at the rate."""
        row = next((i for i, m in enumerate(tick.metrics) if m.name == METRIC), -1)
        if row < 0 or tick.worst.shape[0] == 0:
            return ()
        rates, rules = tick.worst[-1, row], self._settings
        with np.errstate(invalid="ignore"):
            high = rates >= rules.errors_per_second
        said = self._calm(tick, high | np.isnan(rates))
        for column in np.flatnonzero(high).tolist():
            node = tick.nodes[column]
            run = self._runs.get(node)
            if run is None:
                if len(self._runs) >= rules.findings_max:
                    continue
                run = self._runs[node] = EccRun(0, tick.at_s, tick.at_s)
            run.ticks = min(run.ticks + 1, rules.ticks)
            run.last_s = max(run.last_s, tick.at_s)
            if run.said is None and run.ticks >= rules.ticks:
                run.said = self._sighting(tick, row, column, run, view)
                said.append(run.said)
        return said

    def _calm(self, tick: Tick, keep: np.ndarray[Any, np.dtype[np.bool_]]) -> list[Sighting]:
        """Runs whose node is below the rate now; a missing sample is neither."""
        said: list[Sighting] = []
        columns = {node: column for column, node in enumerate(tick.nodes)} if self._runs else {}
        for node, run in list(self._runs.items()):
            if node not in columns or keep[columns[node]]:
                continue
            run.ticks = 0
            if run.said is None:
                del self._runs[node]
            elif tick.at_s - run.last_s >= self._settings.clear_s:
                said.append(replace(self._runs.pop(node).said or run.said, active=False))
        return said

    def _sighting(self, tick: Tick, row: int, column: int, run: EccRun, view: View) -> Sighting:
        node, rate = tick.nodes[column], float(tick.worst[-1, row, column])
        entity = tick.entity_name(row, column)
        return Sighting(
            active=True, detector=self.name, node=node, entity=entity, metric=METRIC,
            onset_s=run.since_s, kind="gpu_memory", cause="hardware", severity="warning",
            job=view.place(node, tick.at_s).job, observed=six_digits(rate),
            expected=self._settings.errors_per_second, unit="errors/s", score=1.0,
            onset_resolution_s=tick.interval_s,
            text=f"{rate:.3g} corrected memory errors a second on {entity or node}, "
            f"{self._settings.errors_per_second:g} are too many",
        )  # fmt: skip

    def on_control(self, control: Control, nodes: Sequence[str], now_s: float) -> list[Sighting]:
        """An operator says that the nodes are well."""
        runs = [self._runs.pop(node) for node in nodes if node in self._runs]
        return [replace(run.said, active=False) for run in runs if run.said is not None]

    def snapshot(self) -> Any:
        """The runs."""
        return msgspec.to_builtins(self._runs)

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        self._runs = msgspec.convert(state, dict[str, EccRun])
