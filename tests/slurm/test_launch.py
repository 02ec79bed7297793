"""`nodewarden launch` under a real Slurm: what a restart keeps, and what is new after it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from nodewarden.executing import executor
from telemetry.actions import CommandStep
from telemetry.launch_files import write_file
from telemetry.launching import STATUS_FILE, LaunchResult, LaunchStatus
from telemetry.settings import ActLaunchSettings, ActSettings, ActSlurmSettings
from tests.commands import command
from tests.inventory_fold import PLAIN_PATH
from tests.slurm.cluster import Slurm
from tests.slurm.launched import CLOCK, RANK, ROOT, Launched, awaited, requeued

pytestmark = pytest.mark.slurm


def nodes(launched: Launched) -> list[str]:
    status = launched.status()
    assert status is not None
    return [part.node for part in status.parts]


def job_of(slurm: Slurm, job: str) -> tuple[str, str, str]:
    """State, restart count and nodes."""
    said = slurm.run("scontrol", "--oneliner", "show", "job", job)
    words = dict(word.split("=", 1) for word in said.split() if "=" in word)
    return words["JobState"], words["Restarts"], words["NodeList"]


def test_in_place_keeps_the_allocation_and_no_process(slurm: Slurm, tmp_path: Path) -> None:
    launched = Launched(slurm, tmp_path)
    launched.running()
    before, job = launched.pids(), job_of(slurm, launched.job)
    assert {0, 1, 2, 3, 4, 5} == set(before)
    assert ["node1", "node2", "node3"] == nodes(launched)

    done = launched.ordered("restart", "in_place", "node2", versions={"code": "v2"})
    assert "done" == done.status, (done.reason, launched.tell())
    status = launched.running(2)
    after = launched.pids()
    assert set(before) == set(after)
    assert not set(before.values()) & set(after.values())
    assert ["node1", "node4", "node3"] == nodes(launched)
    assert ["node2"] == status.excluded
    assert ("RUNNING", "0", "node[1-4]") == job == job_of(slurm, launched.job)
    assert {"v2"} == {(launched.said / f"{rank}.{pid}").read_text() for rank, pid in after.items()}


def test_stop_clean_and_restart_are_steps_of_their_own(slurm: Slurm, tmp_path: Path) -> None:
    launched = Launched(slurm, tmp_path)
    launched.running()
    refused = launched.ordered("clean", "in_place")
    assert ("refused", "its processes run; stop them first") == (refused.status, refused.reason)

    stop = launched.command("stop", "in_place", "node3")
    assert not launched.launches.achieved(stop, os.getuid())
    assert "done" == launched.launches.execute(stop).status
    assert launched.launches.achieved(stop, os.getuid())
    assert {} == launched.pids()
    cleaned = launched.ordered("clean", "in_place", "node3")
    assert ("done", "3 nodes are clean") == (cleaned.status, cleaned.reason)
    assert "done" == launched.ordered("restart", "in_place", "node3").status
    launched.running(2)
    assert ["node1", "node2", "node4"] == nodes(launched)

    # The same command once more does nothing more.
    assert "done" == launched.launches.execute(stop).status
    assert 6 == len(launched.pids())


def test_partial_keeps_the_healthy_ranks_processes(slurm: Slurm, tmp_path: Path) -> None:
    launched = Launched(slurm, tmp_path, "--partial")
    launched.running()
    before = launched.pids()

    done = launched.ordered("restart", "partial", "node2")
    assert "done" == done.status, (done.reason, launched.tell())
    launched.running(2)
    after = launched.pids()
    assert ["node1", "node4", "node3"] == nodes(launched)
    assert {rank: before[rank] for rank in (0, 1, 4, 5)} == {
        rank: after[rank] for rank in (0, 1, 4, 5)
    }
    assert not {before[2], before[3]} & {after[2], after[3]}

    # No spare is left: the next mode's turn.
    refused = launched.ordered("restart", "partial", "node3")
    assert ("refused", "1 spare nodes are needed and the allocation has 0") == (
        refused.status, refused.reason,
    )  # fmt: skip
    assert after == launched.pids()


def test_a_job_that_cannot_bear_it_refuses_the_partial_restart(
    slurm: Slurm, tmp_path: Path
) -> None:
    launched = Launched(slurm, tmp_path)
    launched.running()
    before = launched.pids()
    refused = launched.ordered("restart", "partial", "node2")
    assert "refused" == refused.status
    assert "--partial" in refused.reason
    assert before == launched.pids()


def test_a_rank_that_fails_holds_the_allocation_until_it_is_started_again(
    slurm: Slurm, tmp_path: Path
) -> None:
    launched = Launched(slurm, tmp_path, "--partial")
    launched.running()
    before = launched.pids()
    subprocess.run(["kill", "-9", str(before[2])], check=True)

    def failed() -> bool | None:
        status = launched.status()
        return True if status is not None and status.phase == "failed" else None

    awaited(failed, launched.tell)
    assert "RUNNING" == job_of(slurm, launched.job)[0]
    done = launched.ordered("restart", "partial")
    assert "done" == done.status, (done.reason, launched.tell())
    launched.running(2)
    after = launched.pids()
    assert {rank: before[rank] for rank in (0, 1, 4, 5)} == {
        rank: after[rank] for rank in (0, 1, 4, 5)
    }


def test_without_an_order_the_job_ends_with_its_first_failure(slurm: Slurm, tmp_path: Path) -> None:
    fails = RANK.replace("time.sleep(600)", "sys.exit(7)")
    launched = Launched(slurm, tmp_path, "--hold=0", rank=fails)

    def ended() -> bool | None:
        state = job_of(slurm, launched.job)[0]
        return True if state == "FAILED" else None

    awaited(ended, launched.tell)
    assert "ExitCode=7:0" in slurm.run("scontrol", "show", "job", launched.job)
    assert [] == list(launched.root.iterdir())


def test_ranks_that_end_with_0_end_the_job_with_0(slurm: Slurm, tmp_path: Path) -> None:
    launched = Launched(slurm, tmp_path, rank=RANK.replace("time.sleep(600)", ""))

    def ended() -> bool | None:
        return True if job_of(slurm, launched.job)[0] == "COMPLETED" else None

    awaited(ended, launched.tell)
    refused = launched.ordered("restart", "in_place")
    assert ("refused", "the job was not started by nodewarden launch") == (
        refused.status, refused.reason,
    )  # fmt: skip


def test_a_requeued_job_begins_anew_and_knows_no_old_order(slurm: Slurm, tmp_path: Path) -> None:
    launched = Launched(slurm, tmp_path)
    launched.running()
    before = launched.pids()
    requeued(launched, 1)
    launched.running()
    assert not set(before.values()) & set(launched.pids().values())
    refused = launched.ordered("restart", "in_place")  # decided about the run before
    assert ("refused", "no order of it: meant is attempt 0, and 1 runs") == (
        refused.status, refused.reason,
    )  # fmt: skip


def test_act_drains_the_node_and_restarts_the_job_in_its_allocation(
    slurm: Slurm, tmp_path: Path
) -> None:
    launched = Launched(slurm, tmp_path)
    launched.running()
    before = launched.pids()
    acts = executor(
        ActSettings(
            executor="slurm", dry_run=False, slurm=ActSlurmSettings(conf=slurm.conf),
            launch=ActLaunchSettings(dir=str(launched.root)), call_timeout_s=60.0,
        ),
        CLOCK,
    )  # fmt: skip
    seen = acts.observe(["node2"], launched.job)
    assert ("RUNNING", 0, ["node1", "node2", "node3"]) == (
        seen.job_state, seen.attempt, seen.job_nodes,
    )  # fmt: skip
    steps: tuple[CommandStep, ...] = ("drain", "stop", "clean", "restart")
    for step in steps:
        one = launched.command(step, "in_place", "node2")
        assert not acts.achieved(one, acts.observe(["node2"], launched.job))
        done = acts.execute(one)
        assert "done" == done.status, (step, done.reason, launched.tell())
        now = acts.observe(["node2"], launched.job)
        assert acts.achieved(one, now)
        assert ("STOPPED" if step in ("stop", "clean") else "RUNNING") == now.job_state
    launched.running(2)
    assert ["node1", "node4", "node3"] == nodes(launched)
    assert not set(before.values()) & set(launched.pids().values())
    assert ("RUNNING", "0", "node[1-4]") == job_of(slurm, launched.job)
    drained = slurm.run("sinfo", "-h", "-N", "-n", "node2", "-o", "%T %E")
    assert drained.startswith("draining nodewarden:"), drained


def test_a_node_that_does_not_answer_holds_nobody_up(slurm: Slurm, tmp_path: Path) -> None:
    launched = Launched(slurm, tmp_path)
    status = launched.running()
    part = next(one for one in status.parts if one.node == "node2")
    frozen = {int((slurm.directory / "slurmd2.pid").read_text()), *part.pids}
    for pid in part.pids:
        frozen |= {parent(pid), parent(parent(pid))}  # the part, and Slurm's process of its step
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        stopped = launched.ordered("stop", "in_place", "node2")
        assert ("done", True) == (stopped.status, "nothing was heard from node2" in stopped.reason)
        done = launched.ordered("restart", "in_place", "node2")
        assert "done" == done.status, (done.reason, launched.tell())
        assert ["node1", "node4", "node3"] == nodes(launched)
    finally:
        for pid in frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    launched.running(2)  # what was frozen is ended when it wakes


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_job_without_a_launcher_refuses_and_the_requeue_is_next(
    slurm: Slurm, tmp_path: Path
) -> None:
    job = slurm.submit(2)
    settings = ActSettings(
        executor="slurm", dry_run=False, slurm=ActSlurmSettings(conf=slurm.conf),
        launch=ActLaunchSettings(dir=str(tmp_path)),
    )  # fmt: skip
    acts = executor(settings, CLOCK)
    awaited(lambda: True if job_of(slurm, job)[0] == "RUNNING" else None, lambda: "")
    stop = command("restart", step="stop", mode="in_place", job=job, attempt=0)
    refused = acts.execute(stop)
    assert ("refused", "the job was not started by nodewarden launch") == (
        refused.status, refused.reason,
    )  # fmt: skip
    requeue = command("restart", step="stop", mode="requeue", job=job, attempt=0)
    assert "done" == acts.execute(requeue).status


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_the_job_s_user_is_slurm_s_word_and_nobody_else_is_believed(
    slurm: Slurm, tmp_path: Path
) -> None:
    job, somebody = slurm.submit(2), 4_242
    settings = ActSettings(
        executor="slurm", dry_run=False, slurm=ActSlurmSettings(conf=slurm.conf),
        launch=ActLaunchSettings(dir=str(tmp_path)),
    )  # fmt: skip
    acts = executor(settings, CLOCK)
    awaited(lambda: True if job_of(slurm, job)[0] == "RUNNING" else None, lambda: "")
    stop = command("restart", step="stop", mode="in_place", job=job, attempt=0)
    forged = LaunchStatus(
        job=job, attempt=0, at=CLOCK.time_s(), phase="stopped", generation=1, partial=True,
        spares=["node3", "node4"],
        results=[LaunchResult(id=stop.id, do="stop", state="done", reason="", at=CLOCK.time_s())],
    )  # fmt: skip
    (tmp_path / job).mkdir()
    write_file(tmp_path / job, STATUS_FILE, forged)
    seen = acts.observe([], job)
    assert (os.getuid(), "STOPPED", 2) == (seen.job_user, seen.job_state, seen.job_spares)
    os.chown(tmp_path / job / STATUS_FILE, somebody, -1)
    seen = acts.observe([], job)
    assert (os.getuid(), "RUNNING", None) == (seen.job_user, seen.job_state, seen.job_spares)
    refused = acts.execute(msgspec.structs.replace(stop, preconditions=seen))
    assert ("refused", True) == (refused.status, f"user {somebody}" in refused.reason)
    requeue = command("restart", step="stop", mode="requeue", job=job, attempt=0)
    assert "done" == acts.execute(requeue).status


def test_outside_of_a_job_it_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nodewarden", "launch", "--dir=/nowhere", "--", "true"], cwd=ROOT,
        env={"PATH": PLAIN_PATH, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        check=False, timeout=60.0,
    )  # fmt: skip
    assert (2, "") == (done.returncode, done.stdout)
    assert "SLURM_JOB_ID: none; start it in a batch script of Slurm" in done.stderr


def test_a_version_that_is_none_stops_the_start_with_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nodewarden", "launch", f"--dir={tmp_path}", "--", "true"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60.0,
        env={"PATH": PLAIN_PATH, "PYTHONPATH": str(ROOT), "SLURM_JOB_ID": "7",
             "SLURM_JOB_NODELIST": "n[1-2]", "NODEWARDEN_CODE_VERSION": "$(id)"},
    )  # fmt: skip
    said = "nodewarden: NODEWARDEN_CODE_VERSION: '$(id)' names no version\n"
    assert (2, "", said) == (done.returncode, done.stdout, done.stderr)
