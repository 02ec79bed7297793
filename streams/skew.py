"""A node's clock against the log's: the least delay of the last minutes is the clock's error."""

from __future__ import annotations

import math
from operator import itemgetter

from telemetry.settings import TickSettings

BUCKETS = 10
_DELAY = itemgetter(1)  # of a bucket


class Skew:
    """Minimum of (arrival - sent_at) over a sliding window, in ten buckets.

    A clock that is set right (or wrong) disagrees at once: after so many disagreements in a row
    the past is forgotten. Spooled records are merely delayed and never come here.
    """

    __slots__ = (
        "_bucket_s", "_newest", "_number", "boot_id", "buckets", "correction_s", "disagreed",
        "least", "rules",
    )  # fmt: skip

    def __init__(self, rules: TickSettings) -> None:
        self.rules = rules
        self.boot_id = ""
        self.buckets: list[tuple[int, float]] = []  # (bucket number, least delay in it)
        self.disagreed = 0
        self.least = 0.0  # of the buckets; it and what follows are kept for speed alone
        self.correction_s = 0.0  # to add to the node's times: 0 within the limit
        self.adopt(rules)

    def observe(self, arrival: float, sent_at: float, boot_id: str) -> None:
        """Take one record that was sent when it was made."""
        delay = arrival - sent_at
        # Nearly always the newest bucket stands, knows a smaller delay and agrees: nothing changes.
        if (
            arrival // self._bucket_s == self._number
            and delay >= self._newest
            and delay - self.least <= self.rules.skew_disagree_s
            and boot_id == self.boot_id
        ):
            self.disagreed = 0
        else:
            self._take(arrival, delay, boot_id)

    def _take(self, arrival: float, delay: float, boot_id: str) -> None:
        if boot_id != self.boot_id:
            self.boot_id = boot_id
            self._forget()
        if abs(delay - self.least) > self.rules.skew_disagree_s and self.buckets:
            self.disagreed += 1
            if self.disagreed >= self.rules.skew_disagree_count:
                self._forget()
            elif delay > self.least:
                return  # a slow delivery, or a clock set back: too early to tell
        else:
            self.disagreed = 0
        number = int(arrival // self._bucket_s)
        if self.buckets and self.buckets[-1][0] == number:
            if delay < self.buckets[-1][1]:
                self.buckets[-1] = (number, delay)
                self._correct(min(self.least, delay))
            return
        oldest = number - BUCKETS
        buckets = [bucket for bucket in self.buckets if bucket[0] > oldest]
        buckets.append((number, delay))
        self.restore(buckets)

    def restore(self, buckets: list[tuple[int, float]]) -> None:
        """Go on from these buckets."""
        self.buckets = buckets
        self._correct(min(map(_DELAY, buckets), default=0.0))

    def adopt(self, rules: TickSettings) -> None:
        """Other rules from here on."""
        self.rules = rules
        self._bucket_s = rules.skew_window_s / BUCKETS
        self._correct(self.least)

    def _forget(self) -> None:
        self.restore([])
        self.disagreed = 0

    def _correct(self, least: float) -> None:
        self.least = least
        self.correction_s = least if abs(least) > self.rules.skew_min_s else 0.0
        newest: tuple[float, float] = self.buckets[-1] if self.buckets else (math.nan, math.nan)
        self._number, self._newest = newest
