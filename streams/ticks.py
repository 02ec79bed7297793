"""Frames of one source become ticks: open while nodes report, closed once, in order.

tick = round((at - phase) / interval) with each pair's own learned phase, so that a node's place in
the interval delays nobody. A tick closes when its time is over and every expected pair has
reported but a few, at the latest `lateness` after its end. Where frames usually come long after
they were measured, as from a Prometheus, the few are waited for as long as that: else those that
are scraped last would never be in time, then not expected any more, and then the next ones.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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
    remembered,
    worst_entity,
)
from streams.layout import BadFrame, Columns, Layout, Layouts
from streams.pairs import ClosedStats, OpenTick, Pair
from streams.rows import Rows, moved_rows
from streams.windows import Windows
from telemetry.records import Frame
from telemetry.settings import EngineSettings

GroupOf = Callable[[Sequence[str], float], tuple[IntArray, NDArray[np.bool_]]]
"""(names, at) -> number of each name's peer group, never used again for another; -1 for none; and
whether the node works for a job."""

OPEN_TICKS_MAX = 128
MANY = 4  # of fewer expected pairs each one is waited for
AHEAD_S = 60.0  # a frame further ahead of the log than this has no usable time
_IN_TIME = (True, None)


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
        self._settle_s = min(rules.settle_s, rules.settle_intervals * interval_s)
        self._active = active
        self._sigmas = settings.zscore.sigmas
        self._group_min = settings.zscore.group_min
        self._rules = rules
        self.rows = Rows(source, ())
        self.width = 8  # entities a metric; grows
        self.names: list[str] = []
        self.pairs: list[Pair] = []
        self.slot: dict[str, int] = {}
        self.sorted = True
        keep = rules.keep_s + settings.zscore.window_s
        self.windows = Windows(max(4, round(keep / interval_s)), 0, 0)
        self.stats: deque[ClosedStats] = deque(maxlen=max(1, round(rules.keep_s / interval_s)))
        self.before: FloatArray = np.full((0, 0), np.nan)
        self.before_at: FloatArray = np.full(0, np.nan)
        self.open: dict[int, OpenTick] = {}
        self._pool: list[OpenTick] = []
        self.next: int | None = None  # lowest tick that has not closed
        self.expected: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.focus = 0  # the lowest open tick
        self.remaining = 0  # expected pairs that have not reported in it
        self.few = 0  # so many of them are not waited for longer than `few_wait_s` after its end
        self.few_wait_s = self._settle_s
        self.stirred = False  # a frame may have moved `due_s()`; whoever asks sets it back
        self.layouts = Layouts(self.rows.all, self.width)
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
        pair = Pair() if slot is None else self.pairs[slot]
        if frame.entities != pair.raw_entities:
            pair.name(frame.entities, self._rules.entities_max)
            self._widen(max(map(len, pair.entities.values()), default=0))
        layout = pair.layout
        if layout is None or not layout.fits(frame.metrics):
            layout = pair.layout = self._laid_out(frame.metrics, pair)
        values = layout.values(frame.metrics)
        if at > now + self._ahead_s:
            raise BadFrame(f"its time lies {at - now:.0f} s ahead of the log")
        if slot is None:  # only now: a frame that is rejected makes nobody join
            slot = self.join(frame.node)
            self.pairs[slot] = pair
        index = pair.index(at, self.interval_s, frame.started_at)
        if self.next is None:
            self.next = index
        if index < self.next:
            if not frame.spooled:
                pair.took(now - at)
            return False, self._late(slot, index, at, layout.columns, values)
        tick = self.open.get(index)
        if tick is None:
            tick = self._open(index)
        if tick.seen[slot]:
            tick.raw[slot] = np.nan  # two in one tick: the last wins
        else:
            tick.seen[slot] = True
            if index == self.focus and self.expected[slot]:
                self.remaining -= 1
                self.stirred = self.stirred or self.remaining <= self.few
        tick.raw[slot][layout.columns] = values  # twice as fast as [slot, columns]
        tick.at[slot] = at
        pair.heard = max(pair.heard, index)
        if not frame.spooled:
            pair.took(now - at)
        return _IN_TIME

    def _laid_out(self, metrics: Columns, pair: Pair) -> Layout:
        """The layout of a frame that is not like the one before it."""
        layout = self.layouts.known(metrics, pair.shape)
        if layout is None:
            self.learn(metrics)
            layout = self.layouts.of(metrics, pair.shape)
        return layout

    def _open(self, index: int) -> OpenTick:
        tick = self.open[index] = self._pool.pop() if self._pool else self._empty()
        if index == min(self.open):
            self._expect()
        self.stirred = True
        return tick

    def due_s(self) -> float:
        """When `now` next has to close something; infinity where nothing is open.

        A moment after the tick's end when all but a few of the expected pairs have reported, and
        never before it: so neither the phase nor the death of one node moves another's verdict.
        The few are waited for where it is usual that frames come late.
        """
        if not self.open:
            return math.inf
        if len(self.open) > OPEN_TICKS_MAX:
            return -math.inf
        end = (self.focus + 1) * self.interval_s
        # While spools drain, the tick of now is complete long before those of the gap are opened,
        # and whoever is missing is on its way.
        draining = math.isfinite(self.hold_until)
        in_turn = self.focus == self.next or not draining
        few = 0 if draining else self.few
        if in_turn and self.remaining <= few and self.expected.any():
            return end + (self.few_wait_s if self.remaining else self._settle_s)
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
        worst, entity, watched = self._reduce(tick, np.flatnonzero(tick.seen), nodes)
        groups, column = np.unique(group, return_inverse=True)
        column = np.where(group < 0, -1, column)
        mean, sd, _ = group_moments(worst, column, groups.size, self._group_min)
        node_mean, node_sd = _spread(mean, column), _spread(sd, column)
        self.windows.worst[row, :, :nodes] = worst
        self.windows.group[row, :nodes] = group
        self.windows.flags[row, :, :nodes] = self._flags(worst, node_mean, node_sd, employed)
        works = np.array([bool(employed[column == g].any()) for g in range(groups.size)])
        self.stats.append(ClosedStats(index, groups, works, mean, sd))
        tick.clear()
        if len(self._pool) < 4:
            self._pool.append(tick)
        self.next = index + 1
        self._expect()
        span = self.windows.span(row)
        return Tick(
            source=self.source, index=index, at_s=at_s, interval_s=self.interval_s,
            nodes=tuple(self.names), group=group, metrics=self.rows.judged,
            worst=self.windows.worst[span, :, :nodes], flags=self.windows.flags[span, :, :nodes],
            mean=node_mean, sd=node_sd, entity=entity, entities=_Entities(self),
            watched_metrics=self.rows.watched, watched=watched,
        )  # fmt: skip

    # -- inside

    def _late(
        self, slot: int, index: int, at: float, columns: NDArray[np.intp], values: FloatArray
    ) -> Tick | None:
        """Fill the node's own history and judge it by what its tick was closed with."""
        node = self.names[slot]
        raw = np.full((1, self.before.shape[1]), np.nan)
        raw[0, columns] = values
        worst, entity, watched = self._judge(raw, np.array([at]), np.array([slot]))
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
        flags = self._flags(worst, mean, sd, stats.employed[column : column + 1])
        self.windows.flags[row, :, slot] = flags[:, 0]
        self.patched[index, node] = None
        span = self.windows.span(row)
        return Tick(
            source=self.source, index=index, at_s=index * self.interval_s,
            interval_s=self.interval_s, nodes=(node,), group=np.array([group]),
            metrics=self.rows.judged, worst=self.windows.worst[span, :, slot : slot + 1],
            flags=self.windows.flags[span, :, slot : slot + 1], mean=mean, sd=sd, entity=entity,
            entities=_Entities(self), partial=True, watched_metrics=self.rows.watched,
            watched=watched,
        )  # fmt: skip

    def _reduce(
        self, tick: OpenTick, seen: NDArray[np.intp], nodes: int
    ) -> tuple[FloatArray, IntArray, FloatArray]:
        """The worst entity of every node and what is watched, NaN for those without a report."""
        if seen.size == nodes:
            return self._judge(tick.raw[:nodes], tick.at[:nodes], seen)
        worst = np.full((len(self.rows.judged), nodes), np.nan)
        entity = np.full((len(self.rows.judged), nodes), -1, dtype=np.int64)
        watched = np.full((len(self.rows.watched), nodes, self.width), np.nan)
        found = self._judge(tick.raw[seen], tick.at[seen], seen)
        worst[:, seen], entity[:, seen], watched[:, seen] = found
        return worst, entity, watched

    def _judge(
        self, raw: FloatArray, at: FloatArray, slots: NDArray[np.intp]
    ) -> tuple[FloatArray, IntArray, FloatArray]:
        """Raw rows of some nodes to their worst entities; remembers them for the next rates."""
        rows = self.rows
        raw = self._without_junk(raw)
        # Of all of them in order a view will do, which spares copies.
        here = slice(0, len(slots)) if len(slots) == len(self.names) else slots
        shape = (len(slots), len(rows.all), self.width)
        values = raw.reshape(shape)
        elapsed = at - self.before_at[here]
        before = self.before[here].reshape(shape)
        rated = values.copy()
        counts, counts_before = values[:, rows.counters], before[:, rows.counters]
        rated[:, rows.counters] = counter_rates(counts, counts_before, elapsed, rows.wrap_at)
        kept = remembered(counts, counts_before)
        if kept is not counts:
            values[:, rows.counters] = kept  # and `raw`, of which it is a view
        newer = ~(elapsed <= 0.0)  # NaN: the first one
        if newer.all():
            self.before[here], self.before_at[here] = raw, at
        else:
            self.before[slots[newer]], self.before_at[slots[newer]] = raw[newer], at[newer]
        judged = len(rows.judged)
        worst, entity = worst_entity(rated[:, :judged], rows.bad_high)
        return worst, entity, rated[:, judged:].transpose(1, 0, 2)

    def _without_junk(self, raw: FloatArray) -> FloatArray:
        """Raw rows in which what lies outside its physical range is NaN, and counted."""
        low, high = np.repeat(self.rows.low, self.width), np.repeat(self.rows.high, self.width)
        least, most = np.fmin.reduce(raw, axis=0), np.fmax.reduce(raw, axis=0)
        if not ((least < low) | (most > high)).any():
            return raw
        junk = (raw < low) | (raw > high)
        self.junk += int(junk.sum())
        junk |= self._unread(raw, junk)
        return np.where(junk, np.nan, raw)

    def _unread(self, raw: FloatArray, junk: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """All cells of devices whose vital values are junk, each one that is there, two at least.

        An exporter that lost its driver prints 0 for everything: its zeros are no idle GPU, and its
        counters were not set back.
        """
        shape = (len(raw), len(self.rows.all), self.width)
        vital = self.rows.vital
        bad = junk.reshape(shape)[:, vital].sum(axis=1)
        there = (~np.isnan(raw.reshape(shape)[:, vital])).sum(axis=1)
        unread = (bad >= 2) & (bad == there)
        return np.repeat(unread[:, None, :], shape[1], axis=1).reshape(raw.shape)

    def _flags(
        self, worst: FloatArray, mean: FloatArray, sd: FloatArray, employed: NDArray[np.bool_]
    ) -> NDArray[np.int8]:
        """0 missing, 1 normal, 2 beyond λ+2δ; performance is compared inside a job only."""
        rows = self.rows
        over = beyond(worst, mean, sd, self._sigmas, rows.bad_high, rows.scale)
        known = ~np.isnan(worst) & ~np.isnan(mean)
        known &= employed[None, :] | ~rows.performance[:, None]
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
        expected = int(np.count_nonzero(self.expected))
        least = 1 if expected >= MANY else 0
        self.few = max(least, int(self._rules.few_share * expected))
        self.few_wait_s = self._usual_wait_s()

    def _usual_wait_s(self) -> float:
        """How long after a tick's end the last of its frames usually comes.

        Where no more than a few are slow, they are so by themselves, and delay nobody.
        """
        took_s = np.fromiter((pair.took_s for pair in self.pairs), np.float64, len(self.pairs))
        took_s = np.sort(took_s[self.expected])
        if took_s.size <= self.few or took_s[-1 - self.few] <= self._settle_s:
            return self._settle_s
        return min(self._settle_s + float(took_s[-1]), self.lateness_s)

    def _empty(self) -> OpenTick:
        return OpenTick(len(self.before_at), self._row_width())

    def _row_width(self) -> int:
        return len(self.rows.all) * self.width

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

    def drop(self, nodes: frozenset[str]) -> None:
        """Forget these; whoever speaks again joins anew."""
        stay = [slot for slot, name in enumerate(self.names) if name not in nodes]
        if len(stay) == len(self.names):
            return
        self._arrange(stay, max(16, len(stay)))
        for node in nodes:
            self.forgotten.pop(node, None)
            self.reset_since.pop(node, None)
        self.patched = {cell: None for cell in self.patched if cell[1] not in nodes}
        self._expect()
        self.stirred = True

    def _grow(self, capacity: int) -> None:
        order = np.full(capacity, -1, dtype=np.intp)
        order[: len(self.before_at)] = np.arange(len(self.before_at))
        self._permute(order)

    def _sort(self) -> None:
        """Columns in the order of names."""
        order = sorted(range(len(self.names)), key=self.names.__getitem__)
        self._arrange(order, len(self.before_at))
        self.sorted = True

    def _arrange(self, slots: list[int], capacity: int) -> None:
        """Node i becomes the one that had `slots[i]`; whoever is not among them is gone."""
        self.names = [self.names[slot] for slot in slots]
        self.pairs = [self.pairs[slot] for slot in slots]
        self.slot = {name: slot for slot, name in enumerate(self.names)}
        self.expected = self.expected[slots]
        order = np.full(capacity, -1, dtype=np.intp)
        order[: len(slots)] = slots
        self._permute(order)

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
        self._lay_out_anew()
        self.before = _wider(self.before, len(self.rows.all), old, self.width)
        for tick in self.open.values():
            tick.raw = _wider(tick.raw, len(self.rows.all), old, self.width)

    def _lay_out_anew(self) -> None:
        self.layouts = Layouts(self.rows.all, self.width)
        for pair in self.pairs:
            pair.layout = None
        self._pool.clear()

    def learn(self, names: Iterable[str]) -> None:
        """Rows for metrics that no frame carried before: only what a site has costs memory."""
        rows = self.rows.with_names(names)
        if rows is self.rows:
            return
        old, self.rows = self.rows, rows
        self._lay_out_anew()
        source = rows.places_in(old)
        self.before = moved_rows(self.before, source, self.width)
        for tick in self.open.values():
            tick.raw = moved_rows(tick.raw, source, self.width)
        judged = source[: len(rows.judged)]
        self.windows.restack(judged)
        kept = [
            ClosedStats(
                s.index, s.groups, s.employed, moved_rows(s.mean.T, judged, 1).T,
                moved_rows(s.sd.T, judged, 1).T,
            )
            for s in self.stats
        ]  # fmt: skip
        self.stats.clear()
        self.stats.extend(kept)


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
