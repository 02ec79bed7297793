"""The action service on a real Slurm and a real broker, killed while it brings a job back."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from telemetry.actions import Command, Outcome, Recovery
from telemetry.findings import Incident
from tests.kafka.acting import ActService, check_once, incident, said, tell
from tests.kafka.broker import Broker
from tests.slurm.cluster import Slurm
from tests.slurm.conftest import slurm

__all__ = ["slurm"]
pytestmark = [pytest.mark.kafka, pytest.mark.slurm, pytest.mark.slow]


@pytest.mark.parametrize("point", [
    "suspect.act.after", "stopping.act.after", "cleaning.intent.after", "restarting.act.after",
    "restarting.outcome.before",
])  # fmt: skip
def test_killed_on_a_real_slurm_there_is_one_drain_and_one_requeue(
    point: str, clean_topics: Broker, slurm: Slurm, tmp_path: Path
) -> None:
    job = slurm.submit(2)
    wait_for(lambda: where(slurm, job)[0] == "RUNNING")
    bad = where(slurm, job)[1][0]
    settings: dict[str, Any] = {
        "dry_run": False, "executor": "slurm", "call_timeout_s": 6.0,
        "slurm": {"conf": slurm.conf, "timeout_s": 2.0},
        "recovery": {"modes": ["requeue"], "look_s": 0.5}, "world": "settings",
    }  # fmt: skip
    with ActService(clean_topics, tmp_path, "first", act="kill", point=point, **settings) as first:
        first.wait_active()
        with ActService(clean_topics, tmp_path, "second", **settings) as second:
            tell(clean_topics, [broken(bad, job)])
            assert first.wait() == -signal.SIGKILL
            second.wait_active()
            wait_for(lambda: recovered(clean_topics) == ["running"])
    records = said(clean_topics)
    check_once(records)
    steps = [one.step for one in records if isinstance(one, Command)]
    assert steps == ["drain", "stop", "clean", "restart"]
    assert [one.status for one in records if isinstance(one, Outcome)] == ["done"] * 4
    assert slurm.run("sinfo", "-h", f"--nodes={bad}", "--states=drain", "-o", "%E").startswith(
        "nodewarden"
    )
    shown = slurm.run("scontrol", "--oneliner", "show", "job", job)
    assert "Restarts=1 " in shown
    state, nodes = where(slurm, job)
    assert state == "RUNNING"
    assert bad not in nodes


def broken(node: str, job: str) -> Incident:
    """That node is to go, and the job to be restarted."""
    story = incident("a", job=job)
    verdict = msgspec.structs.replace(story.verdict, action="isolate_and_restart", targets=[node])
    return msgspec.structs.replace(story, verdict=verdict, verdicts=[verdict])


def where(slurm: Slurm, job: str) -> tuple[str, list[str]]:
    """The job's state, and its nodes."""
    line = slurm.run("squeue", "--noheader", f"--jobs={job}", "--format=%T|%N")
    state, _, nodes = line.partition("|")
    return state, slurm.run("scontrol", "show", "hostnames", nodes).split() if nodes else []


def recovered(broker: Broker) -> list[str]:
    """Where each recovery stands."""
    return list({one.id: one.state for one in said(broker) if isinstance(one, Recovery)}.values())


def wait_for(true: Callable[[], bool], deadline_s: float = 90.0) -> None:
    end_s = time.monotonic() + deadline_s
    while not true():
        assert time.monotonic() < end_s, "not in time"
        time.sleep(0.3)
