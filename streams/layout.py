"""Where the values of a frame go: a frame's names and lengths decide it once, then it is cached."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from detectors.base import FloatArray
from telemetry.metrics import Metric

LAYOUTS_MAX = 4_096
Shape = tuple[tuple[str, tuple[int, ...]], ...]
"""For each device of a frame its name and the slots of its entities; hashable."""
Columns = Mapping[str, Sequence[float | None]]
"""The metrics of a frame."""


class BadFrame(ValueError):
    """The frame contradicts itself; its text is the reason for rejecting it."""


class Layout:
    """Columns of one shape of frame.

    names    the frame's metrics in its own order, and the length of each
    take     positions in the frame's flat values that are kept, None for all of them
    columns  where they go in a node's row of metrics x entities
    """

    __slots__ = ("_flat", "_pack", "_room", "columns", "lengths", "names", "take")

    def __init__(
        self, metrics: Columns, take: NDArray[np.intp] | None, columns: NDArray[np.intp]
    ) -> None:
        self.names = list(metrics)
        self.lengths = list(map(len, metrics.values()))
        self.take = take
        self.columns = columns
        length = sum(self.lengths)
        self._room = bytearray(8 * length)
        self._flat: FloatArray = np.ndarray(length, dtype=np.float64, buffer=self._room)
        self._pack = struct.Struct(f"{length}d").pack_into

    def fits(self, metrics: Columns) -> bool:
        """Whether a frame of the same entities with these metrics is laid out so."""
        return list(metrics) == self.names and list(map(len, metrics.values())) == self.lengths

    def values(self, metrics: Columns) -> FloatArray:
        """What `columns` are filled with, null as NaN. Room that the next call uses again."""
        told: list[float | None] = []
        for column in metrics.values():
            told += column  # half the cost of a chain
        # Packing is the quickest way from floats to an array, and null stops it.
        try:
            self._pack(self._room, 0, *told)
        except struct.error:
            self._flat[:] = np.fromiter(told, dtype=np.float64, count=len(told))
        return self._flat if self.take is None else self._flat[self.take]


class Layouts:
    """All layouts of one source; `width` entities a metric."""

    def __init__(self, metrics: Sequence[Metric], width: int) -> None:
        self.metrics = metrics
        self.width = width
        self._row = {metric.name: row for row, metric in enumerate(metrics)}
        self._known: dict[object, Layout] = {}

    def known(self, metrics: Columns, shape: Shape) -> Layout | None:
        """The layout of such frames where one came before."""
        return self._known.get((tuple(metrics), tuple(map(len, metrics.values())), shape))

    def of(self, metrics: Columns, shape: Shape) -> Layout:
        """The layout for a frame with these metrics and entities.

        Raises BadFrame where a column's length is not that of its device's entities.
        """
        key = (tuple(metrics), tuple(map(len, metrics.values())), shape)
        layout = self._known.get(key)
        if layout is None:
            if len(self._known) >= LAYOUTS_MAX:
                self._known.clear()
            layout = self._known[key] = self._make(metrics, dict(shape))
        return layout

    def _make(self, metrics: Columns, slots: Mapping[str, Sequence[int]]) -> Layout:
        take: list[int] = []
        columns: list[int] = []
        start = 0
        for name, values in metrics.items():
            row = self._row.get(name)
            if row is not None:
                order = slots.get(self.metrics[row].device, ())
                if len(order) != len(values):
                    raise BadFrame(
                        f"{name} has {len(values)} values for {len(order)} entities "
                        f"of {self.metrics[row].device}"
                    )
                take.extend(range(start, start + len(values)))
                columns.extend(row * self.width + slot for slot in order)
            start += len(values)
        whole = len(take) == start
        return Layout(
            metrics,
            take=None if whole else np.array(take, dtype=np.intp),
            columns=np.array(columns, dtype=np.intp),
        )
