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

    def look(self, now_s: float) -> bool:
        """Whether the worker has to go."""
        return self._watched.lag() > 0 and self._watched.stood_still_s(now_s) > self._limit_s

    def _run(self) -> None:
        while not self._stopped.wait(self._limit_s / LOOKS_PER_LIMIT):
            now_s = time.monotonic()
            if self.look(now_s):
                still_s = self._watched.stood_still_s(now_s)
                LOG.critical(
                    "no progress for %.0f s although %d records wait: the process ends itself",
                    still_s, self._watched.lag(),
                )  # fmt: skip
                self._end(STATUS)
                return
