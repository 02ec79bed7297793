"""From a kernel line to a drained node and a job that runs elsewhere; and people's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from telemetry.actions import Decision, Request
from tests.kafka.acting import said
from tests.kafka.broker import Broker
from tests.kafka.slurm_loop import Loop, asked, loop, settled
from tests.slurm.cluster import Slurm
from tests.slurm.conftest import slurm

__all__ = ["slurm"]
pytestmark = [pytest.mark.kafka, pytest.mark.slurm]


def lose(running: Loop, node: str) -> None:
    """A GPU of it: it is drained by us, and the job runs elsewhere."""
    before = running.restarts()
    at_s = running.agents[node].speak(bus=1)
    drained_s = running.drained(node)
    assert running.reason(node).startswith("nodewarden:gpu_lost:")
    print(f"line to drain: {drained_s - at_s:.2f} s")
    running.running_elsewhere(node, before)
    assert before + 1 == running.restarts()


def test_a_lost_gpu_drains_its_node_the_job_moves_and_an_admins_words_win(
    clean_topics: Broker, slurm: Slurm, tmp_path: Path
) -> None:
    def released() -> list[str]:
        return [
            one.target
            for one in said(clean_topics)
            if isinstance(one, Request) and (one.verb, one.by) == ("release", "scheduler")
        ]

    def refused(node: str) -> bool:
        return any(
            one.state == "refused" and one.verdict.targets == [node]
            for one in said(clean_topics) if isinstance(one, Decision)
        )  # fmt: skip

    with loop(clean_topics, slurm, tmp_path) as running:
        settled()
        first, second = running.where()[1]
        lose(running, first)

        slurm.run("scontrol", "update", f"nodename={first}", "state=resume")
        running.until(lambda: released() == [first], "an admin's release noticed")
        assert "" == running.reason(first)

        slurm.run("scontrol", "update", f"nodename={second}", "state=drain", "reason=ADMIN fan")
        settled()
        running.agents[second].speak(bus=2)
        running.until(lambda: refused(second), "refused for an admin's drain")
        assert "ADMIN fan" == running.reason(second)
        assert 1 == running.restarts()


def test_by_slurmrestd_it_is_the_same_and_a_passed_check_gives_the_node_back(
    clean_topics: Broker, slurm: Slurm, tmp_path: Path
) -> None:
    token = slurm.rest()
    token.chmod(0o600)
    rest = {
        "api": "rest", "url": f"http://127.0.0.1:{slurm.rest_port}", "token_file": str(token),
        "user": "root", "rest_lacks": "commands",
    }  # fmt: skip
    with loop(clean_topics, slurm, tmp_path, **rest) as running:
        settled()
        lost = running.where()[1][0]
        lose(running, lost)
        assert 200 == asked(running, "release", {"target": lost, "note": "it passed its check"})[0]
        running.until(lambda: running.reason(lost) == "", f"{lost} given back")
