"""Ends the process when it makes no progress although records wait: a supervisor starts it anew.

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
    """Looks at a worker from a thread until it is stopped."""

    def __init__(
        self, watched: Watched, limit_s: float, end: Callable[[int], None] = os._exit
    ) -> None:
        self._watched = watched
        self._limit_s = limit_s
        self._end = end
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End the looking."""
        self._stopped.set()

    def look(self, now_s: float) -> str:
        """Why the worker has to go; "" where it may stay."""
        stuck_s = self._watched.stuck_s(now_s)
        if stuck_s > self._limit_s:
            return f"the event loop has not run for {stuck_s:.0f} s"
        waiting, still_s = self._watched.lag(), self._watched.stood_still_s(now_s)
        if waiting > 0 and still_s > self._limit_s:
            return f"no progress for {still_s:.0f} s although {waiting} records wait"
        return ""

    def _run(self) -> None:
        while not self._stopped.wait(self._limit_s / LOOKS_PER_LIMIT):
            why = self.look(time.monotonic())
            if why:
                LOG.critical("%s: the process ends itself", why)
                self._end(STATUS)
                return
