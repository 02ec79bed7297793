"""Rates per CPU second, printed the same way by every benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable


def cpu_s(work: Callable[[], object], rounds: int = 3, times: int = 1) -> float:
    """CPU seconds that `work` takes, the best of some rounds: other loads only ever add to it.

    times   how often it runs in a round, for what is too short to be timed once
    """
    best_s = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(times):
            work()
        best_s = min(best_s, (time.process_time() - began) / times)
    return best_s


def show(name: str, samples: float, seconds: float, pandas_s: float | None = None) -> None:
    """One line; `pandas_s` is what pandas took over the same samples."""
    ratio = "" if pandas_s is None else f"  {pandas_s / seconds:6.1f} x pandas"
    rate = samples / seconds / 1e6
    print(f"{name:<32} {rate:>8.1f} M samples per CPU second{ratio}")
