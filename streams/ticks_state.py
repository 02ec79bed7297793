"""What of one source goes into a snapshot, and its closed ticks into segments.

A segment holds the ticks closed since the last one, the cells that late frames patched in older
ones, and who began a new history. Segments applied in order, oldest first, give the windows.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from detectors.base import FloatArray
from streams.arrays import Packed, pack, unpack
from streams.pairs import ClosedStats, OpenTick, Pair
from streams.ticks import SourceTicks
from telemetry.errors import SnapshotError


class PairState(msgspec.Struct):
    """One pair; slots are derived."""

    phase: float
    strikes: int
    heard: int
    started_at: float
    raw_entities: dict[str, list[str]]
    entities: dict[str, list[str]]
    took_s: float = 0.0


class OpenState(msgspec.Struct):
    """One open tick."""

    index: int
    raw: Packed
    at: Packed
    seen: Packed


class SourceState(msgspec.Struct):
    """One source but for its windows."""

    interval_s: float
    metrics: list[str]
    names: list[str]
    pairs: list[PairState]
    width: int
    before: Packed
    before_at: Packed
    open: list[OpenState]
    next: int | None
    hold_until: float
    junk: int
    forgotten: dict[str, int]
    newest: int | None
    expected: Packed
    focus: int
    remaining: int
    few: int
    few_wait_s: float | None = None


class Row(msgspec.Struct):
    """One closed tick: its row of the windows, and its λ and δ where they are still kept."""

    index: int
    worst: Packed
    flags: Packed
    group: Packed
    groups: Packed | None
    employed: Packed | None
    mean: Packed | None
    sd: Packed | None


class Patch(msgspec.Struct):
    """One node's cells of an older tick."""

    index: int
    node: str
    worst: Packed
    flags: Packed


class Segment(msgspec.Struct):
    """Of one source: what changed in its windows since the segment before."""

    metrics: list[str]
    names: list[str]
    resets: dict[str, int]
    patches: list[Patch]
    rows: list[Row]


def source_state(source: SourceTicks) -> SourceState:
    """Everything but the windows."""
    nodes = len(source.names)
    return SourceState(
        interval_s=source.interval_s,
        metrics=[row.name for row in source.rows.all],
        names=list(source.names),
        pairs=[
            PairState(
                p.phase, p.strikes, p.heard, p.started_at, p.raw_entities, p.entities, p.took_s
            )
            for p in source.pairs
        ],
        width=source.width,
        before=pack(source.before[:nodes]),
        before_at=pack(source.before_at[:nodes]),
        open=[
            OpenState(i, pack(t.raw[:nodes]), pack(t.at[:nodes]), pack(t.seen[:nodes]))
            for i, t in sorted(source.open.items())
        ],
        next=source.next,
        hold_until=source.hold_until,
        junk=source.junk,
        forgotten=dict(source.forgotten),
        newest=source.windows.newest,
        expected=pack(source.expected),
        focus=source.focus,
        remaining=source.remaining,
        few=source.few,
        few_wait_s=source.few_wait_s,
    )


def restore_source(source: SourceTicks, state: SourceState) -> None:
    """Fill a fresh source from its state; its windows come from `apply_segment`."""
    source.set_width(state.width)
    source.learn(state.metrics)
    for name, kept in zip(state.names, state.pairs, strict=True):
        slot = source.join(name)
        pair = Pair()
        pair.phase, pair.strikes, pair.heard = kept.phase, kept.strikes, kept.heard
        pair.started_at, pair.took_s = kept.started_at, kept.took_s
        pair.entities = kept.entities
        pair.name(kept.raw_entities, 1 << 30)
        source.pairs[slot] = pair
    nodes = len(state.names)
    _fill(source.before[:nodes], state.before)
    _fill(source.before_at[:nodes], state.before_at)
    for kept_tick in state.open:
        tick = OpenTick(len(source.before_at), source.before.shape[1])
        _fill(tick.raw[:nodes], kept_tick.raw)
        _fill(tick.at[:nodes], kept_tick.at)
        _fill(tick.seen[:nodes], kept_tick.seen)
        source.open[kept_tick.index] = tick
    source.next, source.hold_until, source.junk = state.next, state.hold_until, state.junk
    source.forgotten = dict(state.forgotten)
    source.expected = unpack(state.expected)
    source.focus, source.remaining, source.few = state.focus, state.remaining, state.few
    if state.few_wait_s is not None:
        source.few_wait_s = state.few_wait_s


def _fill(target: np.ndarray[tuple[int, ...], np.dtype[np.generic]], packed: Packed) -> None:
    values = unpack(packed)
    if values.shape != target.shape:
        raise SnapshotError(f"an array of shape {values.shape} where {target.shape} is due")
    target[...] = values


def take_segment(source: SourceTicks, since: int | None) -> Segment:
    """What changed since tick `since` was the newest; everything for None. Starts a new segment."""
    windows = source.windows
    newest = windows.newest
    rows: list[Row] = []
    patches: list[Patch] = []
    if newest is not None:
        oldest = newest - windows.ticks + 1
        first = oldest if since is None else max(since + 1, oldest)
        stats = {kept.index: kept for kept in source.stats}
        for index in range(first, newest + 1):
            row = windows.row_of(index)
            assert row is not None
            if index in stats or (windows.group[row] >= 0).any():
                rows.append(_row(source, index, row, stats.get(index)))
        patches = [
            _patch(source, index, node) for index, node in source.patched if oldest <= index < first
        ]
    resets = dict(source.reset_since) if since is not None else {}
    source.patched, source.reset_since = {}, {}
    metrics = [row.name for row in source.rows.judged]
    return Segment(metrics, list(source.names), resets, patches, rows)


def _row(source: SourceTicks, index: int, row: int, stats: ClosedStats | None) -> Row:
    windows, nodes = source.windows, len(source.names)
    return Row(
        index=index,
        worst=pack(windows.worst[row, :, :nodes]),
        flags=pack(windows.flags[row, :, :nodes]),
        group=pack(windows.group[row, :nodes]),
        groups=None if stats is None else pack(stats.groups),
        employed=None if stats is None else pack(stats.employed),
        mean=None if stats is None else pack(stats.mean),
        sd=None if stats is None else pack(stats.sd),
    )


def _patch(source: SourceTicks, index: int, node: str) -> Patch:
    windows, slot = source.windows, source.slot[node]
    row = windows.row_of(index)
    assert row is not None
    worst, flags = windows.worst[row, :, slot], windows.flags[row, :, slot]
    return Patch(index, node, pack(worst), pack(flags))


def apply_segment(source: SourceTicks, segment: Segment) -> None:
    """Apply the next segment to a source that `restore_source` has filled."""
    windows = source.windows
    # Who is gone since has no column any more.
    here = np.array([i for i, name in enumerate(segment.names) if name in source.slot], np.intp)
    slots = np.array([source.slot[segment.names[i]] for i in here.tolist()], dtype=np.intp)
    for node, index in segment.resets.items():
        if windows.newest is not None and node in source.slot:
            before = min(index, windows.newest + 1)
            row = windows.row_of(before - 1)
            if row is not None:
                windows.forget(source.slot[node], row + 1)
    places = {row.name: i for i, row in enumerate(source.rows.judged)}
    judged = np.array([places[name] for name in segment.metrics], dtype=np.intp)
    for patch in segment.patches:
        row = windows.row_of(patch.index)
        if row is not None and patch.node in source.slot:
            windows.worst[row, judged, source.slot[patch.node]] = unpack(patch.worst)
            windows.flags[row, judged, source.slot[patch.node]] = unpack(patch.flags)
    for kept in segment.rows:
        windows.advance(kept.index)
        row = windows.position
        windows.worst[row][np.ix_(judged, slots)] = unpack(kept.worst)[:, here]
        windows.flags[row][np.ix_(judged, slots)] = unpack(kept.flags)[:, here]
        windows.group[row][slots] = unpack(kept.group)[here]
        if kept.groups is not None and kept.employed is not None:
            assert kept.mean is not None
            assert kept.sd is not None
            source.stats.append(
                ClosedStats(
                    kept.index, unpack(kept.groups), unpack(kept.employed),
                    _in_rows(unpack(kept.mean), judged, len(places)),
                    _in_rows(unpack(kept.sd), judged, len(places)),
                )
            )  # fmt: skip


def _in_rows(values: FloatArray, judged: NDArray[np.intp], rows: int) -> FloatArray:
    """(metrics, groups) of a segment at the places of the source's rows, NaN elsewhere."""
    placed = np.full((rows, values.shape[1]), np.nan)
    placed[judged] = values
    return placed
