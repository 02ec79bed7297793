"""Looks at nodes in a thread of its own: a scheduler that is slow holds up no decision."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from telemetry.actions import Preconditions
from telemetry.errors import SourceUnavailable

POLL_S = 1.0  # until it sees that it is to stop


class Lookout:
    """A `Looks`: `ask` and `answer` are the service's loop's, `run` is the thread.

    observe  how nodes are; of this thread alone. Raises SourceUnavailable
    """

    def __init__(self, observe: Callable[[Sequence[str]], Preconditions]) -> None:
        self._observe = observe
        self._asked: queue.Queue[list[str]] = queue.Queue(1)
        self._seen: queue.Queue[Preconditions | SourceUnavailable] = queue.Queue(1)

    def ask(self, nodes: Sequence[str]) -> None:
        """See the port. A question that nobody has taken up yet stays the next one."""
        with suppress(queue.Full):
            self._asked.put_nowait(list(nodes))

    def answer(self) -> Preconditions | None:
        """See the port."""
        try:
            seen = self._seen.get_nowait()
        except queue.Empty:
            return None
        if isinstance(seen, SourceUnavailable):
            raise seen
        return seen

    def run(self, stop: threading.Event) -> None:
        """Until `stop`."""
        while not stop.is_set():
            try:
                nodes = self._asked.get(timeout=POLL_S)
            except queue.Empty:
                continue
            seen: Preconditions | SourceUnavailable
            try:
                seen = self._observe(nodes)
            except SourceUnavailable as error:
                seen = error
            with suppress(queue.Full):
                self._seen.put_nowait(seen)
