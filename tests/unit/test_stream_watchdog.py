"""The watchdog: who hangs goes, who works stays, and who was to end has so long and no longer."""

from __future__ import annotations

import threading
import time

import pytest

from streams.live.watchdog import STATUS, Watchdog


class Watched:
    """A worker as it says of itself."""

    def __init__(self, lag: int = 0, still_s: float = 0.0, stuck_s: float = 0.0) -> None:
        self._lag, self._still_s, self._stuck_s = lag, still_s, stuck_s

    def lag(self) -> int:
        return self._lag

    def stood_still_s(self, _: float) -> float:
        return self._still_s

    def stuck_s(self, _: float) -> float:
        return self._stuck_s


@pytest.mark.parametrize(
    ("watched", "why"),
    [
        (Watched(), ""),
        (Watched(lag=0, still_s=99.0), ""),
        (Watched(lag=5, still_s=9.0), ""),
        (Watched(lag=5, still_s=61.0), "no progress for 61 s although 5 records wait"),
        (Watched(stuck_s=61.0), "the event loop has not run for 61 s"),
    ],
)
def test_a_worker_goes_that_hangs_with_records_waiting(watched: Watched, why: str) -> None:
    assert Watchdog(watched, 60.0, 12.0).look(time.monotonic()) == why


def test_a_worker_that_was_to_end_has_its_time_counted_from_the_first_word() -> None:
    """Its event loop has not run for long, as it should: it ends."""
    watchdog = Watchdog(Watched(stuck_s=99.0), 60.0, 12.0)
    watchdog.ending()
    told_s = time.monotonic()
    assert watchdog.look(told_s + 11.0) == ""
    watchdog.ending()
    assert watchdog.look(told_s + 13.0) == "it has not ended within 13 s"


def test_the_process_is_ended_with_the_status_of_work_undone() -> None:
    statuses: list[int] = []
    ended = threading.Event()

    def end(status: int) -> None:
        statuses.append(status)
        ended.set()

    watchdog = Watchdog(Watched(), 60.0, 0.05, end)
    watchdog.start()
    watchdog.ending()
    assert ended.wait(30.0)
    assert statuses == [STATUS]
