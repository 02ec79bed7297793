"""The last minutes of one source, tick by tick: contiguous, in order, preallocated.

Rows slide through a buffer a quarter longer than the window, so that every view is contiguous and
none is copied. A tick in which nobody spoke is a row of "missing".
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from detectors.base import FlagArray, FloatArray

_Item = TypeVar("_Item", bound=np.generic)


class Windows:
    """worst: (ticks, metrics, nodes) float64; flags beside it, int8; group: (ticks, nodes)."""

    def __init__(self, ticks: int, metrics: int, nodes: int) -> None:
        self.ticks = ticks
        self._rows = ticks + max(8, ticks // 4)
        self.position = ticks - 1  # row of the newest tick
        self.newest: int | None = None  # its index
        self._make(metrics, nodes)

    def _make(self, metrics: int, nodes: int) -> None:
        """Arrays that the first tick fills with "missing"; until then nobody may read them."""
        shape = (self._rows, metrics, nodes)
        self.worst: FloatArray = np.empty(shape)
        self.flags: FlagArray = np.empty(shape, dtype=np.int8)
        self.group: NDArray[np.int32] = np.empty((self._rows, nodes), dtype=np.int32)

    def advance(self, index: int) -> None:
        """Make `index` the newest tick, its row and those of skipped ticks missing."""
        steps = self.ticks if self.newest is None else index - self.newest
        assert steps > 0
        if steps >= self.ticks:
            self._blank(0, self._rows)
            self.position = self.ticks - 1
        else:
            if self.position + steps >= self._rows:
                self._slide(steps)
            self._blank(self.position + 1, self.position + steps + 1)
            self.position += steps
        self.newest = index

    def row_of(self, index: int) -> int | None:
        """The buffer row of a tick, None where it has left the window."""
        if self.newest is None or not 0 <= self.newest - index < self.ticks:
            return None
        return self.position - (self.newest - index)

    def span(self, row: int) -> slice:
        """The rows of the window that ends at `row`; older ones than are held are cut."""
        return slice(max(self.position - self.ticks + 1, 0), row + 1)

    def forget(self, node: int, before_row: int) -> None:
        """The node's history before a row counts no more: it left its group."""
        first = self.position - self.ticks + 1
        self.worst[first:before_row, :, node] = np.nan
        self.flags[first:before_row, :, node] = 0

    def reorder(self, order: NDArray[np.intp], nodes: int) -> None:
        """New columns: column i becomes the old `order[i]`, -1 for a fresh one; `nodes` in all."""
        if self.newest is None:
            self._make(self.worst.shape[1], nodes)
            return
        self.worst = _columns(self.worst, order, nodes, np.nan)
        self.flags = _columns(self.flags, order, nodes, 0)
        self.group = _columns(self.group, order, nodes, -1)

    def restack(self, source: NDArray[np.intp]) -> None:
        """New metric rows: row i becomes the old `source[i]`, -1 for one without history."""
        order = np.asarray(source)
        if self.newest is None:
            self._make(order.size, self.worst.shape[2])
            return
        self.worst = _columns(self.worst.swapaxes(1, 2), order, order.size, np.nan).swapaxes(1, 2)
        self.flags = _columns(self.flags.swapaxes(1, 2), order, order.size, 0).swapaxes(1, 2)
        self.worst, self.flags = np.ascontiguousarray(self.worst), np.ascontiguousarray(self.flags)

    def _slide(self, steps: int) -> None:
        """Move the rows that stay in the window to the front."""
        stay = self.ticks - steps
        keep = slice(self.position - stay + 1, self.position + 1)
        for array in (self.worst, self.flags, self.group):
            array[:stay] = array[keep].copy()
        self.position = stay - 1

    def _blank(self, start: int, stop: int) -> None:
        self.worst[start:stop] = np.nan
        self.flags[start:stop] = 0
        self.group[start:stop] = -1


def _columns(
    array: NDArray[_Item], order: NDArray[np.intp], nodes: int, empty: float
) -> NDArray[_Item]:
    fresh = np.full((*array.shape[:-1], nodes), empty, dtype=array.dtype)
    known = np.flatnonzero(order >= 0)
    fresh[..., known] = array[..., order[known]]
    return fresh
