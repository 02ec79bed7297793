"""After a gap of the log: if most nodes then drain their spools, ticks wait for them."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from streams.ticks import SourceTicks

ENOUGH = 0.5
FEW = 0.05


class SpoolWatch(msgspec.Struct):
    """Pairs that sent spooled frames since the gap, and in the running two intervals.

    Only a gap of the log itself (its own beats missing) counts: a single node that was cut off
    makes nobody wait.
    """

    began: float = -math.inf
    until: float = -math.inf  # no waiting beyond it
    checked: float = -math.inf
    holding: bool = False
    spooled: set[str] = set()
    lately: set[str] = set()

    def gap(self, now: float, sources: Iterable[SourceTicks], keep_s: float) -> None:
        """The log was silent until `now`: hold everything for a moment, to see who drains."""
        self.began = self.checked = now
        self.until = now + keep_s
        self.holding = False
        self.spooled, self.lately = set(), set()
        for source in sources:
            source.hold_until = now + 2 * source.interval_s

    def take(self, node: str, source: str) -> None:
        """A frame came out of a spool."""
        if math.isfinite(self.until):
            self.spooled.add(f"{node}\x1f{source}")
            self.lately.add(f"{node}\x1f{source}")

    def beat(self, now: float, sources: Iterable[SourceTicks]) -> None:
        """Decide whether ticks wait on, or are free."""
        if not math.isfinite(self.until):
            return
        sources = list(sources)
        expected = sum(int(source.expected.sum()) for source in sources)
        interval_s = max((source.interval_s for source in sources), default=0.0)
        if not self.holding and len(self.spooled) >= max(1.0, ENOUGH * expected):
            self.holding = True
            for source in sources:
                source.hold_until = self.until
        over = now >= self.until
        if now - self.checked >= 2 * interval_s:
            over = over or len(self.lately) < FEW * max(1, expected)
            self.checked = now
            self.lately = set()
        if over:
            self.until = -math.inf
            self.holding = False
            for source in sources:
                source.hold_until = -math.inf
