"""How often a receiver may be called: within any minute no more than it allows."""

from __future__ import annotations

from telemetry.ports import Clock

SAFE_SHARE = 0.95  # calls that left evenly may arrive closer together
BURST_SHARE = 1 / 6


class Bucket:
    """A token bucket: burst + 60 s of its rate are what a minute allows.

    It starts empty: calls of the process before this one may be in the same minute.
    """

    def __init__(self, calls_per_minute: int, clock: Clock) -> None:
        allowed = max(calls_per_minute * SAFE_SHARE, 1.5)
        self._burst = max(float(int(allowed * BURST_SHARE)), 1.0)
        self._rate = (allowed - self._burst) / 60.0
        self._clock = clock
        self._tokens = 0.0
        self._at_s = clock.monotonic_s()

    def take(self) -> bool:
        """Whether a call may be made now; it counts as made."""
        self._fill()
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def wait_s(self) -> float:
        """How long until the next call may be made."""
        self._fill()
        return max(1.0 - self._tokens, 0.0) / self._rate

    def _fill(self) -> None:
        now_s = self._clock.monotonic_s()
        self._tokens = min(self._tokens + (now_s - self._at_s) * self._rate, self._burst)
        self._at_s = now_s
