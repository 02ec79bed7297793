"""Blocks of samples into the records that carry them: frames, and steps of a training exporter.

No Python statement per sample: a block becomes nested lists in one call, NaN as None.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collectors.names import natural
from collectors.spill import Block, Column, Target
from telemetry.metrics import CATALOGUE
from telemetry.records import Frame, Steps

FloatArray = NDArray[np.float64]

TRAINING = "training"
STEP_MAX = 2.0**53
STEP_VALUES = (
    "step_time_s", "compute_time_s", "loss", "grad_norm", "tokens", "mfu_ratio", "throughput",
)  # fmt: skip
_RANK = {row.name: rank for rank, row in enumerate(CATALOGUE)}


@dataclass(frozen=True, slots=True)
class _Device:
    """A device class's part: the values at `cells` of shape (metrics, entities), -1 for none."""

    name: str
    metrics: tuple[str, ...]
    entities: list[str]
    cells: NDArray[np.int64]


class FrameMaker:
    """Frames of one target, their sequence numbers rising from 0.

    interval_s   the source's; two scrapes less than half of it apart that say nothing of the same
                 series are one: two exporters feed the source. 0 where unknown
    """

    def __init__(self, target: Target, columns: list[Column], interval_s: float = 0.0) -> None:
        self._near_s = interval_s / 2.0
        self._node, self._source = target.node, target.source
        self._seq = 0
        self._devices = [
            _device([(at, column) for at, column in enumerate(columns) if column.device == name])
            for name in sorted({column.device for column in columns})
        ]
        self._names = tuple(name for device in self._devices for name in device.metrics)
        self._entities = {device.name: device.entities for device in self._devices}

    def frames(self, block: Block) -> Iterator[Frame]:
        """One frame a row."""
        times, values = _one_scrape(block.times, block.values, self._near_s)
        parts = [_lists(values, device.cells) for device in self._devices]
        node, source, entities, names = self._node, self._source, self._entities, self._names
        for at, *rows in zip(times.tolist(), *parts, strict=True):
            row = rows[0] if len(rows) == 1 else [values for part in rows for values in part]
            yield Frame(
                at=at, node=node, source=source, started_at=0.0, seq=self._seq,
                entities=entities, metrics=dict(zip(names, row, strict=True)),
            )  # fmt: skip
            self._seq += 1


class StepMaker:
    """Steps of one training exporter's gauges: a step ended when its number rose.

    The target's node is "" where the gauges speak for the job as a whole, their entity then too;
    else the entity is the rank.
    last   rank -> the number of its newest step; what is handed in was told before
    """

    def __init__(
        self, target: Target, columns: list[Column], last: Mapping[str, float] | None = None
    ) -> None:
        self._target = target
        self._places = {(column.entity, column.metric): at for at, column in enumerate(columns)}
        self._ranks = sorted({column.entity for column in columns}, key=natural)
        self.last = dict.fromkeys(self._ranks, math.nan) | dict(last or {})

    def steps(self, block: Block) -> Iterator[Steps]:
        """At most one a row; gauges without a step number are never joined."""
        for at, row in zip(block.times.tolist(), block.values.tolist(), strict=True):
            moved = [rank for rank in self._ranks if self._moves(rank, row)]
            if moved:
                yield self._made(at, moved, row)

    def _moves(self, rank: str, row: list[float]) -> bool:
        step = self._value(rank, "step", row)
        if not 0.0 <= step < STEP_MAX or step == self.last[rank]:
            return False
        self.last[rank] = step
        return True

    def _made(self, at: float, ranks: list[str], row: list[float]) -> Steps:
        # The parser writes infinity for what was printed as NaN or infinite.
        bad = [
            [name for name in ("loss", "grad_norm") if math.isinf(self._value(rank, name, row))]
            for rank in ranks
        ]
        columns = {name: self._column(ranks, name, row) for name in STEP_VALUES}
        return Steps(
            at=at, node=self._target.node, source=TRAINING, started_at=0.0, seq=0,
            job=self._target.job,
            ranks=[int(rank) for rank in ranks if rank],
            step=[int(self._value(rank, "step", row)) for rank in ranks],
            step_time_s=columns["step_time_s"], compute_time_s=columns["compute_time_s"],
            loss=columns["loss"], grad_norm=columns["grad_norm"], tokens=columns["tokens"],
            mfu_ratio=columns["mfu_ratio"], throughput=columns["throughput"],
            nonfinite=bad if any(bad) else [],
        )  # fmt: skip

    def _value(self, rank: str, name: str, row: list[float]) -> float:
        place = self._places.get((rank, name))
        return math.nan if place is None else row[place]

    def _column(self, ranks: list[str], name: str, row: list[float]) -> list[float | None]:
        """One value or null a rank; empty where nobody says anything."""
        values = [self._value(rank, name, row) for rank in ranks]
        if all(math.isnan(value) for value in values):
            return []
        return [value if math.isfinite(value) else None for value in values]


def _device(columns: list[tuple[int, Column]]) -> _Device:
    metrics = sorted({column.metric for _, column in columns}, key=lambda name: _RANK[name])
    entities = sorted({column.entity for _, column in columns}, key=natural)
    row = {name: at for at, name in enumerate(metrics)}
    place = {name: at for at, name in enumerate(entities)}
    cells = np.full((len(metrics), len(entities)), -1, dtype=np.int64)
    for at, column in columns:
        cells[row[column.metric], place[column.entity]] = at
    return _Device(columns[0][1].device, tuple(metrics), entities, cells)


def _one_scrape(
    times: FloatArray, values: FloatArray, near_s: float
) -> tuple[FloatArray, FloatArray]:
    """Each row joined with the next where they are near and complement each other."""
    near = np.flatnonzero(np.diff(times) < near_s)
    if not len(near):
        return times, values
    present = ~np.isnan(values)
    near = near[~(present[near] & present[near + 1]).any(axis=1)]
    keep = np.ones(len(times), dtype=np.bool_)
    values = values.copy()
    for row in near.tolist():
        if keep[row]:  # what was joined with the one before is not joined again
            values[row] = np.where(present[row], values[row], values[row + 1])
            keep[row + 1] = False
    return times[keep], values[keep]


def _lists(values: FloatArray, cells: NDArray[np.int64]) -> list[list[list[float | None]]]:
    """Shape (rows, metrics, entities) as lists."""
    part = values[:, cells]
    if bool((cells < 0).any()):
        part[:, cells < 0] = np.nan
    missing = np.isnan(part)
    if bool(missing.any()):
        boxed = part.astype(object)
        boxed[missing] = None
        lists: list[list[list[float | None]]] = boxed.tolist()
        return lists
    whole: list[list[list[float | None]]] = part.tolist()
    return whole
