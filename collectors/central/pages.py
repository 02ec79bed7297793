"""Samples of a stretch of time, of all nodes, into records: a fold over pages. Pure.

A page holds what lies in (start, end]. What the next page needs of the one before stays here: the
newest step of each rank, the Xid gauges, the columns of each source, and rows whose second half may
still come. The same samples make the same records in the same order, however they are paged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from collectors.frames import TRAINING, FrameMaker, StepMaker
from collectors.gauge_runs import GaugeRuns
from collectors.gpu_names import GpuNames
from collectors.names import NodeNames
from collectors.openmetrics import SERIES_MAX, Run
from collectors.placing import place_of
from collectors.series import XID_METRICS, Series
from collectors.series_arrays import FloatArray
from collectors.spill import COLUMNS_MAX, Block, Column, Target, snap_interval
from telemetry.records import KIND_ORDER, Frame, Record, Rejected, Steps

TARGETS_MAX = 50_000
REJECTED_MAX = 100  # of one page; all are counted
GAPS_MAX = 10_000  # gaps between scrapes that are remembered, of one source
CLOCK_S = 900.0  # a series that is away for so long tells no interval any more
FORGET_S = 3_600.0  # a series that nobody sends any more is a column of nulls for so long
LAST_XID = "gpu_last_xid_code"

_Cells = dict[Column, tuple[FloatArray, FloatArray]]
_Clocks = dict[Target, tuple[Series, FloatArray]]


@dataclass(slots=True)
class Samples:
    """What was read of one page; nothing of it is known to the fold before `Pages.page`."""

    runs: list[Run] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    broken: int = 0
    count: int = 0

    def take(self, found: Iterable[Run | Rejected]) -> None:
        """Add the runs of one answer."""
        for one in found:
            if isinstance(one, Run):
                self.runs.append(one)
                self.count += len(one.times)
                continue
            self.broken += 1
            if len(self.rejected) < REJECTED_MAX:
                self.rejected.append(one)


@dataclass(slots=True)
class _Known:
    """One node's source.

    columns   column -> its place; `seen` are those since the last forgetting
    clock     the series whose gaps tell the interval, and its newest stamp; of a pair of Prometheus
              that nobody made one of, both have the column, and only one of them the series
    at_s      rows up to here are told
    is_joined two exporters feed it: a row may wait for its other half
    """

    columns: dict[Column, int] = field(default_factory=dict)
    seen: set[Column] = field(default_factory=set)
    clock: Series | None = None
    clock_s: float = -np.inf
    at_s: float = -np.inf
    is_joined: bool = False
    held: tuple[float, dict[Column, float]] | None = None
    maker: FrameMaker | None = None
    near_s: float = 0.0


class Pages:
    """Feed the pages of a site in the order of time.

    gpus      what the labels say of the GPUs
    nameless  samples whose labels name no node
    beyond    samples of targets or series beyond the bounds
    """

    def __init__(self) -> None:
        self._names, self._jobs = NodeNames((), ()), frozenset[str]()
        self._places: dict[Series, tuple[Target, Column] | None] = {}
        self._known: dict[Target, _Known] = {}
        self._last_steps: dict[Target, dict[str, float]] = {}
        self._xids = GaugeRuns()
        self._gaps: dict[str, Counter[float]] = {}
        self._near_s: dict[str, float] = {}
        self._forget_s = -np.inf
        self.gpus = GpuNames()
        self.nameless = self.beyond = 0

    def rename(self, names: NodeNames, jobs: Collection[str]) -> None:
        """Nodes and jobs as the scheduler calls them now."""
        self._names, self._jobs = names, frozenset(jobs)
        self._places.clear()
        self.gpus = GpuNames()

    def restore(
        self, told: Iterable[tuple[str, str, float, bool]], intervals: Mapping[str, float]
    ) -> None:
        """Go on where a process before this one was, as `told` and `intervals` say."""
        for node, source, at_s, is_joined in told:
            self._known[Target(node, source)] = _Known(at_s=at_s, is_joined=is_joined)
        self._gaps = {
            source: Counter({gap_s: GAPS_MAX // 4}) for source, gap_s in intervals.items()
        }

    def told(self) -> Iterator[tuple[str, str, float, bool]]:
        """(node, source, time up to which its frames are told, whether two exporters feed it)."""
        for target, known in self._known.items():
            if known.at_s > -np.inf:
                yield target.node, target.source, known.at_s, known.is_joined

    def held_s(self) -> float | None:
        """Time of the oldest row that waits for its other half."""
        return min((k.held[0] for k in self._known.values() if k.held is not None), default=None)

    def intervals(self) -> dict[str, float]:
        """Source -> its most common gap between scrapes, seconds."""
        return {
            source: min(gaps.items(), key=lambda gap: (-gap[1], gap[0]))[0]
            for source, gaps in sorted(self._gaps.items())
            if gaps
        }

    def page(
        self, samples: Samples, end_s: float, since_s: float = -np.inf
    ) -> list[Record]:  # fmt: skip
        """What the samples up to `end_s` say, in the order of the fold.

        since_s   Xids and steps up to it were told before
        """
        cells: dict[Target, _Cells] = {}
        clocks: _Clocks = {}
        for run in samples.runs:
            self._sort_in(run, end_s, since_s, cells, clocks)
        for target, (series, times) in clocks.items():
            self._count_gaps(target, series, times)
        self._near_s = {source: gap_s / 2.0 for source, gap_s in self.intervals().items()}
        records: list[Record] = list(self._xids.events())
        for target, found in cells.items():
            if target.source == TRAINING:
                records += self._steps(target, found, since_s)
        for target in [t for t, k in self._known.items() if t in cells or k.held is not None]:
            if target.source != TRAINING:
                records += self._frames(target, cells.get(target, {}), end_s)
        self._forget(end_s)
        records.sort(key=lambda r: (r.at, KIND_ORDER[type(r)], r.node, r.source))
        return records

    def prime(self, samples: Samples, end_s: float) -> None:
        """What Xid gauges and steps stood at before a restart; nothing of it is told again."""
        for run in samples.runs:
            place = self._place(run.series)
            within = run.times <= end_s
            if place is None or not bool(within.any()):
                continue
            times, values = run.times[within], run.values[within]
            if run.series.metric is None:
                self._prime_steps(place, values)
            else:
                self._xids.add(place[0].node, run.series, times, values)
        for _ in self._xids.events():
            pass

    def _prime_steps(self, place: tuple[Target, Column], values: FloatArray) -> None:
        target, column = place
        finite = values[np.isfinite(values)]
        if column.metric == "step" and len(finite) and len(self._last_steps) < TARGETS_MAX:
            self._last_steps.setdefault(target, {})[column.entity] = float(finite[-1])

    def _sort_in(
        self, run: Run, end_s: float, since_s: float, cells: dict[Target, _Cells], clocks: _Clocks
    ) -> None:
        place = self._place(run.series)
        if place is None:
            self.nameless += len(run.times)
            return
        target, column = place
        times, values = _within(run, -np.inf, end_s)
        if run.series.metric is not None and target.source != TRAINING:
            self._xid(run, target, since_s, end_s)
            if run.series.metric.name in XID_METRICS and not (
                run.series.entity and run.series.metric.name == LAST_XID
            ):
                return  # a count has one series a code: no column of a frame
        if not len(times):
            return
        if not self._has_room(target, column):
            self.beyond += len(times)
            return
        found = cells.setdefault(target, {})
        if not found or run.series is self._known[target].clock:
            clocks[target] = run.series, times
        before = found.get(column)
        if before is not None:  # two series of one name: two jobs, or two Prometheus, scrape it
            times = np.concatenate((before[0], times))
            values = np.concatenate((before[1], values))
            order = np.argsort(times, kind="stable")
            times, values = times[order], values[order]
        found[column] = (times, values)

    def _xid(self, run: Run, target: Target, since_s: float, end_s: float) -> None:
        assert run.series.metric is not None
        times, values = _within(run, since_s, end_s)
        if not len(times):
            return
        if run.series.metric.name in XID_METRICS:
            self._xids.add(target.node, run.series, times, values)
        elif run.series.metric.device == "gpu":
            self._xids.heard(target.node, float(times[0]))

    def _place(self, series: Series) -> tuple[Target, Column] | None:
        if series not in self._places:
            if len(self._places) >= SERIES_MAX:
                self._places.clear()
            place = self._places[series] = place_of(series, self._names, self._jobs)
            if place is not None and series.metric is not None and series.metric.device == "gpu":
                self.gpus.add(place[0].node, series.labels)
        return self._places[series]

    def _has_room(self, target: Target, column: Column) -> bool:
        known = self._known.get(target)
        if known is None:
            if len(self._known) >= TARGETS_MAX:
                return False
            known = self._known[target] = _Known()
        if column not in known.columns:
            if len(known.columns) >= COLUMNS_MAX:
                return False
            known.columns[column] = len(known.columns)
            known.maker = None
        known.seen.add(column)
        return True

    def _count_gaps(self, target: Target, series: Series, times: FloatArray) -> None:
        """The gaps of one series; where it ended another one takes its place."""
        known = self._known[target]
        if known.clock is not series:
            if known.clock is not None and known.clock_s > times[-1] - CLOCK_S:
                return
            known.clock, known.clock_s = series, -np.inf
        times = times[times > known.clock_s]
        if not len(times):
            return
        whole = np.concatenate(([known.clock_s], times)) if known.clock_s > -np.inf else times
        known.clock_s = float(times[-1])
        gaps = self._gaps.setdefault(target.source, Counter())
        gaps.update(snap_interval(max(gap, 0.1)) for gap in np.diff(whole).tolist())
        if gaps.total() > GAPS_MAX:  # an interval that was changed shows in time
            self._gaps[target.source] = +Counter({gap: n // 2 for gap, n in gaps.items()})

    def _steps(self, target: Target, found: _Cells, since_s: float) -> list[Steps]:
        block = _block(target, list(found), found)
        after = block.times > since_s
        maker = StepMaker(target, list(found), self._last_steps.get(target))
        made = list(maker.steps(Block(target, block.times[after], block.values[after])))
        if target in self._last_steps or len(self._last_steps) < TARGETS_MAX:
            self._last_steps[target] = maker.last
        return made

    def _frames(self, target: Target, found: _Cells, end_s: float) -> list[Frame]:
        known = self._known[target]
        if known.held is not None:
            _give_back(known.held, found)
            known.held = None
        near_s = self._near_s.get(target.source, 0.0)
        block = _block(target, list(known.columns), found)
        after = block.times > known.at_s
        times, values = block.times[after], block.values[after]
        if len(times) > 1:
            known.is_joined |= _has_halves(times, values, near_s)
        if known.is_joined and _may_go_on(times, near_s, end_s):
            known.held = (float(times[-1]), _cells_at(float(times[-1]), found))
            times, values = times[:-1], values[:-1]
        if not len(times):
            return []
        known.at_s = float(times[-1])
        if known.maker is None or known.near_s != near_s:
            known.maker = FrameMaker(target, list(known.columns), 2.0 * near_s)
            known.near_s = near_s
        return list(known.maker.frames(Block(target, times, values)))

    def _forget(self, end_s: float) -> None:
        if end_s < self._forget_s:
            return
        for target, known in list(self._known.items()):
            if not known.seen and known.held is None:
                del self._known[target]
            elif len(known.seen) < len(known.columns) and known.held is None:
                kept = [column for column in known.columns if column in known.seen]
                known.columns = {column: at for at, column in enumerate(kept)}
                known.maker = None
            known.seen = set()
        self._places.clear()  # so that GPUs that are gone are forgotten, too
        self.gpus = GpuNames()
        self._last_steps = {t: s for t, s in self._last_steps.items() if t in self._known}
        self._forget_s = end_s + FORGET_S


def _within(run: Run, since_s: float, end_s: float) -> tuple[FloatArray, FloatArray]:
    times = run.times
    if times[0] > since_s and times[-1] <= end_s:
        return times, run.values
    inside = (times > since_s) & (times <= end_s)
    return times[inside], run.values[inside]


def _block(target: Target, columns: list[Column], found: _Cells) -> Block:
    """Shape (rows, columns), NaN where a column has nothing at that time."""
    here = [(place, found[column]) for place, column in enumerate(columns) if column in found]
    if not here:
        return Block(target, np.empty(0), np.empty((0, len(columns))))
    stamps = np.concatenate([times for _, (times, _) in here])
    places = np.repeat([place for place, _ in here], [len(times) for _, (times, _) in here])
    times, rows = np.unique(stamps, return_inverse=True)
    values = np.full((len(times), len(columns)), np.nan)
    values[rows, places] = np.concatenate([column for _, (_, column) in here])
    return Block(target, times, values)


def _has_halves(times: FloatArray, values: FloatArray, near_s: float) -> bool:
    """Whether a row and the next are near and say nothing of the same column."""
    near = np.flatnonzero(np.diff(times) < near_s)
    if not len(near):
        return False
    present = ~np.isnan(values)
    return bool((~(present[near] & present[near + 1]).any(axis=1)).any())


def _may_go_on(times: FloatArray, near_s: float, end_s: float) -> bool:
    """Whether the newest row is the first half of one."""
    if not len(times) or times[-1] <= end_s - near_s:
        return False
    return len(times) == 1 or bool(times[-1] - times[-2] >= near_s)


def _cells_at(at_s: float, found: _Cells) -> dict[Column, float]:
    return {
        column: float(values[-1])
        for column, (times, values) in found.items()
        if len(times) and times[-1] == at_s
    }


def _give_back(held: tuple[float, dict[Column, float]], found: _Cells) -> None:
    at_s, row = held
    for column, value in row.items():
        times, values = found.get(column, (np.empty(0), np.empty(0)))
        if not (times == at_s).any():
            found[column] = np.append(at_s, times), np.append(value, values)
