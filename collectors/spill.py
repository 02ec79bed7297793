"""Samples that come by series, kept on disk, and handed out by time. Memory stays bounded.

Each series' values are appended to one file without a name; what stays in memory is where they
are. Series of one scrape share their time stamps, so these are kept once, as an axis.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

BUCKET_S = 300.0
CHUNK_SAMPLES = 1_000_000  # handed out at once
RUN_SAMPLES_MIN = 256  # shorter runs are gathered first
GATHERED_SAMPLES_MAX = 2_000_000
TARGETS_MAX = 50_000
COLUMNS_MAX = 4_096  # of one target
_INTERVALS_S = (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """Whose samples stand in one record: a node's source; for training gauges also a job."""

    node: str
    source: str
    job: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """One series of a target: `device` "gpu", metric "gpu_power_watts", entity "GPU-…"."""

    device: str
    metric: str
    entity: str


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A stretch of time of one target.

    times    shape (rows,), Unix seconds, rising
    values   shape (rows, columns), columns as in `Spill.columns(target)`, NaN where missing
    """

    target: Target
    times: FloatArray
    values: FloatArray


@dataclass(slots=True, eq=False)
class _Axis:
    """Rising time stamps on disk; [starts[i], starts[i + 1]) is bucket `buckets[i]`."""

    offset: int
    buckets: IntArray
    starts: IntArray

    def part(self, first: int, last: int) -> tuple[int, int]:
        """Start and stop of the stamps in the buckets [first, last]."""
        low, high = np.searchsorted(self.buckets, [first, last + 1])
        return int(self.starts[low]), int(self.starts[high])


@dataclass(slots=True, eq=False)
class _Shelf:
    """What is known of one target: its columns, and per axis where their values stand."""

    columns: dict[Column, int] = field(default_factory=dict)
    runs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # axis -> column, offset


class Spill:
    """Add all, then read as often as you like."""

    def __init__(self) -> None:
        file, name = tempfile.mkstemp(prefix="nodewarden-")
        os.unlink(name)
        self._file = file
        self.close = weakref.finalize(self, os.close, file)
        self._size = 0
        self._shelves: dict[Target, _Shelf] = {}
        self._axes: list[_Axis] = []
        self._axis_of: dict[bytes, int] = {}
        self._last: tuple[FloatArray, int, str] | None = None
        self._seen: set[tuple[str, int]] = set()  # source, axis
        self._gathered: dict[tuple[Target, Column], list[tuple[FloatArray, FloatArray]]] = {}
        self._gathered_samples = 0
        self._gaps: dict[str, Counter[float]] = {}
        self._bucket_samples: Counter[int] = Counter()

    def add(self, target: Target, column: Column, times: FloatArray, values: FloatArray) -> bool:
        """Keep one run of a series; of two samples with one stamp the later added wins.

        False where it was left out: there are too many targets, or series of this one.
        """
        if not self._has_room(target, column):
            return False
        if len(times) >= RUN_SAMPLES_MIN:
            self._store(target, column, times, values)
            return True
        self._gathered.setdefault((target, column), []).append((times, values))
        self._gathered_samples += len(times)
        if self._gathered_samples > GATHERED_SAMPLES_MAX:
            self.flush()
        return True

    def flush(self) -> None:
        """Store what was gathered; to be called after the last `add`."""
        for (target, column), runs in self._gathered.items():
            times, values = runs[0] if len(runs) == 1 else _joined(runs)
            self._store(target, column, times, values)
        self._gathered.clear()
        self._gathered_samples = 0

    def targets(self) -> list[Target]:
        """All targets, sorted."""
        return sorted(self._shelves)

    def columns(self, target: Target) -> list[Column]:
        """The target's columns, in the order of a block's second axis."""
        return list(self._shelves[target].columns)

    def intervals(self) -> dict[str, float]:
        """Source -> its most common gap between scrapes, seconds, snapped to a usual interval."""
        return {
            source: min(gaps.items(), key=lambda gap: (-gap[1], gap[0]))[0]
            for source, gaps in sorted(self._gaps.items())
            if gaps
        }

    def span(self) -> tuple[float, float] | None:
        """First and last time stamp, None where there is none."""
        if not self._axes:
            return None
        ends = [self._read(axis.offset + 8 * at, 1)[0]
                for axis in self._axes for at in (0, int(axis.starts[-1]) - 1)]  # fmt: skip
        return float(min(ends)), float(max(ends))

    def chunks(self) -> Iterator[tuple[float, list[Block]]]:
        """Stretches of time, in order, each with its end and its blocks, sorted by target."""
        order = self.targets()
        for first, last in self._stretches():
            stamps: dict[int, FloatArray] = {}
            blocks = (self._block(target, first, last, stamps) for target in order)
            yield (last + 1) * BUCKET_S, [block for block in blocks if block is not None]

    def _has_room(self, target: Target, column: Column) -> bool:
        shelf = self._shelves.get(target)
        if shelf is None:
            if len(self._shelves) >= TARGETS_MAX:
                return False
            shelf = self._shelves[target] = _Shelf()
        if column not in shelf.columns and len(shelf.columns) >= COLUMNS_MAX:
            return False
        shelf.columns.setdefault(column, len(shelf.columns))
        return True

    def _store(self, target: Target, column: Column, times: FloatArray, values: FloatArray) -> None:
        number, order = self._axis(target.source, times)
        shelf = self._shelves[target]
        offset = self._append(values if order is None else values[order])
        shelf.runs.setdefault(number, []).append((shelf.columns[column], offset))
        axis = self._axes[number]
        counts = np.diff(axis.starts)
        for bucket, count in zip(axis.buckets.tolist(), counts.tolist(), strict=True):
            self._bucket_samples[bucket] += count

    def _axis(self, source: str, times: FloatArray) -> tuple[int, IntArray | None]:
        """The number of the stamps' axis, and how to order the values where they did not rise."""
        if self._last is not None and self._last[0] is times and self._last[2] == source:
            return self._last[1], None
        order = None if bool((np.diff(times) > 0.0).all()) else _rising(times)
        rising = times if order is None else times[order]
        key = hashlib.blake2b(rising.tobytes(), digest_size=16).digest()
        number = self._axis_of.get(key)
        if number is None:
            buckets, starts = np.unique((rising // BUCKET_S).astype(np.int64), return_index=True)
            axis = _Axis(self._append(rising), buckets, np.append(starts, len(rising)))
            number = self._axis_of[key] = len(self._axes)
            self._axes.append(axis)
        if (source, number) not in self._seen:
            self._seen.add((source, number))
            self._gaps.setdefault(source, Counter()).update(_gaps(rising))
        if order is None:
            self._last = (times, number, source)
        return number, order

    def _stretches(self) -> Iterator[tuple[int, int]]:
        """First and last bucket of each stretch of at most `CHUNK_SAMPLES`, or of one bucket."""
        first, last, samples = None, 0, 0
        for bucket in sorted(self._bucket_samples):
            more = self._bucket_samples[bucket]
            if first is not None and samples + more > CHUNK_SAMPLES:
                yield first, last
                first, samples = None, 0
            first = bucket if first is None else first
            last, samples = bucket, samples + more
        if first is not None:
            yield first, last

    def _block(
        self, target: Target, first: int, last: int, stamps: dict[int, FloatArray]
    ) -> Block | None:
        shelf = self._shelves[target]
        parts = []
        for number in shelf.runs:
            axis = self._axes[number]
            start, stop = axis.part(first, last)
            if start < stop:
                if number not in stamps:
                    stamps[number] = self._read(axis.offset + 8 * start, stop - start)
                parts.append((number, start, stamps[number]))
        if not parts:
            return None
        times = parts[0][2] if len(parts) == 1 else np.unique(np.concatenate([p[2] for p in parts]))
        values = np.full((len(shelf.columns), len(times)), np.nan)
        for number, start, part in parts:
            rows = slice(None) if len(part) == len(times) else np.searchsorted(times, part)
            for place, offset in shelf.runs[number]:
                values[place, rows] = self._read(offset + 8 * start, len(part))
        return Block(target, times, values.T)

    def _append(self, values: FloatArray) -> int:
        assert values.dtype == np.float64
        offset, data = self._size, np.ascontiguousarray(values).data.cast("B")
        while data:
            written = os.pwrite(self._file, data, self._size)
            self._size += written
            data = data[written:]
        return offset

    def _read(self, offset: int, count: int) -> FloatArray:
        return np.frombuffer(os.pread(self._file, 8 * count, offset), dtype=np.float64)


def snap_interval(gap_s: float) -> float:
    """The usual scrape interval nearest to a gap by ratio; beyond 15 min the gap in whole s."""
    if gap_s > 900.0:
        return float(round(gap_s))
    return min(_INTERVALS_S, key=lambda usual: max(usual / gap_s, gap_s / usual))


def _gaps(rising: FloatArray) -> dict[float, int]:
    gaps, counts = np.unique(np.round(np.diff(rising), 1), return_counts=True)
    snapped: Counter[float] = Counter()
    for gap, count in zip(gaps.tolist(), counts.tolist(), strict=True):
        snapped[snap_interval(max(gap, 0.1))] += count
    return snapped


def _joined(runs: list[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    return np.concatenate([run[0] for run in runs]), np.concatenate([run[1] for run in runs])


def _rising(times: FloatArray) -> IntArray:
    """The order in which stamps rise strictly; of equal ones the last is kept."""
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    keep = np.append(ordered[1:] > ordered[:-1], True)
    return np.asarray(order[keep], dtype=np.int64)
