"""Peer groups: nodes that do the same work (job, pipeline stage), and nobody else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from detectors.base import IntArray
from streams.inventory import Inventory

GROUPS_MAX = 10_000
POOL = ("", -1)  # nodes without a job: only "should be zero" metrics are compared


class Groups:
    """Numbers the groups. A number is never given again, so that a new number is a new group."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self.numbers: dict[tuple[str, int], int] = {}
        self.given = 0
        self._cached: dict[tuple[str, ...], tuple[int, float, float, IntArray, NDArray[np.bool_]]]
        self._cached = {}

    def of(self, names: Sequence[str], at_s: float) -> tuple[IntArray, NDArray[np.bool_]]:
        """The group number of each node at `at_s`, and whether it works for a job."""
        key = tuple(names)
        known = self._cached.get(key)
        if known is not None:
            version, since, until, group, employed = known
            if version == self._inventory.version and since <= at_s < until:
                return group, employed
        group = np.empty(len(names), dtype=np.int64)
        employed = np.zeros(len(names), dtype=np.bool_)
        for column, name in enumerate(names):
            place = self._inventory.place(name, at_s)
            stage = -1 if place.stage is None else place.stage
            group[column] = self._number((place.job, stage) if place.job else POOL)
            employed[column] = bool(place.job)
        if len(self._cached) >= 16:
            self._cached.clear()
        until = self._inventory.next_change_s(at_s)
        self._cached[key] = (self._inventory.version, at_s, until, group, employed)
        return group, employed

    def _forget_the_gone(self) -> None:
        """Make room: the groups of jobs that are no longer listed; where none is, all but the pool.

        What is cached goes with them, so that a fold that was restored numbers alike.
        """
        listed = {k: n for k, n in self.numbers.items() if k == POOL or self._inventory.lists(k[0])}
        full = len(listed) >= GROUPS_MAX
        self.numbers = {k: n for k, n in listed.items() if k == POOL} if full else listed
        self._cached.clear()

    def _number(self, key: tuple[str, int]) -> int:
        number = self.numbers.get(key)
        if number is None:
            if len(self.numbers) >= GROUPS_MAX:
                self._forget_the_gone()
            number = self.numbers[key] = self.given
            self.given += 1
        return number
