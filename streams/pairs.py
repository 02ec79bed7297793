"""What one node is to one source, and a tick that is still open."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.base import FloatArray, IntArray
from streams.layout import BadFrame, Layout, Shape

PHASE_STRIKES = 3
TOOK_FRAMES = 8.0  # a longer delivery is remembered for so many frames


class Pair:
    """One node's frames of this source: its phase, and the slots of its entities."""

    __slots__ = (
        "entities", "heard", "layout", "phase", "raw_entities", "shape", "started_at", "strikes",
        "took_s",
    )  # fmt: skip

    def __init__(self) -> None:
        self.phase = math.nan
        self.strikes = 0
        self.heard = -(1 << 60)  # newest tick it reported in
        self.started_at = math.nan
        self.took_s = 0.0  # from a measurement to its arrival, at the longest lately
        self.raw_entities: dict[str, list[str]] = {}  # as the newest frame named them
        self.entities: dict[str, list[str]] = {}  # device -> names in slot order
        self.shape: Shape = ()  # device and the slot of each of raw_entities
        self.layout: Layout | None = None  # of the newest frame, for speed alone

    def index(self, at: float, interval_s: float, started_at: float) -> int:
        """The tick of a frame at `at`; learns the phase, and learns it anew when it moved."""
        if started_at != self.started_at:
            self.started_at = started_at
            self.phase = at - math.floor(at / interval_s) * interval_s
            self.strikes = 0
        since = at - self.phase
        index = round(since / interval_s)
        if abs(since - index * interval_s) > interval_s / 4:
            self.strikes += 1
            if self.strikes >= PHASE_STRIKES:
                self.phase = at - math.floor(at / interval_s) * interval_s
                self.strikes = 0
                index = round((at - self.phase) / interval_s)
        else:
            self.strikes = 0
        return index

    def took(self, delay_s: float) -> None:
        """A frame came so long after it was measured."""
        more_s = delay_s - self.took_s
        self.took_s += more_s if more_s > 0.0 else more_s / TOOK_FRAMES

    def name(self, entities: dict[str, list[str]], entities_max: int) -> None:
        """Give each entity its slot; a known one keeps it, whatever its place in the frame."""
        shape = []
        for device, names in entities.items():
            if len(set(names)) != len(names):
                raise BadFrame(f"an entity of {device} is named twice")
            known = self.entities.setdefault(device, [])
            for name in names:
                if name in known:
                    continue
                if len(known) < entities_max:
                    known.append(name)
                    continue
                # A part that was replaced gives its slot to one that is there.
                left = next((i for i, old in enumerate(known) if old not in names), None)
                if left is None:
                    raise BadFrame(f"more than {entities_max} entities of {device}")
                known[left] = name
            shape.append((device, tuple(map(known.index, names))))
        self.raw_entities = entities
        self.layout = None
        self.shape = tuple(shape)


class OpenTick:
    """Raw values of one tick that has not closed yet."""

    __slots__ = ("at", "raw", "seen")

    def __init__(self, nodes: int, width: int) -> None:
        self.raw: FloatArray = np.full((nodes, width), np.nan)
        self.at: FloatArray = np.full(nodes, np.nan)
        self.seen = np.zeros(nodes, dtype=np.bool_)

    def clear(self) -> None:
        """Ready for another tick."""
        self.raw.fill(np.nan)
        self.at.fill(np.nan)
        self.seen.fill(False)


@dataclass(frozen=True, slots=True)
class ClosedStats:
    """λ and δ of a closed tick, kept for late frames, which never alter them."""

    index: int
    groups: IntArray  # numbers of the groups, sorted
    employed: NDArray[np.bool_]  # (groups,), whether the group works for a job
    mean: FloatArray  # (metrics, groups)
    sd: FloatArray
