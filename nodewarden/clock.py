"""The machine's clocks, for services."""

from __future__ import annotations

import time


class SystemClock:
    """The Clock of a process that really runs."""

    def time_s(self) -> float:
        """Unix seconds."""
        return time.time()

    def monotonic_s(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait; at once where `seconds` is not positive."""
        time.sleep(max(seconds, 0.0))
