"""What time it is in a log: the newest time that it printed before a place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo

from collectors.training import stamps


class Dates:
    """One log's.

    tz      of times that name no zone
    began   is told the log's first time, and maybe one after it
    near_s  the newest time known
    """

    def __init__(self, tz: tzinfo, began: Callable[[float], None]) -> None:
        self._tz, self._began = tz, began
        self.near_s: float | None = None
        self._has_begun = False  # a time was told, those after it are of no use to `began`
        self._block, self._searched_to = b"", 0
        self._first_s: float | None = None  # the first time of the log
        self._first_at = 0  # where in the block it stands

    def begin(self, block: bytes) -> None:
        """The block that is read next."""
        self._block, self._searched_to, self._first_at = block, 0, 0
        if self._first_s is None:
            self._first_s, self._first_at = stamps.oldest(block, self._tz)
            self._searched_to = max(0, self._first_at - 1)

    def end(self) -> None:
        """The block was read whole; what is said from now on comes after it."""
        self.before(len(self._block))
        self._block, self._first_at = b"", 0

    def told(self, at_s: float, at: int) -> None:
        """The line that begins at a place of the block tells the time."""
        self.near_s = at_s
        if not self._has_begun:
            self._has_begun = True
            self._began(at_s)
        self._searched_to = max(self._searched_to, at)

    def before(self, to: int) -> float | None:
        """The newest time known before a place in the block; only new text is searched."""
        since = self._searched_to
        if to > since:
            if self._first_s is not None and self._first_at <= to:
                self._began(self._first_s)
            found = stamps.newest(self._block[since:to], self._tz)
            self.near_s = self.near_s if found is None else found
            self._searched_to = to
        return self.near_s
