"""The engine with all detectors and no decoding, the share of each, and the bytes of its state.

Printed, never asserted: machines differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from detectors.base import Detector
from evaluation.simulator import Simulation
from streams.fold import Fold
from telemetry.records import Arrived, Frame
from tests.folding import fresh

NODES, MINUTES = 512, 12.0
METHODS = ("on_tick", "on_event", "on_steps", "advance")

pytestmark = pytest.mark.bench


class Meter:
    """CPU seconds by detector."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def watch(self, detector: Detector) -> None:
        """Measure every method of the detector from now on."""
        self.spent[detector.name] = 0.0
        for method in METHODS:
            setattr(detector, method, self._timed(detector.name, getattr(detector, method)))

    def _timed(self, name: str, work: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        def timed(*arguments: Any) -> Sequence[Any]:
            began = time.process_time()
            said = work(*arguments)
            self.spent[name] += time.process_time() - began
            return said

        return timed


def log() -> list[Arrived]:
    """A quiet job on all nodes; seed 1."""
    run = Simulation(NODES, minutes=MINUTES, seed=1)
    return [
        Arrived(place, arrival, record) for place, (arrival, record) in enumerate(run.records())
    ]


def samples(arrived: Sequence[Arrived]) -> int:
    """Values in the frames, one per metric and entity."""
    frames = (one.record for one in arrived if isinstance(one.record, Frame))
    return sum(len(values) for frame in frames for values in frame.metrics.values())


def seconds(fold: Fold, arrived: Sequence[Arrived]) -> float:
    """CPU time of the whole log."""
    began = time.process_time()
    for one in arrived:
        fold.step(one)
    return time.process_time() - began


def test_engine_speed() -> None:
    arrived = log()
    count = samples(arrived)
    whole_s = min(seconds(fresh(), arrived) for _ in range(2))
    frames = [one for one in arrived if not hasattr(one.record, "step")]
    frames_s = min(seconds(fresh(), frames) for _ in range(2))
    fold, meter = fresh(), Meter()
    metered_s = _metered(fold, meter, arrived)

    print(
        f"\n{NODES} nodes, {MINUTES:g} min, {count / 1e6:.1f} M samples, {len(arrived):,} records"
    )
    print(f"all records      {count / whole_s / 1e6:6.1f} M samples per CPU second")
    print(f"without steps    {count / frames_s / 1e6:6.1f} M samples per CPU second")
    for name, spent_s in sorted(meter.spent.items(), key=lambda item: -item[1]):
        print(f"  {name:<18} {100 * spent_s / metered_s:5.1f} %")
    print(f"  {'fold':<18} {100 * (1 - sum(meter.spent.values()) / metered_s):5.1f} %")
    for detector in fold.detectors:
        state = msgspec.msgpack.encode(detector.snapshot())
        print(f"  {detector.name:<18} {len(state) / NODES:8.0f} bytes of state a node")
    windows = sum(
        array.nbytes
        for source in fold.sources.values()
        for array in (source.windows.worst, source.windows.flags, source.windows.group)
    )
    print(f"  {'windows':<18} {windows / NODES:8.0f} bytes a node")


def _metered(fold: Fold, meter: Meter, arrived: Sequence[Arrived]) -> float:
    """Like `seconds`, with each detector measured from the settings on."""
    began, watched = time.process_time(), False
    for one in arrived:
        fold.step(one)
        if fold.ready and not watched:
            for detector in fold.detectors:
                meter.watch(detector)
            watched = True
    return time.process_time() - began
