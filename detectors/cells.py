"""What `robust_peers` remembers of each (metric, node) of one source: 24 bytes a cell."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from detectors.base import IntArray

_FIELDS = {
    "offset": "<f4", "scale": "<f4", "total": "<f4", "level": "<f4", "samples": "<i4", "run": "<i4",
}  # fmt: skip


class KeptCells(msgspec.Struct, frozen=True):
    """`Cells` as plain data; each array is base64 of little-endian numbers in C order."""

    metrics: list[str]
    nodes: list[str]
    group: list[int]
    newest: int
    arrays: dict[str, str]


class Cells:
    """Arrays of shape (metrics, nodes), aligned with the newest tick of the source.

    offset    how far the node usually is from its peers, bad direction positive
    scale     the peers' scale, smoothed
    total     the CUSUM, sigmas
    level     mean deviation of the newest samples of the present run
    samples   values seen since the node joined its group
    run       ticks since the CUSUM left zero, 0 where it is zero
    group     shape (nodes,), each node's group at the newest tick
    """

    def __init__(self, metrics: Sequence[str], nodes: tuple[str, ...]) -> None:
        self.metrics = tuple(metrics)
        self.nodes = nodes
        self.newest: int | None = None
        self.group: IntArray = np.full(len(nodes), -1, dtype=np.int64)
        shape = (len(self.metrics), len(nodes))
        self.offset = np.zeros(shape, dtype=np.float32)
        self.scale = np.zeros(shape, dtype=np.float32)
        self.total = np.zeros(shape, dtype=np.float32)
        self.level = np.zeros(shape, dtype=np.float32)
        self.samples = np.zeros(shape, dtype=np.int32)
        self.run = np.zeros(shape, dtype=np.int32)

    @property
    def bytes(self) -> int:
        """What the arrays take."""
        arrays: list[NDArray[Any]] = [getattr(self, name) for name in _FIELDS]
        return sum(array.nbytes for array in arrays) + self.group.nbytes

    def aligned(self, metrics: Sequence[str], nodes: tuple[str, ...]) -> Cells:
        """The same for these rows and columns; new ones know nothing, missing ones are lost."""
        if self.metrics == tuple(metrics) and self.nodes == nodes:
            return self
        fresh = Cells(metrics, nodes)
        fresh.newest = self.newest
        rows, old_rows = common_places(fresh.metrics, self.metrics)
        columns, old_columns = common_places(nodes, self.nodes)
        fresh.group[columns] = self.group[old_columns]
        for name in _FIELDS:
            mine: NDArray[Any] = getattr(fresh, name)
            mine[np.ix_(rows, columns)] = getattr(self, name)[np.ix_(old_rows, old_columns)]
        return fresh

    def forget(self, columns: NDArray[np.intp]) -> None:
        """Nodes that joined another group know nothing of it."""
        for name in _FIELDS:
            getattr(self, name)[:, columns] = 0

    def kept(self) -> KeptCells:
        """For a snapshot."""
        return KeptCells(
            list(self.metrics), list(self.nodes), self.group.tolist(),
            -1 if self.newest is None else self.newest,
            {
                name: base64.b64encode(getattr(self, name).astype(kind).tobytes()).decode("ascii")
                for name, kind in _FIELDS.items()
            },
        )  # fmt: skip


def restored(kept: KeptCells) -> Cells:
    """The cells that `kept()` described."""
    cells = Cells(kept.metrics, tuple(kept.nodes))
    cells.newest = None if kept.newest < 0 else kept.newest
    cells.group = np.array(kept.group, dtype=np.int64)
    for name, kind in _FIELDS.items():
        flat = np.frombuffer(base64.b64decode(kept.arrays[name]), dtype=kind)
        mine: NDArray[Any] = getattr(cells, name)
        mine[...] = flat.reshape(mine.shape)
    return cells


def common_places(
    new: Sequence[str], old: Sequence[str]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:  # fmt: skip
    """Places of the names that both have, in the new and in the old."""
    place = {name: at for at, name in enumerate(old)}
    pairs = [(at, place[name]) for at, name in enumerate(new) if name in place]
    both = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    return both[:, 0], both[:, 1]
