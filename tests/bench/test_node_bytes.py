"""What a node costs in memory: its windows, and its share of a whole snapshot."""

from __future__ import annotations

from typing import Any

import pytest
from numpy.typing import NDArray

from actions.policy import verdict
from evaluation.simulator import Simulation
from streams.fold import Fold
from streams.snapshot import Snapshots
from streams.ticks import SourceTicks
from telemetry.records import Arrived

FEW, MANY = 128, 1_024
BYTES_MAX = 150_000

pytestmark = pytest.mark.bench


@pytest.mark.parametrize(("gpu_s", "nic_s"), [(15.0, 60.0), (10.0, 10.0)])
def test_a_node_costs_bounded_memory(gpu_s: float, nic_s: float) -> None:
    few, many = measured(FEW, gpu_s, nic_s), measured(MANY, gpu_s, nic_s)
    windows, snapshot = ((b - a) / (MANY - FEW) for a, b in zip(few, many, strict=True))
    print(
        f"\nGPUs every {gpu_s:g} s, NICs every {nic_s:g} s: {windows / 1e3:.0f} kB of windows and "
        f"{snapshot / 1e3:.0f} kB of snapshot a node"
    )
    assert windows + snapshot <= BYTES_MAX


def measured(nodes: int, gpu_s: float, nic_s: float) -> tuple[int, int]:
    """(bytes of all arrays, bytes of a whole snapshot) when every window is full."""
    run = Simulation(nodes, minutes=2.0, seed=1, gpu_interval_s=gpu_s, nic_interval_s=nic_s)
    fold = Fold(verdict)
    for offset, (arrival, record) in enumerate(run.records()):
        fold.step(Arrived(offset, arrival, record))
    for source in fold.sources.values():
        fill(source)
    snapshot = sum(len(value) for _, value in Snapshots("main").take(fold))
    return sum(map(array_bytes, fold.sources.values())), snapshot


def fill(source: SourceTicks) -> None:
    """As after hours: every row of the windows tells of every node."""
    windows = source.windows
    first = windows.position - windows.ticks + 1
    windows.group[first : windows.position + 1, : len(source.names)] = 0


def array_bytes(source: SourceTicks) -> int:
    """Of the windows, of the ticks that are open and of the values before them."""
    windows = source.windows
    arrays: list[NDArray[Any]] = [
        windows.worst,
        windows.flags,
        windows.group,
        source.before,
        source.before_at,
    ]
    for tick in (*source.open.values(), *source._pool):
        arrays += [tick.raw, tick.at, tick.seen]
    return sum(array.nbytes for array in arrays)
