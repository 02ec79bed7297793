"""Repeats and holes of a stream: the highest number and a window of 1,024 bits."""

from __future__ import annotations

WINDOW = 1_024
_MASK = (1 << WINDOW) - 1


class SequenceWindow:
    """Which numbers of one stream were seen; bit i of `bits` stands for `highest - i`."""

    __slots__ = ("_bits", "_run", "highest", "lost")

    def __init__(self, highest: int = -1, bits: int = 0, lost: int = 0) -> None:
        self.highest = highest
        self.lost = lost  # holes that nobody filled yet
        self._bits = bits
        # Numbers in a row since then: nearly all are, and counting is cheaper than shifting bits.
        self._run = 0

    @property
    def bits(self) -> int:
        """The window's bits."""
        if self._run:
            run = min(self._run, WINDOW)
            self._bits = (self._bits << run | ((1 << run) - 1)) & _MASK
            self._run = 0
        return self._bits

    def take(self, seq: int) -> bool:
        """True where `seq` is new. Whatever lies behind the window counts as a repeat."""
        ahead = seq - self.highest
        if ahead == 1 or self.highest < 0:
            self._run += 1
            self.highest = seq
            return True
        if ahead > 1:
            bits = self.bits
            self._bits = (bits << ahead | 1) & _MASK if ahead < WINDOW else 1
            self.highest = seq
            self.lost += ahead - 1
            return True
        behind = -ahead
        if behind >= WINDOW or self.bits >> behind & 1:
            return False
        self._bits |= 1 << behind
        # A number from before the first one seen never counted as a hole.
        self.lost = max(0, self.lost - 1)
        return True

    def has(self, seq: int) -> bool:
        """Whether `seq` was seen, as far as the window remembers."""
        behind = self.highest - seq
        return 0 <= behind < WINDOW and bool(self.bits >> behind & 1)
