"""From a kernel line to the drained node: agent, Kafka, Faust worker, `act`, Slurm. Printed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.bench.brokers import clean_topics, kafka
from tests.kafka.broker import Broker
from tests.kafka.slurm_loop import loop, settled
from tests.slurm.cluster import Slurm
from tests.slurm.conftest import cluster_of

__all__ = ["clean_topics", "kafka"]
pytestmark = [pytest.mark.bench, pytest.mark.kafka, pytest.mark.slurm, pytest.mark.slow]

TRIALS = int(os.environ.get("BENCH_TRIALS", "20"))
SETTLE_S = 4.0  # a new agent's first start is over: what is printed now is news


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    """A fresh node for each trial: the story of one that was lost before goes on."""
    yield from cluster_of(TRIALS + 2)


def test_kernel_line_to_drain(clean_topics: Broker, slurm: Slurm, tmp_path: Path) -> None:
    drains: list[float] = []
    restarts: list[float] = []
    with loop(clean_topics, slurm, tmp_path) as running:
        settled()
        for trial in range(TRIALS):
            lost = running.where()[1][0]
            at_s = running.agents[lost].speak(bus=1)
            drains.append(running.drained(lost) - at_s)
            restarts.append(running.running_elsewhere(lost, trial) - at_s)
            running.watch()
            time.sleep(SETTLE_S)
    show("drain", drains)
    show("running elsewhere", restarts)


def show(what: str, took: list[float]) -> None:
    p50, p99 = np.percentile(took, [50, 99])
    print(
        f"\nkernel line to {what}: {len(took)} trials, p50 {p50:.2f} s, p99 {p99:.2f} s, "
        f"longest {max(took):.2f} s; {sum(one <= 2.0 for one in took)} within 2 s"
    )
