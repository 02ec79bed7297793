"""Ends the process when it makes no progress although records wait, or was to end and does not: a
supervisor starts it anew.

In a thread of its own, because what hangs is often the event loop; by `os._exit`, because a worker
that hangs also hangs while it stops.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Protocol

LOG = logging.getLogger("nodewarden.stream")
STATUS = 3  # a service could not do its work
LOOKS_PER_LIMIT = 20


class Watched(Protocol):
    """What a watchdog asks of a worker."""

    def lag(self) -> int:
        """Records that wait, as far as the worker knows."""
        ...

    def stood_still_s(self, now_s: float) -> float:
        """Seconds without progress, monotonic."""
        ...

    def stuck_s(self, now_s: float) -> float:
        """Seconds since the event loop last ran, monotonic."""
        ...


class Watchdog:
    """Looks at a worker from a thread until it is stopped.

    limit_s   how long it may make no progress
    ending_s  how long it may take to end
    """

    def __init__(
        self, watched: Watched, limit_s: float, ending_s: float,
        end: Callable[[int], None] = os._exit,
    ) -> None:  # fmt: skip
        self._watched = watched
        self._limit_s, self._ending_s = limit_s, ending_s
        self._end = end
        self._ends_since_s: float | None = None  # monotonic
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End the looking."""
        self._stopped.set()

    def ending(self) -> None:
        """The worker was told to end, or failed: from here on its time runs."""
        if self._ends_since_s is None:
            self._ends_since_s = time.monotonic()

    def look(self, now_s: float) -> str:
        """Why the worker has to go; "" where it may stay."""
        if self._ends_since_s is not None:
            takes_s = now_s - self._ends_since_s
            return f"it has not ended within {takes_s:.0f} s" if takes_s > self._ending_s else ""
        stuck_s = self._watched.stuck_s(now_s)
        if stuck_s > self._limit_s:
            return f"the event loop has not run for {stuck_s:.0f} s"
        waiting, still_s = self._watched.lag(), self._watched.stood_still_s(now_s)
        if waiting > 0 and still_s > self._limit_s:
            return f"no progress for {still_s:.0f} s although {waiting} records wait"
        return ""

    def _run(self) -> None:
        every_s = min(self._limit_s, self._ending_s) / LOOKS_PER_LIMIT
        while not self._stopped.wait(every_s):
            why = self.look(time.monotonic())
            if why:
                LOG.critical("%s: the process ends itself", why)
                self._end(STATUS)
                return
