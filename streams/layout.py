"""Where the values of a frame go: a frame's names and lengths decide it once, then it is cached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from detectors.base import FloatArray
from telemetry.metrics import Metric

LAYOUTS_MAX = 4_096
Shape = tuple[tuple[str, tuple[int, ...]], ...]
"""For each device of a frame its name and the slots of its entities; hashable."""


class BadFrame(ValueError):
    """The frame contradicts itself; its text is the reason for rejecting it."""


class Layout:
    """Columns of one shape of frame.

    take     positions in the frame's flat values that are kept, None for all of them
    columns  where they go in a node's row of metrics x entities
    """

    __slots__ = ("columns", "length", "take")

    def __init__(
        self, take: NDArray[np.intp] | None, columns: NDArray[np.intp], length: int
    ) -> None:
        self.take = take
        self.columns = columns
        self.length = length


class Layouts:
    """All layouts of one source; `width` entities a metric."""

    def __init__(self, metrics: Sequence[Metric], width: int) -> None:
        self.metrics = metrics
        self.width = width
        self._row = {metric.name: row for row, metric in enumerate(metrics)}
        self._known: dict[object, Layout] = {}

    def known(self, metrics: Mapping[str, Sequence[float | None]], shape: Shape) -> Layout | None:
        """The layout of such frames where one came before."""
        return self._known.get((tuple(metrics), tuple(map(len, metrics.values())), shape))

    def of(self, metrics: Mapping[str, Sequence[float | None]], shape: Shape) -> Layout:
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

    def _make(
        self,
        metrics: Mapping[str, Sequence[float | None]],
        slots: Mapping[str, Sequence[int]],
    ) -> Layout:
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
            take=None if whole else np.array(take, dtype=np.intp),
            columns=np.array(columns, dtype=np.intp),
            length=start,
        )


def flat_values(metrics: Mapping[str, Sequence[float | None]], layout: Layout) -> FloatArray:
    """The frame's values in its own order, null as NaN; only those that the layout keeps."""
    values = np.array(list(chain.from_iterable(metrics.values())), dtype=np.float64)
    return values if layout.take is None else values[layout.take]
