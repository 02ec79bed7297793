"""How long a restart takes on a real Slurm: in the allocation, and by a requeue.

Published (on another scheduler and with real training): 454 to 768 s against 46 to 65 s, up to 11
times. Here the ranks do nothing: what is measured is what the scheduler and we add to that.
`pytest -s -m bench tests/bench/test_restart_speed.py`; a Slurm of 4 nodes on this machine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Slurm, SlurmMissing
from tests.slurm.launched import Launched, requeued

pytestmark = [pytest.mark.bench, pytest.mark.slurm]
TIMES = 3


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    with tempfile.TemporaryDirectory(prefix="slurm-") as directory:
        cluster = Slurm(Path(directory) / "slurm")
        try:
            cluster.start(4)
        except SlurmMissing as missing:
            pytest.skip(str(missing))
        yield cluster
        cluster.stop()


def test_restart_in_place_against_requeue(slurm: Slurm, tmp_path: Path) -> None:
    launched = Launched(slurm, tmp_path, "--partial")
    launched.running()
    partial: list[float] = []
    in_place: list[float] = []
    requeue: list[float] = []
    generation = 1
    for mode, taken in (("partial", partial), ("in_place", in_place)):
        for _ in range(TIMES):
            generation += 1
            began_s = time.monotonic()
            command = launched.command("restart", "partial" if mode == "partial" else "in_place")
            if mode == "partial":  # the same node once more: the spare one is used up otherwise
                command.targets.append("node2")
            done = launched.launches.execute(command)
            assert "done" == done.status, (done.reason, launched.tell())
            launched.running(generation)
            taken.append(time.monotonic() - began_s)
    for attempt in range(1, TIMES + 1):
        began_s = time.monotonic()
        requeued(launched, attempt)
        launched.running()
        requeue.append(time.monotonic() - began_s)
    best = min(in_place)
    print(f"\nall ranks begun again after, s (best of {TIMES}):"
          f" partial {min(partial):.2f}, in place {best:.2f}, requeue {min(requeue):.2f},"
          f" requeue / in place {min(requeue) / best:.1f}")  # fmt: skip
