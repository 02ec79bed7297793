"""How long a source that failed is left alone: twice as long each time, up to a bound. No clock."""

from __future__ import annotations

FIRST_S = 5.0
LONGEST_S = 60.0


class Patience:
    """Of one source; times are monotonic seconds."""

    def __init__(self, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._wait_s = first_s
        self._until_s: float | None = None

    def is_over(self, now_s: float) -> bool:
        """Whether the source may be asked."""
        return self._until_s is None or now_s >= self._until_s

    def failed(self, now_s: float) -> None:
        """It did not answer at `now_s`."""
        self._until_s = now_s + self._wait_s
        self._wait_s = min(2.0 * self._wait_s, self._longest_s)

    def worked(self) -> None:
        """It answered."""
        self._until_s = None
        self._wait_s = self._first_s
