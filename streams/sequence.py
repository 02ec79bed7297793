"""Repeats and holes of a stream: the highest number and a window of 1,024 bits."""

from __future__ import annotations

WINDOW = 1_024
_MASK = (1 << WINDOW) - 1


class SequenceWindow:
    """Which numbers of one stream were seen; bit i stands for `highest - i`."""

    __slots__ = ("bits", "highest", "lost")

    def __init__(self, highest: int = -1, bits: int = 0, lost: int = 0) -> None:
        self.highest = highest
        self.bits = bits
        self.lost = lost  # holes that nobody filled yet

    def take(self, seq: int) -> bool:
        """True where `seq` is new. Whatever lies behind the window counts as a repeat."""
        ahead = seq - self.highest
        if ahead == 1 or self.highest < 0:
            self.bits = ((self.bits << 1) | 1) & _MASK
            self.highest = seq
            return True
        if ahead > 1:
            self.bits = ((self.bits << ahead) | 1) & _MASK if ahead < WINDOW else 1
            self.highest = seq
            self.lost += ahead - 1
            return True
        behind = -ahead
        if behind >= WINDOW or self.bits >> behind & 1:
            return False
        self.bits |= 1 << behind
        # A number from before the first one seen never counted as a hole.
        self.lost = max(0, self.lost - 1)
        return True

    def has(self, seq: int) -> bool:
        """Whether `seq` was seen, as far as the window remembers."""
        behind = self.highest - seq
        return 0 <= behind < WINDOW and bool(self.bits >> behind & 1)
