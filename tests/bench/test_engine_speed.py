"""The engine with all detectors and no decoding, the share of each, and the bytes of its state.

Printed, never asserted: machines differ.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from detectors.base import Detector
from evaluation.simulator import Simulation
from streams.fold import Fold
from telemetry.records import Arrived, Frame, Steps
from tests.folding import fresh

NODES, MINUTES = 512, 12.0
METHODS = ("on_tick", "on_event", "on_steps", "advance")
COLUMNS = (
    "step", "step_time_s", "compute_time_s", "loss", "grad_norm", "tokens", "mfu_ratio",
    "throughput",
)  # fmt: skip

pytestmark = pytest.mark.bench


class Meter:
    """CPU seconds by detector, without what the clock itself takes."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {"": 0.0}
        self._clock_s = 0.0
        empty = self._timed("", lambda: ())
        for _ in range(10_000):
            empty()
        self._clock_s = self.spent.pop("") / 10_000

    def watch(self, detector: Detector) -> None:
        """Measure every method of the detector from now on."""
        self.spent[detector.name] = 0.0
        for method in METHODS:
            setattr(detector, method, self._timed(detector.name, getattr(detector, method)))

    def _timed(self, name: str, work: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        def timed(*arguments: Any) -> Sequence[Any]:
            began = time.process_time()
            said = work(*arguments)
            self.spent[name] += time.process_time() - began - self._clock_s
            return said

        return timed


def log() -> list[Arrived]:
    """A quiet job on all nodes; seed 1."""
    run = Simulation(NODES, minutes=MINUTES, seed=1)
    return [
        Arrived(place, arrival, record) for place, (arrival, record) in enumerate(run.records())
    ]


def samples(arrived: Sequence[Arrived]) -> int:
    """Values in the frames, one per metric and entity, and in the columns of steps."""
    count = 0
    for one in arrived:
        if isinstance(one.record, Frame):
            count += sum(map(len, one.record.metrics.values()))
        elif isinstance(one.record, Steps):
            count += sum(len(getattr(one.record, name)) for name in COLUMNS)
    return count


def seconds(fold: Fold, arrived: Sequence[Arrived]) -> float:
    """CPU time of the whole log."""
    began = time.process_time()
    for one in arrived:
        fold.step(one)
    return time.process_time() - began


def test_engine_speed() -> None:
    arrived = log()
    gc.collect()
    gc.freeze()  # a worker does not hold the log that it folds; the collector would look through it
    ranks = [one for one in arrived if isinstance(one.record, Steps) and one.record.node]
    plain = [one for one in arrived if not (isinstance(one.record, Steps) and one.record.node)]
    plain_s = min(seconds(fresh(), plain) for _ in range(3))
    whole_s = min(seconds(fresh(), arrived) for _ in range(3))
    print(f"\n{NODES} nodes, {MINUTES:g} min, CPU microseconds a record, M samples a CPU second")
    _show("metrics and the job's steps", plain, plain_s)
    _show("and the nodes' rank rows", arrived, whole_s)
    print(f"({len(ranks):,} records of rank rows with {samples(ranks):,} values)")
    for name, log_, log_s in (("without", plain, plain_s), ("with", arrived, whole_s)):
        fold = _shares(name, log_, log_s)
    for detector in fold.detectors:
        state = msgspec.msgpack.encode(detector.snapshot())
        print(f"  {detector.name:<18} {len(state) / NODES:8.0f} bytes of state a node")
    windows = sum(
        array.nbytes
        for source in fold.sources.values()
        for array in (source.windows.worst, source.windows.flags, source.windows.group)
    )
    print(f"  {'windows':<18} {windows / NODES:8.0f} bytes a node")


def _show(name: str, arrived: Sequence[Arrived], spent_s: float) -> None:
    count = samples(arrived)
    print(
        f"  {name:<28} {count / 1e6:5.1f} M samples, {len(arrived):7,} records:"
        f" {1e6 * spent_s / len(arrived):5.1f} us, {count / spent_s / 1e6:5.1f} M/s"
    )


def _shares(name: str, arrived: Sequence[Arrived], whole_s: float) -> Fold:
    """Print what share of the unmetered time each detector has; the fold has the rest."""
    fold, meter = fresh(), Meter()
    _meter(fold, meter, arrived)
    print(f"shares {name} rank rows")
    for detector, spent_s in sorted(meter.spent.items(), key=lambda item: -item[1]):
        print(f"  {detector:<18} {100 * spent_s / whole_s:5.1f} %")
    print(f"  {'fold':<18} {100 * (1 - sum(meter.spent.values()) / whole_s):5.1f} %")
    return fold


def _meter(fold: Fold, meter: Meter, arrived: Sequence[Arrived]) -> None:
    """Fold the log, with each detector measured from the settings on."""
    watched = False
    for one in arrived:
        fold.step(one)
        if fold.ready and not watched:
            for detector in fold.detectors:
                meter.watch(detector)
            watched = True
