"""What a report shows beside an incident, kept while the fold runs: bounded, read only.

The engine's windows hold the last minutes at the moment of a verdict, so a copy of one metric's
window is taken then, and once more a little later, to show what came after.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from detectors.base import FloatArray
from streams.fold import Fold, Said
from telemetry.findings import ACTING, Incident
from telemetry.metrics import BY_NAME
from telemetry.records import Arrived, Event, Steps

AFTER_S = 240.0
EXHIBITS_MAX = 100
STEPS_MAX = 20_000
EVENTS_MAX = 5_000
_ROW = {name: row for row, name in enumerate(BY_NAME)}


@dataclass(frozen=True, slots=True)
class MetricExhibit:
    """One metric's window over a whole peer group.

    at_s     shape (ticks,), event time
    values   shape (ticks, nodes), worst entity, NaN missing; only the suspect and its group
    mean, sd shape (ticks,), λ and δ, NaN where not kept
    """

    metric: str
    node: str
    entity: str
    nodes: tuple[str, ...]
    at_s: FloatArray
    values: FloatArray
    mean: FloatArray
    sd: FloatArray
    sigmas: float


@dataclass(frozen=True, slots=True)
class StepExhibit:
    """Steps of one job, newest last."""

    at_s: tuple[float, ...]
    step_time_s: tuple[float | None, ...]


class Exhibits:
    """Watches a fold and keeps what its incidents are shown with."""

    def __init__(self) -> None:
        self.metrics: OrderedDict[str, MetricExhibit] = OrderedDict()
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._steps: dict[str, deque[tuple[float, int, float | None]]] = {}
        self._frozen: set[str] = set()
        self._later: dict[str, tuple[float, str, str, str]] = {}

    def watch(self, arrived: Arrived, said: Said, fold: Fold) -> None:
        """After each record."""
        record = arrived.record
        if isinstance(record, Event):
            self.events.append(record)
        elif isinstance(record, Steps):
            self._take_steps(record)
        for incident in said.incidents:
            self._exhibit(incident, fold)
        if self._later:
            for key, (due_s, metric, node, entity) in list(self._later.items()):
                if fold.now >= due_s:
                    del self._later[key]
                    self._copy(key, metric, node, entity, fold)

    def steps(self, job: str, from_s: float, to_s: float) -> StepExhibit:
        """The job's steps between two times, one a step number."""
        rows = [row for row in self._steps.get(job, ()) if from_s <= row[0] <= to_s]
        return StepExhibit(tuple(at for at, _, _ in rows), tuple(took for _, _, took in rows))

    def kernel_lines(self, nodes: Sequence[str], from_s: float, to_s: float) -> list[Event]:
        """Events of these nodes between two times."""
        wanted = set(nodes)
        return [e for e in self.events if e.node in wanted and from_s <= e.at <= to_s]

    def _take_steps(self, record: Steps) -> None:
        if not record.step or not record.step_time_s:
            return
        if record.job not in self._steps and len(self._steps) >= 100:
            return
        rows = self._steps.setdefault(record.job, deque(maxlen=STEPS_MAX))
        step, took = max(record.step), record.step_time_s[0]
        if not rows or rows[-1][1] != step:
            rows.append((record.at, step, took))

    def _exhibit(self, incident: Incident, fold: Fold) -> None:
        if incident.id in self._frozen:
            return
        if any(verdict.action in ACTING for verdict in incident.verdicts):
            self._frozen.add(
                incident.id
            )  # what comes after the verdict is shown, but not long after
        shown = [e for e in incident.evidence if e.metric in BY_NAME and e.node]
        if not shown:
            return
        suspects = {suspect.node for suspect in incident.suspects}
        best = min(
            shown,
            key=lambda e: (
                e.node not in suspects, e.detector != "zscore", _ROW[e.metric], e.onset, e.node,
            ),
        )  # fmt: skip
        if self._copy(incident.id, best.metric, best.node, best.entity, fold):
            self._later[incident.id] = (fold.now + AFTER_S, best.metric, best.node, best.entity)

    def _copy(self, key: str, metric: str, node: str, entity: str, fold: Fold) -> bool:
        for source in fold.sources.values():
            row = next((i for i, m in enumerate(source.rows.judged) if m.name == metric), None)
            newest = source.windows.newest
            if row is None or newest is None or node not in source.slot:
                continue
            windows, slot = source.windows, source.slot[node]
            span = windows.span(windows.position)
            group = windows.group[windows.position]
            peers = np.flatnonzero(group[: len(source.names)] == group[slot])
            ticks = span.stop - span.start
            index = newest - ticks + 1 + np.arange(ticks)
            stats = {kept.index: kept for kept in source.stats}
            mean, sd = np.full(ticks, np.nan), np.full(ticks, np.nan)
            for i, tick in enumerate(index.tolist()):
                kept = stats.get(tick)
                if kept is not None and group[slot] in kept.groups:
                    column = int(np.searchsorted(kept.groups, group[slot]))
                    mean[i], sd[i] = kept.mean[row, column], kept.sd[row, column]
            self.metrics[key] = MetricExhibit(
                metric=metric, node=node, entity=entity,
                nodes=tuple(source.names[i] for i in peers.tolist()),
                at_s=index * source.interval_s,
                values=windows.worst[span][:, row, peers].copy(),
                mean=mean, sd=sd, sigmas=fold.settings.zscore.sigmas,
            )  # fmt: skip
            if len(self.metrics) > EXHIBITS_MAX:
                self.metrics.popitem(last=False)
            return True
        return False
