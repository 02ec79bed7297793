"""Robust peers: beyond the peers' median and the node's own usual offset, by a CUSUM over ticks.

Evidence, never a fault. A large shift is said at the third sample, one of 1.2 sigma within ten
minutes. On independent Gaussian noise the mean time between false alarms of one series is

    (exp(2 k b) - 2 k b - 1) / (2 k^2) samples,  b = h + 1.166   (Siegmund, Sequential Analysis,
    1985; k = `drift_sigmas`, h = `threshold_sigmas`): 2.5e9 samples with the defaults.

The effect must besides reach the metric's smallest that matters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from detectors.base import FloatArray, Quiet, Sighting, Tick, View
from detectors.cells import Cells, KeptCells, restored
from detectors.onsets import tick_onset, turning_point
from detectors.robust import cusum, peers
from detectors.should_be_zero import hold_ticks
from detectors.small_groups import SmallGroups
from detectors.stuck import stuck_cells
from detectors.zscore import cause_of
from telemetry.findings import six_digits
from telemetry.metrics import Metric
from telemetry.settings import EngineSettings, RobustPeersSettings

SAMPLES_MOST = 1_000_000
OPEN_MAX = 50_000

Mask = NDArray[np.bool_]


class Open(msgspec.Struct):
    """An open finding: where it was said, and the node's group then."""

    source: str
    entity: str
    job: str
    group: int


class State(msgspec.Struct):
    """All of it, for a snapshot; `held` is (source, metric, node, tick of crossing)."""

    cells: dict[str, KeptCells]
    open: list[tuple[str, str, Open]]
    held: list[tuple[str, str, str, int]]
    small: dict[str, float]


class Rules:
    """The metrics of one source as arrays; all of shape (metrics, 1)."""

    def __init__(self, metrics: tuple[Metric, ...]) -> None:
        self.metrics = metrics
        self.sign = _column([1.0 if m.bad == "high" else -1.0 for m in metrics])
        self.effect = _column([m.effect_min for m in metrics])
        self.abnormal: Mask = np.array([[m.class_ == "abnormal"] for m in metrics])


class Measured:
    """One tick seen against the peers; arrays of shape (metrics, nodes), bad direction positive.

    usual   what the node's value should be
    away    how far it is beyond that, NaN where it is not judged
    scale   one sigma
    ready   enough samples came before this one
    """

    __slots__ = ("away", "away_full", "peer_scale", "ready", "scale", "usual")

    def __init__(
        self, tick: Tick, rules: Rules, cells: Cells, judged: Mask, settings: RobustPeersSettings
    ) -> None:
        values = np.where(judged, tick.worst[-1], np.nan) * rules.sign
        offset = cells.offset.astype(np.float64)
        centre, self.peer_scale = peers(values - offset, tick.group, settings.group_min)
        self.away_full = values - offset - centre
        # Better than the peers is no reason to be held to more than the peers.
        self.usual = centre + np.maximum(offset, 0.0)
        self.away = values - self.usual
        floor = np.maximum(
            rules.effect / settings.effect_sigmas, settings.relative_floor * np.abs(centre)
        )
        self.scale = np.fmax(np.fmax(self.peer_scale, cells.scale), floor)
        covered = math.ceil(settings.covered_s / tick.interval_s - 1e-9)
        least = np.where(rules.abnormal, settings.counter_samples_min, settings.samples_min)
        self.ready = (cells.samples >= np.maximum(least, covered)) & ~np.isnan(self.away)


class RobustPeers(Quiet):
    """Vectorised over (metrics, nodes); only cells that change become objects."""

    name = "robust_peers"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings.robust_peers
        self._busy_percent = settings.telemetry_quality.busy_percent
        # Counters burst, and correlation must know the mates before anybody is accused.
        self._zero = settings.should_be_zero
        self._cells: dict[str, Cells] = {}
        self._rules: dict[str, Rules] = {}
        self._open: dict[tuple[str, str], Open] = {}  # (metric, node)
        self._held: dict[tuple[str, str, str], int] = {}  # (source, metric, node) -> tick
        self._small = SmallGroups(
            self.name, self._settings.group_min, settings.robust_peers.covered_s
        )

    def on_tick(self, tick: Tick, view: View, now_s: float) -> Sequence[Sighting]:
        """Judge this tick. A late frame alone has no peers to be compared with."""
        if tick.partial or not tick.metrics:
            return ()
        rules = self._rules.get(tick.source)
        if rules is None or rules.metrics != tick.metrics:
            rules = self._rules[tick.source] = Rules(tick.metrics)
        cells = self._align(tick)
        measured = Measured(tick, rules, cells, self._judged(tick, rules, view), self._settings)
        self._count(cells, measured, rules, tick)
        said = self._clear(cells, measured, tick)
        said += self._crossed(cells, measured, rules, tick, view)
        self._learn(cells, measured, rules, tick)
        cells.newest = tick.index
        return [*said, *self._small.look(tick, view)]

    # -- the arrays

    def _align(self, tick: Tick) -> Cells:
        """Columns and rows as in the tick; who changed its group, or its job, begins anew."""
        names = [metric.name for metric in tick.metrics]
        known = self._cells.get(tick.source)
        cells = Cells(names, tick.nodes) if known is None else known.aligned(names, tick.nodes)
        self._cells[tick.source] = cells
        moved = np.flatnonzero(cells.group != tick.group)
        if moved.size:
            cells.forget(moved)
            cells.group = tick.group.copy()
        return cells

    def _judged(self, tick: Tick, rules: Rules, view: View) -> Mask:
        """Performance is compared inside a job only; a ratio that lies is none."""
        numbers, first, place = np.unique(tick.group, return_index=True, return_inverse=True)
        working = [
            number >= 0 and bool(view.place(tick.nodes[column], tick.at_s).job)
            for number, column in zip(numbers.tolist(), first.tolist(), strict=True)
        ]
        employed = np.array(working, dtype=np.bool_)[place]
        judged = (tick.group >= 0)[None, :] & (rules.abnormal | employed[None, :])
        stuck = stuck_cells(tick, self._busy_percent)
        return judged if stuck is None else judged & ~stuck

    def _count(self, cells: Cells, measured: Measured, rules: Rules, tick: Tick) -> None:
        """One step of the CUSUM, and how long and at what level it has been running.

        An offset learned from few samples is wrong by a share of a sigma at every tick; the drift
        pays for it.
        """
        rule = self._settings
        most = _step(rule, tick.interval_s)
        passed = 1 if cells.newest is None else tick.index - cells.newest
        if passed * tick.interval_s > rule.gap_s:
            cells.total[:] = 0.0
        z = np.where(measured.ready, measured.away / measured.scale, np.nan)
        error = np.where(rules.abnormal, 0.0, 1.0 / np.sqrt(np.maximum(cells.samples, 1)))
        drift = rule.drift_sigmas + rule.offset_errors * error
        total = cusum(cells.total.astype(np.float64), z, drift, most, rule.threshold_sigmas + most)
        began = cells.total <= 0.0
        cells.total[...] = total
        running = cells.total > 0.0
        cells.run[...] = np.where(running, np.where(began, 1, cells.run + passed), 0)
        weight = np.clip(cells.run, 1, rule.level_samples)
        level = cells.level + (measured.away - cells.level) / weight
        cells.level[...] = np.where(measured.ready, level, cells.level)

    def _learn(self, cells: Cells, measured: Measured, rules: Rules, tick: Tick) -> None:
        """The usual offset follows calm samples in small steps, a lasting shift over hours.

        What should be zero has no usual offset. What is learned from calm samples never exceeds
        the smallest effect, so a fault that was there from the start is no habit.
        """
        rule = self._settings
        seen = ~np.isnan(measured.away_full)
        cells.samples[...] = np.minimum(cells.samples + seen, SAMPLES_MOST)
        count = np.maximum(cells.samples, 1)
        away = measured.away_full
        gain = np.maximum(1.0 / count, tick.interval_s / rule.offset_s)
        most = np.where(measured.ready, rule.calm_sigmas * measured.scale, np.inf)
        step = gain * np.clip(away, -most, most)
        offset = cells.offset.astype(np.float64)
        calm = np.minimum(offset + step, np.maximum(rules.effect, offset))
        shifted = offset + min(1.0, tick.interval_s / rule.shift_s) * away
        moved = np.where(cells.total < rule.calm_sigmas, calm, shifted)
        cells.offset[...] = np.where(seen & ~rules.abnormal, moved, offset)
        old = cells.scale.astype(np.float64)
        bounded = np.where(count > 1, np.fmin(measured.peer_scale, 2.0 * measured.scale), np.inf)
        bounded = np.fmin(bounded, measured.peer_scale)
        smooth = old + (bounded - old) / np.minimum(count, rule.smooth_samples)
        cells.scale[...] = np.where(seen, smooth, old)

    # -- what is said

    def _clear(self, cells: Cells, measured: Measured, tick: Tick) -> list[Sighting]:
        """What is over: the CUSUM is back at zero, or the node does other work now.

        A value that is missing clears nothing.
        """
        if not self._open:
            return []
        column = {node: c for c, node in enumerate(tick.nodes)}
        row = {metric.name: r for r, metric in enumerate(tick.metrics)}
        over = []
        for key, kept in self._open.items():
            metric, node = key
            if kept.source != tick.source or node not in column:
                continue
            c, r = column[node], row.get(metric)
            moved = int(tick.group[c]) != kept.group
            calm = r is not None and bool(measured.ready[r, c] & (cells.total[r, c] <= 0.0))
            if moved or calm:
                over.append(key)
        return [self._over(key, tick.at_s) for key in sorted(over)]

    def _over(self, key: tuple[str, str], at_s: float) -> Sighting:
        kept = self._open.pop(key)
        return Sighting(
            active=False, detector=self.name, node=key[1], entity=kept.entity, metric=key[0],
            onset_s=at_s, role="evidence", job=kept.job,
        )  # fmt: skip

    def _crossed(
        self, cells: Cells, measured: Measured, rules: Rules, tick: Tick, view: View
    ) -> list[Sighting]:
        """Open what is beyond; a metric on which others are on their way is said with them."""
        rule = self._settings
        with np.errstate(invalid="ignore"):
            matters = (measured.away >= rules.effect) & (cells.level >= rules.effect)
            beyond = measured.ready & (cells.total > rule.threshold_sigmas) & matters
        hold = hold_ticks(self._zero, tick.interval_s)
        wait = max(2, math.ceil(rule.mates_s / tick.interval_s - 1e-9))
        beyond &= ~rules.abnormal | (cells.run >= hold)
        fresh = [
            (r, c)
            for r, c in zip(*(axis.tolist() for axis in np.nonzero(beyond)), strict=True)
            if (tick.metrics[r].name, tick.nodes[c]) not in self._open
        ]
        held = {k: at for k, at in self._held.items() if k[0] != tick.source}
        said = []
        coming: dict[int, bool] = {}
        for r, c in fresh:
            key = (tick.source, tick.metrics[r].name, tick.nodes[c])
            since = self._held.get(key, tick.index)
            if r not in coming:
                coming[r] = self._coming(r, beyond[r], cells, measured, rules, tick, hold)
            if coming[r] and tick.index - since < wait:
                held[key] = since
            elif len(self._open) < OPEN_MAX:
                said.append(self._say(r, c, cells, measured, tick, view))
        self._held = held
        return said

    def _coming(
        self, r: int, beyond: Mask, cells: Cells, measured: Measured, rules: Rules, tick: Tick,
        hold: int,
    ) -> bool:  # fmt: skip
        """Whether another node may soon suffer as much: it would make it a matter of all."""
        away, total = measured.away[r], cells.total[r]
        effect = float(rules.effect[r, 0])
        with np.errstate(invalid="ignore"):
            near = (
                (away >= effect / 2.0) & (total > 0.0) & (total <= self._settings.threshold_sigmas)
            )
            if rules.abnormal[r, 0]:
                # Also in groups too small to be judged: a leaf has nodes of many jobs.
                bad = tick.worst[-hold:, r, :] >= effect
                near |= bad[-1] & (np.count_nonzero(bad, axis=0) < hold)
        return bool((near & ~beyond).any())

    def _say(
        self, r: int, c: int, cells: Cells, measured: Measured, tick: Tick, view: View
    ) -> Sighting:
        metric, node = tick.metrics[r], tick.nodes[c]
        side = 1.0 if metric.bad == "high" else -1.0
        observed = six_digits(float(tick.worst[-1, r, c]))
        expected = six_digits(side * float(measured.usual[r, c]))
        away = float(measured.away[r, c])
        z = six_digits(away / float(measured.scale[r, c]))
        entity, job = tick.entity_name(r, c), view.place(node, tick.at_s).job
        back = int(cells.run[r, c]) - 1
        if metric.class_ != "abnormal" and back < tick.worst.shape[0]:
            run = side * tick.worst[-1 - back :, r, c] - float(measured.usual[r, c])
            back -= turning_point(run)
        onset_s, resolution_s = tick_onset(tick, r, c, back)
        self._open[metric.name, node] = Open(tick.source, entity, job, int(tick.group[c]))
        return Sighting(
            active=True, detector=self.name, node=node, entity=entity, metric=metric.name,
            onset_s=onset_s, role="evidence", kind=metric.family, cause=cause_of(metric.family),
            job=job, observed=observed, expected=expected, unit=metric.judged_unit, score=z,
            onset_resolution_s=resolution_s,
            text=f"{metric.name} of {entity or node} is {observed:g} {metric.judged_unit}, "
            f"{'above' if side > 0 else 'below'} its usual {expected:g} beside its peers: "
            f"effect {six_digits(away):g}, z {z:g}",
        )  # fmt: skip

    # -- state

    def reset(self, source: str) -> None:
        """Another interval: all is learned anew; what is open stays so until it is judged."""
        self._cells.pop(source, None)
        self._held = {key: at for key, at in self._held.items() if key[0] != source}

    def bytes(self) -> int:
        """What the arrays take, all sources together."""
        return sum(cells.bytes for cells in self._cells.values())

    def snapshot(self) -> Any:
        """All of it."""
        state = State(
            {source: cells.kept() for source, cells in self._cells.items()},
            [(metric, node, kept) for (metric, node), kept in sorted_items(self._open)],
            [(*key, at) for key, at in sorted(self._held.items())],
            self._small.since,
        )
        return msgspec.to_builtins(state)

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        kept = msgspec.convert(state, State)
        self._cells = {source: restored(cells) for source, cells in kept.cells.items()}
        self._open = {(metric, node): one for metric, node, one in kept.open}
        self._held = {(source, metric, node): at for source, metric, node, at in kept.held}
        self._small.since = kept.small


def sorted_items(open_: dict[tuple[str, str], Open]) -> list[tuple[tuple[str, str], Open]]:
    """By key alone."""
    return sorted(open_.items(), key=lambda item: item[0])


def _step(rule: RobustPeersSettings, interval_s: float) -> float:
    """The most that one sample counts: no fewer ticks than `fast_s` cross the threshold."""
    ticks = max(2, math.ceil(rule.fast_s / interval_s - 1e-9))
    return 1.001 * rule.threshold_sigmas / ticks


def _column(values: Sequence[float]) -> FloatArray:
    return np.array(values, dtype=np.float64)[:, None]
