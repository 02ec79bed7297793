"""How long each series has been missing, repeating or stuck: what `telemetry_quality` counts."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from detectors.base import Tick
from detectors.cells import common_places

MOST = 30_000  # counts stand still there; fits 16 bits
_BY_METRIC = ("had", "missing", "stuck")
_BY_DEVICE = ("device_known", "device_missing")


class KeptFreshness(msgspec.Struct, frozen=True):
    """`Freshness` as plain data; arrays are base64, little-endian, C order."""

    metrics: list[str]
    nodes: list[str]
    width: int
    arrays: dict[str, str]


class Freshness:
    """Counts of ticks, aligned with the newest tick of the source.

    had             (metrics, nodes): ticks with a value
    missing         (metrics, nodes): ticks in a row without one while the node reports
    stuck           (metrics, nodes): ticks in a row with a zero that is none
    same, last      (nodes,): samples in a row equal to the one before, and its value
    device_known    (nodes, devices): whether the device ever sent anything
    device_missing  (nodes, devices): ticks in a row without it while the node reports
    """

    def __init__(self, metrics: Sequence[str], nodes: tuple[str, ...], width: int) -> None:
        self.metrics, self.nodes, self.width = tuple(metrics), nodes, width
        shape = (len(self.metrics), len(nodes))
        self.had = np.zeros(shape, dtype=np.int16)
        self.missing = np.zeros(shape, dtype=np.int16)
        self.stuck = np.zeros(shape, dtype=np.int16)
        self.same = np.zeros(len(nodes), dtype=np.int16)
        self.last = np.full(len(nodes), np.nan)
        self.device_known = np.zeros((len(nodes), width), dtype=np.bool_)
        self.device_missing = np.zeros((len(nodes), width), dtype=np.int16)

    @property
    def bytes(self) -> int:
        """What the arrays take."""
        return sum(array.nbytes for array in self._arrays().values())

    def aligned(self, metrics: Sequence[str], nodes: tuple[str, ...], width: int) -> Freshness:
        """The same for these rows and columns; new ones were never seen."""
        if (self.metrics, self.nodes, self.width) == (tuple(metrics), nodes, width):
            return self
        fresh = Freshness(metrics, nodes, max(width, self.width))
        rows, old_rows = common_places(fresh.metrics, self.metrics)
        columns, old = common_places(nodes, self.nodes)
        for name in _BY_METRIC:
            mine: NDArray[Any] = getattr(fresh, name)
            mine[np.ix_(rows, columns)] = getattr(self, name)[np.ix_(old_rows, old)]
        fresh.same[columns], fresh.last[columns] = self.same[old], self.last[old]
        for name in _BY_DEVICE:
            wide: NDArray[Any] = getattr(fresh, name)
            wide[columns, : self.width] = getattr(self, name)[old]
        return fresh

    def count(self, tick: Tick, stuck: NDArray[np.bool_] | None, noisy: str) -> None:
        """One more tick; ticks in which nobody spoke prove nothing and are not counted."""
        now = tick.worst[-1]
        here = ~np.isnan(now)
        devices = _devices(tick)
        reports: NDArray[np.bool_] = here.any(axis=0)
        if devices is not None:
            reports |= np.any(devices, axis=1)
        np.minimum(self.had + here, MOST, out=self.had)
        absent = np.minimum(self.missing + reports[None, :], MOST)
        self.missing[...] = np.where(here, 0, absent)
        if stuck is None:
            self.stuck[here] = 0
        else:
            longer = np.minimum(self.stuck + 1, MOST)
            self.stuck[...] = np.where(stuck, longer, np.where(here, 0, self.stuck))
        self._repeats(tick, noisy)
        if devices is not None:
            known = self.device_missing[:, : devices.shape[1]]
            lost = np.minimum(known + reports[:, None], MOST)
            known[...] = np.where(devices, 0, lost)
            self.device_known[:, : devices.shape[1]] |= devices

    def _repeats(self, tick: Tick, noisy: str) -> None:
        """Count equal values in a row; whole numbers may well repeat and are left out."""
        row = next((r for r, metric in enumerate(tick.metrics) if metric.name == noisy), None)
        if row is None:
            return
        now = tick.worst[-1, row]
        told = ~np.isnan(now)
        equal = told & (now == self.last) & (now != np.floor(now))
        longer = np.minimum(self.same + 1, MOST)
        self.same[...] = np.where(equal, longer, np.where(told, 0, self.same))
        self.last[...] = np.where(told, now, self.last)

    def kept(self) -> KeptFreshness:
        """For a snapshot."""
        return KeptFreshness(
            list(self.metrics), list(self.nodes), self.width,
            {
                name: base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
                for name, array in self._arrays().items()
            },
        )  # fmt: skip

    def _arrays(self) -> dict[str, NDArray[Any]]:
        names = (*_BY_METRIC, *_BY_DEVICE, "same", "last")
        return {name: getattr(self, name) for name in names}

    def refill(self, arrays: dict[str, str]) -> None:
        """The arrays of a snapshot."""
        for name, mine in self._arrays().items():
            flat = np.frombuffer(base64.b64decode(arrays[name]), dtype=mine.dtype)
            mine[...] = flat.reshape(mine.shape)


def _devices(tick: Tick) -> NDArray[np.bool_] | None:
    """Which devices sent any of what is watched, shape (nodes, devices); None where nothing is."""
    if not tick.watched.size:
        return None
    return np.asarray((~np.isnan(tick.watched)).any(axis=0))


def refreshed(kept: KeptFreshness) -> Freshness:
    """The counts that `kept()` described."""
    fresh = Freshness(kept.metrics, tuple(kept.nodes), kept.width)
    fresh.refill(kept.arrays)
    return fresh
