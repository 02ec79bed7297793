"""Which node of the allocation runs which part of the job. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """One node a part, in the order of the parts; the rest of the allocation is spare or out."""

    nodes: tuple[str, ...]
    spares: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    @classmethod
    def of(cls, allocated: Sequence[str], count: int) -> Layout:
        """The first `count` nodes of the allocation work. Raises ValueError where they are few."""
        if not 0 < count <= len(allocated):
            raise ValueError(f"{count} nodes are wanted and {len(allocated)} are allocated")
        return cls(tuple(allocated[:count]), tuple(allocated[count:]))

    def without(self, exclude: Collection[str]) -> Layout | str:
        """The layout with spare nodes in the place of excluded ones; why there is none else.

        Whoever stays keeps its place, so that its ranks keep their numbers.
        """
        spares = [node for node in self.spares if node not in exclude]
        needed = sum(node in exclude for node in self.nodes)
        if needed > len(spares):
            return f"{needed} spare nodes are needed and the allocation has {len(spares)}"
        left = iter(spares)
        nodes = tuple(next(left) if node in exclude else node for node in self.nodes)
        gone = [node for node in (*self.nodes, *self.spares) if node in exclude]
        return Layout(nodes, tuple(left), (*self.excluded, *gone))
