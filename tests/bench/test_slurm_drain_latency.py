"""From a kernel line to the drained node: agent, Kafka, Faust worker, `act`, Slurm. Printed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.bench.brokers import clean_topics, kafka
from tests.kafka.broker import Broker
from tests.kafka.slurm_loop import asked, loop, settled
from tests.slurm.cluster import Slurm
from tests.slurm.conftest import slurm

__all__ = ["clean_topics", "kafka", "slurm"]
pytestmark = [pytest.mark.bench, pytest.mark.kafka, pytest.mark.slurm, pytest.mark.slow]

TRIALS = int(os.environ.get("BENCH_TRIALS", "20"))
NODES = tuple(f"node{number}" for number in range(1, 5))


def test_kernel_line_to_drain(clean_topics: Broker, slurm: Slurm, tmp_path: Path) -> None:
    drains: list[float] = []
    restarts: list[float] = []
    with loop(clean_topics, slurm, tmp_path, nodes=NODES) as running:
        settled(running)
        for trial in range(TRIALS):
            lost = running.where()[1][trial % 2]
            at_s = running.agents[lost].speak(bus=trial + 1)
            drains.append(running.until(lambda: running.reason(lost) != "", "drained") - at_s)  # noqa: B023
            restarts.append(running.running_elsewhere(lost, trial) - at_s)
            asked(running, "release", {"target": lost})
            running.until(lambda: running.reason(lost) == "", "given back")  # noqa: B023
    show("drain", drains)
    show("running elsewhere", restarts)


def show(what: str, took: list[float]) -> None:
    p50, p99 = np.percentile(took, [50, 99])
    print(
        f"\nkernel line to {what}: {len(took)} trials, p50 {p50:.2f} s, p99 {p99:.2f} s, "
        f"longest {max(took):.2f} s; {sum(one <= 2.0 for one in took)} within 2 s"
    )
