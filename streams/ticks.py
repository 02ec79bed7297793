"""Frames of one source become ticks: open while nodes report, closed once, in order.

tick = round((at - phase) / interval) with each pair's own learned phase, so that a node's place in
the interval delays nobody. A tick closes when its time is over and every expected pair has
reported, at the latest `lateness` after its end.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.base import FloatArray, IntArray, Tick
from detectors.kernels import (
    ABNORMAL,
    MISSING,
    NORMAL,
    beyond,
    counter_rates,
    group_moments,
    worst_entity,
)
from streams.layout import BadFrame, Layouts, Shape, flat_values
from streams.windows import Windows
from telemetry.metrics import CATALOGUE, Metric
from telemetry.records import Frame
from telemetry.settings import EngineSettings

GroupOf = Callable[[Sequence[str], float], tuple[IntArray, NDArray[np.bool_]]]
"""(names, at) -> number of each name's peer group, never used again for another; -1 for none; and
whether the node works for a job."""

PHASE_STRIKES = 3
OPEN_TICKS_MAX = 128
AHEAD_S = 60.0  # a frame further ahead of the log than this has no usable time


def metrics_of(source: str) -> tuple[Metric, ...]:
    """The judged metrics of a source; "gpu@9401" is a second exporter of source "gpu"."""
    base = source.partition("@")[0]
    return tuple(row for row in CATALOGUE if row.source == base and row.judged)


class Pair:
    """One node's frames of this source: its phase, and the slots of its entities."""

    __slots__ = (
        "entities", "heard", "phase", "raw_entities", "shape", "started_at", "strikes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.phase = math.nan
        self.strikes = 0
        self.heard = -(1 << 60)  # newest tick it reported in
        self.started_at = math.nan
        self.raw_entities: dict[str, list[str]] = {}  # as the newest frame named them
        self.entities: dict[str, list[str]] = {}  # device -> names in slot order
        self.shape: Shape = ()  # device and the slot of each of raw_entities

    def index(self, at: float, interval_s: float, started_at: float) -> int:
        """The tick of a frame at `at`; learns the phase, and learns it anew when it moved."""
        if started_at != self.started_at:
            self.started_at = started_at
            self.phase = at - math.floor(at / interval_s) * interval_s
            self.strikes = 0
        index = round((at - self.phase) / interval_s)
        off = at - self.phase - index * interval_s
        if abs(off) > interval_s / 4:
            self.strikes += 1
            if self.strikes >= PHASE_STRIKES:
                self.phase = at - math.floor(at / interval_s) * interval_s
                self.strikes = 0
                index = round((at - self.phase) / interval_s)
        else:
            self.strikes = 0
        return index

    def name(self, entities: dict[str, list[str]], entities_max: int) -> None:
        """Give each entity its slot; a known one keeps it, whatever its place in the frame."""
        shape = []
        for device, names in entities.items():
            if len(set(names)) != len(names):
                raise BadFrame(f"an entity of {device} is named twice")
            known = self.entities.setdefault(device, [])
            for name in names:
                if name not in known:
                    if len(known) >= entities_max:
                        raise BadFrame(f"more than {entities_max} entities of {device}")
                    known.append(name)
            shape.append((device, tuple(map(known.index, names))))
        self.raw_entities = entities
        self.shape = tuple(shape)


class OpenTick:
    """Raw values of one tick that has not closed yet."""

    __slots__ = ("at", "raw", "seen")

    def __init__(self, nodes: int, width: int) -> None:
        self.raw: FloatArray = np.full((nodes, width), np.nan)
        self.at: FloatArray = np.full(nodes, np.nan)
        self.seen = np.zeros(nodes, dtype=np.bool_)

    def clear(self) -> None:
        """Ready for another tick."""
        self.raw.fill(np.nan)
        self.at.fill(np.nan)
        self.seen.fill(False)


@dataclass(frozen=True, slots=True)
class ClosedStats:
    """λ and δ of a closed tick, kept for late frames, which never alter them."""

    index: int
    groups: IntArray  # numbers of the groups, sorted
    mean: FloatArray  # (metrics, groups)
    sd: FloatArray


class SourceTicks:
    """All of one source: pairs, open ticks, windows."""

    def __init__(
        self,
        source: str,
        interval_s: float,
        settings: EngineSettings,
        active: Callable[[str], bool],
    ) -> None:
        rules = settings.ticks
        self.source = source
        self.interval_s = interval_s
        self._ahead_s = max(AHEAD_S, 2 * interval_s)
        self.lateness_s = rules.lateness_intervals * interval_s
        self.metrics = metrics_of(source)
        self._active = active
        self._sigmas = settings.zscore.sigmas
        self._group_min = settings.zscore.group_min
        self._rules = rules
        self._bad_high = np.array([m.bad == "high" for m in self.metrics], dtype=np.bool_)
        self._counter = np.array([m.kind == "counter" for m in self.metrics], dtype=np.bool_)
        self._wrap_at = np.array([2.0**m.width_bits for m in self.metrics])
        self._scale = np.array([m.effect_min for m in self.metrics])
        self._low = np.array([m.valid_min for m in self.metrics])
        self._high = np.array([m.valid_max for m in self.metrics])
        self._performance = np.array([m.class_ == "performance" for m in self.metrics])
        self.width = 8  # entities a metric; grows
        self.names: list[str] = []
        self.pairs: list[Pair] = []
        self.slot: dict[str, int] = {}
        self.sorted = True
        keep = rules.keep_s + settings.zscore.window_s
        self.windows = Windows(max(4, round(keep / interval_s)), len(self.metrics), 0)
        self.stats: deque[ClosedStats] = deque(maxlen=max(1, round(rules.keep_s / interval_s)))
        self.before: FloatArray = np.full((0, len(self.metrics) * self.width), np.nan)
        self.before_at: FloatArray = np.full(0, np.nan)
        self.open: dict[int, OpenTick] = {}
        self._pool: list[OpenTick] = []
        self.next: int | None = None  # lowest tick that has not closed
        self.expected: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.focus = 0  # the lowest open tick
        self.remaining = 0  # expected pairs that have not reported in it
        self.layouts = Layouts(self.metrics, self.width)
        self.hold_until = -math.inf  # a gap of the log: wait for spooled records
        self.junk = 0  # values outside their physical range
        self.patched: dict[tuple[int, str], None] = {}  # since the last segment
        self.forgotten: dict[str, int] = {}  # node -> first tick that still counts
        self.reset_since: dict[str, int] = {}  # of these, since the last segment

    # -- frames

    def take(self, frame: Frame, at: float, now: float) -> tuple[bool, Tick | None]:
        """Put a frame in its tick: (in time, None), or (late, the late node's tick alone).

        Raises BadFrame where it contradicts itself.
        """
        slot = self.slot.get(frame.node)
        if slot is None:
            slot = self.join(frame.node)
        pair = self.pairs[slot]
        if frame.entities != pair.raw_entities:
            pair.name(frame.entities, self._rules.entities_max)
            self._widen(max(map(len, pair.entities.values()), default=0))
        layout = self.layouts.of(frame.metrics, pair.shape)
        values = flat_values(frame.metrics, layout)
        index = pair.index(at, self.interval_s, frame.started_at)
        if at > now + self._ahead_s:
            raise BadFrame(f"its time lies {at - now:.0f} s ahead of the log")
        if self.next is None:
            self.next = index
        if index < self.next:
            return False, self._late(slot, index, at, layout.columns, values)
        tick = self.open.get(index)
        if tick is None:
            tick = self.open[index] = self._fresh()
            if index == min(self.open):
                self._expect()
        elif tick.seen[slot]:
            tick.raw[slot] = np.nan  # two in one tick: the last wins
        if not tick.seen[slot]:
            tick.seen[slot] = True
            if index == self.focus and self.expected[slot]:
                self.remaining -= 1
        tick.raw[slot][layout.columns] = values
        tick.at[slot] = at
        pair.heard = max(pair.heard, index)
        return True, None

    def due_s(self) -> float:
        """When `now` next has to close something; infinity where nothing is open.

        Never before the tick's end, though all have reported: so no node's phase moves another
        node's verdict.
        """
        if not self.open:
            return math.inf
        if len(self.open) > OPEN_TICKS_MAX:
            return -math.inf
        end = (self.focus + 1) * self.interval_s
        if self.remaining <= 0 and self.expected.any():
            return end
        return max(end + self.lateness_s, min(self.hold_until, end + self._rules.keep_s))

    def close(self, group_of: GroupOf) -> Tick:
        """Close the lowest open tick; call it when `due_s()` has passed."""
        assert self.open
        index = self.focus
        if not self.sorted:
            self._sort()
        tick = self.open.pop(index)
        nodes = len(self.names)
        at_s = index * self.interval_s
        group, employed = group_of(self.names, at_s)
        self._regroup(index, group)
        self.windows.advance(index)
        row = self.windows.position
        worst, entity = self._reduce(tick, np.flatnonzero(tick.seen), nodes)
        groups, column = np.unique(group, return_inverse=True)
        column = np.where(group < 0, -1, column)
        mean, sd, _ = group_moments(worst, column, groups.size, self._group_min)
        node_mean, node_sd = _spread(mean, column), _spread(sd, column)
        self.windows.worst[row, :, :nodes] = worst
        self.windows.group[row, :nodes] = group
        self.windows.flags[row, :, :nodes] = self._flags(worst, node_mean, node_sd, employed)
        self.stats.append(ClosedStats(index, groups, mean, sd))
        tick.clear()
        if len(self._pool) < 4:
            self._pool.append(tick)
        self.next = index + 1
        self._expect()
        span = self.windows.span(row)
        return Tick(
            source=self.source, index=index, at_s=at_s, interval_s=self.interval_s,
            nodes=tuple(self.names), group=group, metrics=self.metrics,
            worst=self.windows.worst[span, :, :nodes], flags=self.windows.flags[span, :, :nodes],
            mean=node_mean, sd=node_sd, entity=entity, entities=_Entities(self),
        )  # fmt: skip

    # -- inside

    def _late(
        self, slot: int, index: int, at: float, columns: NDArray[np.intp], values: FloatArray
    ) -> Tick | None:
        """Fill the node's own history and judge it by what its tick was closed with."""
        node = self.names[slot]
        raw = np.full((1, self.before.shape[1]), np.nan)
        raw[0, columns] = values
        worst, entity = self._judge(raw, np.array([at]), np.array([slot]))
        row = self.windows.row_of(index)
        stats = next((s for s in self.stats if s.index == index), None)
        if row is None or stats is None or index < self.forgotten.get(node, index):
            return None
        group = int(self.windows.group[row, slot])
        column = int(np.searchsorted(stats.groups, group))
        if group < 0 or column == stats.groups.size or stats.groups[column] != group:
            return None
        mean, sd = stats.mean[:, column : column + 1], stats.sd[:, column : column + 1]
        self.windows.worst[row, :, slot] = worst[:, 0]
        flags = self._flags(worst, mean, sd, np.array([True]))
        self.windows.flags[row, :, slot] = flags[:, 0]
        self.patched[index, node] = None
        span = self.windows.span(row)
        return Tick(
            source=self.source, index=index, at_s=index * self.interval_s,
            interval_s=self.interval_s, nodes=(node,), group=np.array([group]),
            metrics=self.metrics, worst=self.windows.worst[span, :, slot : slot + 1],
            flags=self.windows.flags[span, :, slot : slot + 1], mean=mean, sd=sd, entity=entity,
            entities=_Entities(self), partial=True,
        )  # fmt: skip

    def _reduce(
        self, tick: OpenTick, seen: NDArray[np.intp], nodes: int
    ) -> tuple[FloatArray, IntArray]:
        """The worst entity of every node, NaN for those that did not report."""
        if seen.size == nodes:
            return self._judge(tick.raw[:nodes], tick.at[:nodes], seen)
        worst = np.full((len(self.metrics), nodes), np.nan)
        entity = np.full((len(self.metrics), nodes), -1, dtype=np.int64)
        worst[:, seen], entity[:, seen] = self._judge(tick.raw[seen], tick.at[seen], seen)
        return worst, entity

    def _judge(
        self, raw: FloatArray, at: FloatArray, slots: NDArray[np.intp]
    ) -> tuple[FloatArray, IntArray]:
        """Raw rows of some nodes to their worst entities; remembers them for the next rates."""
        shape = (len(slots), len(self.metrics), self.width)
        values = raw.reshape(shape)
        junk = (values < self._low[None, :, None]) | (values > self._high[None, :, None])
        if junk.any():
            self.junk += int(junk.sum())
            values = np.where(junk, np.nan, values)
        elapsed = at - self.before_at[slots]
        rates = counter_rates(
            values[:, self._counter],
            self.before[slots].reshape(shape)[:, self._counter],
            elapsed,
            self._wrap_at[self._counter],
        )
        judged = values.copy()
        judged[:, self._counter] = rates
        newer = np.flatnonzero(~(elapsed <= 0.0))  # NaN: the first one
        self.before[slots[newer]] = values.reshape(len(slots), -1)[newer]
        self.before_at[slots[newer]] = at[newer]
        return worst_entity(judged, self._bad_high)

    def _flags(
        self, worst: FloatArray, mean: FloatArray, sd: FloatArray, employed: NDArray[np.bool_]
    ) -> NDArray[np.int8]:
        """0 missing, 1 normal, 2 beyond λ+2δ; performance is compared inside a job only."""
        over = beyond(worst, mean, sd, self._sigmas, self._bad_high, self._scale)
        known = ~np.isnan(worst) & ~np.isnan(mean)
        known &= employed[None, :] | ~self._performance[:, None]
        flags = np.where(known, np.where(over, ABNORMAL, NORMAL), MISSING)
        return flags.astype(np.int8)

    def _regroup(self, index: int, group: IntArray) -> None:
        """Who left its group since the newest tick begins a new history."""
        if self.windows.newest is None:
            return
        old = self.windows.group[self.windows.position, : len(self.names)]
        for slot in np.flatnonzero((old != group) & (old >= 0)).tolist():
            self.windows.forget(slot, self.windows.position + 1)
            self.forgotten[self.names[slot]] = index
            self.reset_since[self.names[slot]] = index

    def _expect(self) -> None:
        """Who is expected in the lowest open tick: heard within the last ticks, in service."""
        if not self.open:
            return
        self.focus = min(self.open)
        oldest = self.focus - self._rules.expected_ticks
        self.expected = np.fromiter(
            (
                pair.heard >= oldest and self._active(name)
                for name, pair in zip(self.names, self.pairs, strict=True)
            ),
            dtype=np.bool_,
            count=len(self.pairs),
        )
        seen = self.open[self.focus].seen[: len(self.names)]
        self.remaining = int(np.count_nonzero(self.expected & ~seen))

    def _fresh(self) -> OpenTick:
        return self._pool.pop() if self._pool else OpenTick(len(self.before_at), self._row_width())

    def _row_width(self) -> int:
        return len(self.metrics) * self.width

    def join(self, node: str) -> int:
        """A new column for a node; raises BadFrame when there is no room."""
        if len(self.names) >= self._rules.nodes_max:
            raise BadFrame(f"more than {self._rules.nodes_max} nodes")
        slot = len(self.names)
        self.sorted = self.sorted and (slot == 0 or self.names[-1] < node)
        self.names.append(node)
        self.pairs.append(Pair())
        self.slot[node] = slot
        if slot >= len(self.before_at):
            self._grow(max(16, 2 * slot))
        self.expected = np.append(self.expected, False)
        return slot

    def _grow(self, capacity: int) -> None:
        order = np.full(capacity, -1, dtype=np.intp)
        order[: len(self.before_at)] = np.arange(len(self.before_at))
        self._permute(order)

    def _sort(self) -> None:
        """Columns in the order of names."""
        order = np.array(sorted(range(len(self.names)), key=self.names.__getitem__), dtype=np.intp)
        self.names = [self.names[i] for i in order.tolist()]
        self.pairs = [self.pairs[i] for i in order.tolist()]
        self.slot = {name: slot for slot, name in enumerate(self.names)}
        self.expected = self.expected[order]
        full = np.arange(len(self.before_at), dtype=np.intp)
        full[: order.size] = order
        self._permute(full)
        self.sorted = True

    def _permute(self, order: NDArray[np.intp]) -> None:
        known = np.flatnonzero(order >= 0)
        source = order[known]
        self.windows.reorder(order, order.size)
        before = np.full((order.size, self._row_width()), np.nan)
        before[known] = self.before[source]
        before_at = np.full(order.size, np.nan)
        before_at[known] = self.before_at[source]
        self.before, self.before_at = before, before_at
        self._pool.clear()
        for index, tick in self.open.items():
            moved = OpenTick(order.size, self._row_width())
            moved.raw[known], moved.at[known] = tick.raw[source], tick.at[source]
            moved.seen[known] = tick.seen[source]
            self.open[index] = moved

    def _widen(self, entities: int) -> None:
        """More entities on a node than there are columns for: wider rows for all."""
        if entities <= self.width:
            return
        self.set_width(-(-entities // 8) * 8)

    def set_width(self, width: int) -> None:
        """Columns for `width` entities a metric."""
        old, self.width = self.width, width
        self.layouts = Layouts(self.metrics, self.width)
        self._pool.clear()
        self.before = _wider(self.before, len(self.metrics), old, self.width)
        for tick in self.open.values():
            tick.raw = _wider(tick.raw, len(self.metrics), old, self.width)


class _Entities(Mapping[str, Mapping[str, Sequence[str]]]):
    """node -> device -> entity names, read where needed."""

    def __init__(self, ticks: SourceTicks) -> None:
        self._ticks = ticks

    def __getitem__(self, node: str) -> Mapping[str, Sequence[str]]:
        return self._ticks.pairs[self._ticks.slot[node]].entities

    def __iter__(self) -> Iterator[str]:
        return iter(self._ticks.names)

    def __len__(self) -> int:
        return len(self._ticks.names)


def _spread(values: FloatArray, group: IntArray) -> FloatArray:
    """Per-group columns to per-node columns, NaN for nodes without a group."""
    padded = np.concatenate([values, np.full((values.shape[0], 1), np.nan)], axis=1)
    return padded[:, group]


def _wider(rows: FloatArray, metrics: int, old: int, new: int) -> FloatArray:
    fresh = np.full((rows.shape[0], metrics, new), np.nan)
    fresh[:, :, :old] = rows.reshape(rows.shape[0], metrics, old)
    return fresh.reshape(rows.shape[0], metrics * new)
