"""Which nodes verdicts lately wanted out, kept so that a decision need not look at all of them.

A storm brings thousands of decisions, each of which asks the breaker how many nodes are wanted out
within its window: that is one search in times that are kept in order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice


@dataclass(slots=True)
class Wanted:
    """Node -> when the ladder last wanted it out; of more than `nodes_max` the newest.

    in_order  the same, oldest first
    """

    nodes_max: int
    at: dict[str, float] = field(default_factory=dict)
    in_order: list[tuple[float, str]] = field(default_factory=list)

    def take(self, node: str, at: float) -> None:
        """It is wanted out; an earlier time changes nothing."""
        known = self.at.get(node)
        if known is not None:
            if known >= at:
                return
            del self.in_order[bisect_left(self.in_order, (known, node))]
        self.at[node] = at
        insort(self.in_order, (at, node))
        if len(self.in_order) > self.nodes_max:
            del self.at[self.in_order.pop(0)[1]]

    def forget(self, before_s: float) -> None:
        """Those that nobody wanted out since."""
        gone = bisect_left(self.in_order, (before_s, ""))
        for _, node in self.in_order[:gone]:
            del self.at[node]
        del self.in_order[:gone]

    def since(self, since_s: float) -> Recent:
        """Those that were wanted out after it: as they are when they are looked at, no copy."""
        return Recent(self, since_s)


class Recent(Mapping[str, float]):
    """See `Wanted.since`. To be counted costs one search; iterated it gives the newest first."""

    def __init__(self, wanted: Wanted, since_s: float) -> None:
        self._wanted, self._since_s = wanted, since_s

    def __len__(self) -> int:
        return len(self._wanted.in_order) - self._first()

    def __iter__(self) -> Iterator[str]:
        newest = islice(reversed(self._wanted.in_order), len(self))
        return (node for _, node in newest)

    def __getitem__(self, node: str) -> float:
        at = self._wanted.at[node]
        if at <= self._since_s:
            raise KeyError(node)
        return at

    def _first(self) -> int:
        return bisect_right(self._wanted.in_order, self._since_s, key=lambda one: one[0])
