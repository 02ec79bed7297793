"""A source that may be slow, asked in a thread of its own: the log's beats do not wait for it."""

from __future__ import annotations

import threading

from collectors.inventory.source import InventorySource
from telemetry.errors import InputError, SourceUnavailable
from telemetry.ports import Clock
from telemetry.records import Allocation


class Background:
    """An `InventorySource` that says what the one behind it said last.

    every_s  how often that is asked
    late_s   after so long without an answer, the last one no longer counts
    """

    def __init__(
        self, source: InventorySource, every_s: float, late_s: float, clock: Clock
    ) -> None:
        self._source = source
        self._every_s, self._late_s = every_s, late_s
        self._clock = clock
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._answered = threading.Event()
        self._answer: Allocation | Exception | None = None
        self._at_s = clock.monotonic_s()
        self._thread = threading.Thread(target=self._run, name="inventory source", daemon=True)

    def listing(self) -> Allocation:
        """Waits for the first answer. Raises what the source raised, SourceUnavailable."""
        if self._thread.ident is None:
            self._thread.start()
            self._answered.wait(self._late_s)
        with self._lock:
            answer, age_s = self._answer, self._clock.monotonic_s() - self._at_s
        if age_s > self._late_s or answer is None:
            raise SourceUnavailable(f"the scheduler has not answered for {age_s:.0f} s")
        if isinstance(answer, (InputError, SourceUnavailable)):
            # A new object each time: an exception raised twice grows its traceback.
            raise type(answer)(str(answer)) from answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Ask no more; a question under way ends by its own time-out."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            answer: Allocation | Exception
            try:
                answer = self._source.listing()
            except Exception as error:  # noqa: BLE001 - raised again in the thread that asks
                answer = error
            with self._lock:
                self._answer, self._at_s = answer, self._clock.monotonic_s()
            self._answered.set()
            self._stop.wait(self._every_s)
