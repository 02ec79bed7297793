"""From a kernel line to a drained node and a job that runs elsewhere; and a person's word."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.slurm_loop import asked, loop, settled
from tests.slurm.cluster import Slurm
from tests.slurm.conftest import slurm

__all__ = ["slurm"]
pytestmark = [pytest.mark.kafka, pytest.mark.slurm]


def test_a_lost_gpu_drains_its_node_and_the_job_runs_elsewhere(
    clean_topics: Broker, slurm: Slurm, tmp_path: Path
) -> None:
    with loop(clean_topics, slurm, tmp_path) as running:
        settled()
        state, nodes = running.where()
        assert ("RUNNING", 2) == (state, len(nodes))
        lost = nodes[0]
        at_s = running.agents[lost].speak(bus=1)
        drained_s = running.drained(lost)
        assert running.reason(lost).startswith("nodewarden:gpu_lost:")
        print(f"line to drain: {drained_s - at_s:.2f} s")
        running.running_elsewhere(lost, 0)
        assert 1 == running.restarts()

        # A check passed, and a person says so.
        assert 200 == asked(running, "release", {"target": lost, "note": "it passed its check"})[0]
        running.until(lambda: running.reason(lost) == "", f"{lost} given back")
