"""Seconds per slot of five minutes: enough for a sliding hour, and of bounded size.

Slots lie on multiples of `SLOT_S` of Unix time, so that hours, days and months of UTC begin with
one, and slots of several jobs can be added.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterator, Mapping

SLOT_S = 300.0
HOUR_SLOTS = 12
SLOTS_MAX = 32 * 288  # days of five minutes; what is older is kept as one number


class Slots:
    """Disjoint intervals, added in the order of time; `total_s` is exact."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._first = 0
        self._seconds = array("d")

    def add(self, from_s: float, to_s: float) -> None:
        """[from_s, to_s) counts; nothing where it is empty."""
        if not from_s < to_s:
            return
        self.total_s += to_s - from_s
        first, last = math.floor(from_s / SLOT_S), math.floor(to_s / SLOT_S)
        first = max(first, last - SLOTS_MAX + 1)
        self._reach(first, last)
        for slot in range(max(first, self._first), last + 1):
            begin_s = slot * SLOT_S
            inside_s = min(to_s, begin_s + SLOT_S) - max(from_s, begin_s)
            self._seconds[slot - self._first] += max(0.0, inside_s)

    def items(self) -> Iterator[tuple[int, float]]:
        """(slot, seconds), oldest first, without gaps."""
        return ((self._first + place, seconds) for place, seconds in enumerate(self._seconds))

    def _reach(self, first: int, last: int) -> None:
        """Make room for both, at the cost of the oldest."""
        if not self._seconds or first > self._first + len(self._seconds) + SLOTS_MAX:
            self._first, self._seconds = first, array("d", [0.0])
        if first < self._first:
            more = min(self._first - first, SLOTS_MAX - len(self._seconds))
            self._seconds = array("d", bytes(8 * more)) + self._seconds
            self._first -= more
        missing = last - self._first + 1 - len(self._seconds)
        if missing > 0:
            self._seconds.extend(array("d", bytes(8 * missing)))
        surplus = len(self._seconds) - SLOTS_MAX
        if surplus > 0:
            del self._seconds[:surplus]
            self._first += surplus


def sliding_hours(
    productive: Mapping[int, float], wall: Mapping[int, float], least_s: float
) -> Iterator[tuple[int, float]]:
    """(slot after the hour, ETTR) of each hour, a slot apart, oldest first.

    least_s  wall-clock seconds that each slot of an hour must have: a job's first and last slot
             are seldom whole
    """
    window: deque[tuple[int, float, float]] = deque(maxlen=HOUR_SLOTS)
    for slot in sorted(wall):
        if wall[slot] < least_s or (window and window[-1][0] != slot - 1):
            window.clear()
        if wall[slot] < least_s:
            continue
        window.append((slot, productive.get(slot, 0.0), wall[slot]))
        if len(window) == HOUR_SLOTS:
            done_s = sum(done for _, done, _ in window)
            yield slot + 1, min(1.0, done_s / sum(whole for _, _, whole in window))
