"""The Slurm executor on a real Slurm, in each of its ways: what it promises on the fake holds."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from actions.executors.slurm import SlurmExecutor
from nodewarden.clock import SystemClock
from nodewarden.executing import slurm as slurm_of
from telemetry.actions import Command, Preconditions
from telemetry.settings import ActSettings, ActSlurmSettings
from tests.slurm.cluster import Slurm
from tests.slurm_fake import command

pytestmark = pytest.mark.slurm
CLOCK = SystemClock()
DEADLINE_S = 60.0
OURS = "nodewarden:gpu_lost:i1"


def acting(**settings: object) -> SlurmExecutor:
    of_slurm = msgspec.convert(settings, ActSlurmSettings)
    return slurm_of(ActSettings(executor="slurm", slurm=of_slurm), CLOCK)


def by_commands(slurm: Slurm) -> SlurmExecutor:
    return acting(conf=slurm.conf)


def by_text(slurm: Slurm) -> SlurmExecutor:
    return acting(conf=slurm.conf, output="text")


def by_rest(slurm: Slurm) -> SlurmExecutor:
    """What this slurmrestd cannot do is done by commands: old ones change no node."""
    if not (slurm.directory / "token").exists():
        slurm.rest()
    return acting(
        conf=slurm.conf, api="rest", url=f"http://127.0.0.1:{slurm.rest_port}", user="root",
        token_file=str(slurm.directory / "token"), rest_lacks="commands",
    )  # fmt: skip


@pytest.fixture
def calm(shared_slurm: Slurm) -> Slurm:
    shared_slurm.calm()
    return shared_slurm


Way = Callable[[Slurm], SlurmExecutor]
every_way = pytest.mark.parametrize("way", [by_commands, by_text, by_rest])


def until(true: Callable[[], bool]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.1)


def shown(slurm: Slurm, name: str) -> str:
    """State and reason of a node."""
    return slurm.run("sinfo", "--noheader", f"--nodes={name}", "--format=%T %E")


def running(one: SlurmExecutor, slurm: Slurm, nodes: int, *options: str) -> tuple[str, list[str]]:
    """A job that runs, and where."""
    job = slurm.run("sbatch", "--parsable", f"--nodes={nodes}", "--output=/dev/null", *options,
                    "--wrap=sleep 600")  # fmt: skip
    until(lambda: one.observe([], job).job_state == "RUNNING")
    return job, one.observe([], job).job_nodes


@every_way
def test_drained_with_our_reason_and_given_back_after_a_passed_check(calm: Slurm, way: Way) -> None:
    one = way(calm)
    isolate, release = command("isolate", "node2"), command("release", "node2")
    assert one.achieved(isolate, one.observe(["node2"])) is False
    assert "done" == one.execute(isolate).status
    assert f"drained {OURS}" == shown(calm, "node2")
    seen = one.observe(["node2"])
    assert ({"node2": "IDLE+DRAIN"}, {"node2": "nodewarden"}) == (seen.states, seen.owners)
    assert abs(seen.boots["node2"] - CLOCK.time_s()) < 1e9
    assert one.achieved(isolate, seen) is True
    assert "done" == one.execute(isolate).status
    assert "done" == one.execute(release).status
    assert one.achieved(release, one.observe(["node2"])) is True
    assert "drain" not in shown(calm, "node2")


@every_way
def test_i1_an_admins_drain_is_untouched(calm: Slurm, way: Way) -> None:
    one = way(calm)
    calm.run("scontrol", "update", "nodename=node2", "state=drain", "reason=ADMIN it squeaks")
    assert "refused" == one.execute(command("isolate", "node2")).status
    assert "refused" == one.execute(command("release", "node2", incident="")).status
    assert "drained ADMIN it squeaks" == shown(calm, "node2")
    assert {"node2": "root"} == one.observe(["node2"]).owners


@every_way
def test_i1_an_admins_release_of_our_drain_is_seen(calm: Slurm, way: Way) -> None:
    one, isolate = way(calm), command("isolate", "node2")
    assert "done" == one.execute(isolate).status
    calm.run("scontrol", "update", "nodename=node2", "state=resume")
    assert {"node2": ""} == one.observe(["node2"]).owners
    assert one.achieved(isolate, one.observe(["node2"])) is False


@every_way
def test_i11_the_job_runs_elsewhere_with_one_restart_more(calm: Slurm, way: Way) -> None:
    one = way(calm)
    job, nodes = running(one, calm, 2, "--requeue")
    before = one.observe(nodes[:1], job)
    assert 0 == before.attempt
    restart = command(
        "isolate_and_restart", nodes[0], job=job, preconditions=before, exclude=nodes[:1]
    )
    assert one.achieved(restart, before) is False
    done = one.execute(restart)
    assert "done" == done.status, done.reason
    until(lambda: one.observe([], job).job_state == "RUNNING")
    after = one.observe(nodes[:1], job)
    assert 1 == after.attempt
    assert nodes[0] not in after.job_nodes
    assert one.achieved(restart, after) is True
    assert "done" == one.execute(restart).status
    assert 1 == one.observe([], job).attempt


def steps(whole: Command, *names: str) -> list[Command]:
    return [msgspec.structs.replace(whole, step=name, mode="requeue") for name in names]


def test_step_by_step_it_comes_to_the_same(calm: Slurm) -> None:
    one = by_commands(calm)
    job, nodes = running(one, calm, 1, "--requeue")
    whole = command("restart", job=job, preconditions=Preconditions(attempt=0), exclude=nodes)
    for step in steps(whole, "stop", "clean", "restart"):
        assert "done" == one.execute(step).status
        until(lambda step=step: one.achieved(step, one.observe([], job)) is True)  # type: ignore[misc]
    until(lambda: one.observe([], job).job_state == "RUNNING")
    assert nodes != one.observe([], job).job_nodes


@every_way
def test_i11_a_job_without_requeue_is_left_running(calm: Slurm, way: Way) -> None:
    one = way(calm)
    job, _ = running(one, calm, 1, "--no-requeue")
    done = one.execute(command("restart", job=job))
    assert "refused" == done.status
    assert "allows no requeue" in done.reason
    assert "RUNNING" == one.observe([], job).job_state


@every_way
def test_what_is_gone_is_gone(calm: Slurm, way: Way) -> None:
    one = way(calm)
    done = one.execute(command("isolate", "node77"))
    assert ("failed", "target gone: Slurm has no node node77") == (done.status, done.reason)
    assert "" == one.observe([], "4711").job_state


@every_way
def test_one_task_of_an_array_is_requeued_and_no_other(calm: Slurm, way: Way) -> None:
    one = way(calm)
    array = calm.run("sbatch", "--parsable", "--array=1-2", "--requeue", "--output=/dev/null",
                      "--wrap=sleep 600")  # fmt: skip
    until(lambda: all(one.observe([], f"{array}_{n}").job_state == "RUNNING" for n in (1, 2)))
    nodes = one.observe([], f"{array}_1").job_nodes
    restart = command("isolate_and_restart", nodes[0], job=f"{array}_1")
    assert "done" == one.execute(restart).status
    until(lambda: one.observe([], f"{array}_1").job_state == "RUNNING")
    assert [1, 0] == [one.observe([], f"{array}_{n}").attempt for n in (1, 2)]


def test_i6_without_a_controller_nothing_is_known_and_nothing_done(slurm: Slurm) -> None:
    one = acting(conf=slurm.conf, timeout_s=2.0)
    slurm.end_controller()
    done = one.execute(command("isolate", "node2"))
    assert "refused" == done.status
    assert "nothing was done" in done.reason
    slurm.resize(4)
    assert "drain" not in shown(slurm, "node2")


def test_a_controller_that_hangs_in_the_call_leaves_unknown_and_one_call(
    slurm: Slurm, tmp_path: Path
) -> None:
    """And whoever compares before repeating finds it done, or does it: one drain either way."""
    pid = int((slurm.directory / "slurmctld.pid").read_text())
    hangs = tmp_path / "scontrol"
    hangs.write_text(
        f'#!/bin/sh\ncase "$1" in update) echo "$*" >>{tmp_path}/updates; kill -STOP {pid};; esac\n'
        'exec scontrol "$@"\n'
    )
    hangs.chmod(0o755)
    one = acting(conf=slurm.conf, scontrol=str(hangs), timeout_s=1.0)
    isolate = command("isolate", "node2")
    try:
        assert "unknown" == one.execute(isolate).status
    finally:
        os.kill(pid, signal.SIGCONT)
    assert 1 == len((tmp_path / "updates").read_text().splitlines())
    again = by_commands(slurm)
    until(lambda: again.execute(isolate).status == "done")
    assert f"drained {OURS}" == shown(slurm, "node2")


def test_a_job_that_allows_no_requeue_is_submitted_again_by_the_sites_command(calm: Slurm) -> None:
    script = calm.directory / "again.sh"
    script.write_text(
        "#!/bin/sh\nexec sbatch --parsable --exclude=\"$2\" --output=/dev/null"
        " --wrap='sleep 600'\n"
    )  # fmt: skip
    script.chmod(0o755)
    one = acting(conf=calm.conf, resubmit=[str(script)])
    job, nodes = running(one, calm, 1, "--no-requeue")
    done = one.execute(command("isolate_and_restart", nodes[0], job=job, exclude=nodes))
    assert "done" == done.status, done.reason
    assert calm.run("squeue", "--noheader", "--format=%i").split() == [done.next_job]
    until(lambda: one.observe([], done.next_job).job_state == "RUNNING")
    assert nodes != one.observe([], done.next_job).job_nodes
