"""A job on a real Slurm is brought back state by state; and a controller that hangs meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from actions.executors.slurm import SlurmExecutor
from actions.executors.slurm_commands import SlurmCommands
from actions.executors.slurm_port import CallTime, JobChange
from actions.ports import Executor
from nodewarden.act_looks import Lookout
from nodewarden.clock import SystemClock
from nodewarden.executing import executor
from nodewarden.executing import slurm as slurm_executor
from telemetry.actions import Command, Decision, Outcome, Preconditions, Recovery, Request
from telemetry.findings import Incident, Verdict
from telemetry.settings import (
    ActLaunchSettings,
    ActSettings,
    ActSlurmSettings,
    RecoverySettings,
)
from tests.acting import Site, asked, incident
from tests.recovering import Pages
from tests.slurm.cluster import Slurm
from tests.slurm.launched import Launched

pytestmark = pytest.mark.slurm
DEADLINE_S = 60.0
CLOCK = SystemClock()


class Hanging(SlurmCommands):
    """The controller hangs from right before the first change of a job on."""

    slurm: Slurm
    hangs = False

    def change(self, job: str, what: JobChange) -> str:
        """As ever, but for that."""
        if not self.hangs:
            self.hangs = True
            signal_controller(self.slurm, signal.SIGSTOP)
        return super().change(job, what)


class OnSlurm(Site):
    """The active instance over a log in memory, with a real Slurm as its world."""

    def __init__(self, settings: ActSettings, world: Executor) -> None:
        super().__init__(settings)
        self.clock = CLOCK  # type: ignore[assignment]
        self.world = world  # type: ignore[assignment]
        self.teller = self.pages = Pages()

    def recovery(self) -> Recovery | None:
        """As it stands."""
        assert self.instance is not None
        return next(iter(self.instance.ledger.recoveries.values()), None)

    def steps(self) -> list[str]:
        """What was commanded."""
        return [one.step for one in self.records() if isinstance(one, Command)]

    def until_over(self) -> Recovery:
        """It works until the recovery is at an end."""
        end_s = time.monotonic() + DEADLINE_S
        assert self.instance is not None
        while (found := self.recovery()) is None or found.state not in ("running", "escalated"):
            assert time.monotonic() < end_s, self.records()[-3:]
            self.instance.step()
            time.sleep(0.05)
        self.instance.step()
        return found


def test_a_partial_restart_goes_through_all_states_and_keeps_the_healthy_processes(
    slurm: Slurm, tmp_path: Path
) -> None:
    launched = Launched(slurm, tmp_path, "--partial")
    launched.running()
    before = launched.pids()
    settings = ActSettings(
        dry_run=False, executor="slurm", first_observe_s=0.0, call_timeout_s=60.0,
        slurm=ActSlurmSettings(conf=slurm.conf), launch=ActLaunchSettings(dir=str(launched.root)),
        recovery=RecoverySettings(look_s=0.2),
    )  # fmt: skip
    site = OnSlurm(settings, executor(settings, CLOCK))
    site.start()
    site.tell(broken("node2", launched.job))
    done = site.until_over()
    assert ("running", "partial") == (done.state, done.mode), done
    launched.running(2)
    after = launched.pids()
    assert {rank: before[rank] for rank in (0, 1, 4, 5)} == {
        rank: after[rank] for rank in (0, 1, 4, 5)
    }
    assert not {before[2], before[3]} & {after[2], after[3]}
    assert site.steps() == ["drain", "stop", "clean", "restart"]
    drained = slurm.run("sinfo", "-h", "-N", "-n", "node2", "-o", "%T %E")
    assert drained.startswith("draining nodewarden:"), drained


def test_a_controller_that_hangs_is_a_person_s_in_time_and_doubles_nothing_when_it_wakes(
    slurm: Slurm,
) -> None:
    job = slurm.submit(2)
    until(lambda: slurm.run("squeue", "-h", f"--jobs={job}", "-o", "%T") == "RUNNING")
    of_slurm = ActSlurmSettings(conf=slurm.conf, timeout_s=1.0)
    lasts = CallTime(CLOCK, 3.0, of_slurm.timeout_s)
    control = Hanging(of_slurm, CLOCK, lasts.left_s)
    control.slurm = slurm
    settings = ActSettings(
        dry_run=False, executor="slurm", first_observe_s=0.0, call_timeout_s=3.0, slurm=of_slurm,
        recovery=RecoverySettings(modes=("requeue",), look_s=0.2, stop_s=8.0),
    )  # fmt: skip
    site = OnSlurm(settings, SlurmExecutor(control, of_slurm, CLOCK, lasts))
    one = site.start()
    site.tell(broken(slurm.run("squeue", "-h", f"--jobs={job}", "-o", "%B"), job))
    try:
        found = site.until_over()
    finally:
        signal_controller(slurm, signal.SIGCONT)
    assert found.state == "escalated", found
    assert found.since - found.history[-1].since < DEADLINE_S
    assert len(site.pages.pages()) == 1
    assert site.steps() == ["drain", "stop"]
    for _ in range(20):  # what was on its way comes through, and nobody adds to it
        one.step()
        time.sleep(0.1)
    assert site.steps() == ["drain", "stop"]
    shown = slurm.run("scontrol", "--oneliner", "show", "job", job)
    assert "Restarts=0 " in shown or "Restarts=1 " in shown


def test_a_job_that_is_submitted_again_is_back_when_it_runs_under_its_new_id(
    slurm: Slurm, tmp_path: Path
) -> None:
    again, ran = tmp_path / "again.sh", tmp_path / "ran"
    again.write_text(
        '#!/bin/sh\nexec sbatch --exclude="$2" --nodes=2 --output=/dev/null --chdir=/'
        f" --wrap='echo $NODEWARDEN_CODE_VERSION >{ran}; sleep 600'\n"
    )
    again.chmod(0o755)
    job = slurm.run(
        "sbatch", "--parsable", "--nodes=2", "--no-requeue", "--output=/dev/null",
        "--wrap=sleep 600",
    )  # fmt: skip
    until(lambda: slurm.run("squeue", "-h", f"--jobs={job}", "-o", "%T") == "RUNNING")
    of_slurm = ActSlurmSettings(conf=slurm.conf, resubmit=(str(again),))
    settings = ActSettings(
        dry_run=False, executor="slurm", first_observe_s=0.0, call_timeout_s=60.0, slurm=of_slurm,
        recovery=RecoverySettings(modes=("requeue",), look_s=0.2),
    )  # fmt: skip
    site = OnSlurm(settings, executor(settings, CLOCK))
    one = site.start()
    told = msgspec.structs.replace(asked("update", job), versions={"code": "v2"})
    assert one.ask(told).status == 200
    host = slurm.run("squeue", "-h", f"--jobs={job}", "-o", "%B")
    site.tell(broken(host, job))
    done = site.until_over()
    assert (done.state, done.job) == ("running", job), done
    shown = slurm.run("squeue", "-h", "-o", "%i %T").split()
    assert shown == [done.next_job, "RUNNING"]
    assert host not in slurm.run("squeue", "-h", "-o", "%N")
    until(lambda: ran.exists() and ran.read_text() == "v2\n")
    assert one.ledger.versions.running(done.next_job) == {"code": "v2"}


def test_a_drain_that_somebody_takes_off_is_noticed_and_a_slow_slurm_holds_nothing_up(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actions.undone.EVERY_S", 0.2)
    settings = ActSettings(
        dry_run=False, executor="slurm", first_observe_s=0.0, call_timeout_s=60.0,
        slurm=ActSlurmSettings(conf=slurm.conf, timeout_s=30.0),
    )  # fmt: skip
    site = OnSlurm(settings, executor(settings, CLOCK))
    site.looks = looks = Looking(settings)
    thread = threading.Thread(target=looks.run, args=(looks.stop,))
    thread.start()
    try:
        one = site.start()
        site.tell(isolated("node2"))
        until(lambda: site.of(Outcome) != [], one.step)
        looks.begun = 0
        signal_controller(slurm, signal.SIGSTOP)
        try:
            until(lambda: looks.begun > 0, one.step)
            site.tell(isolated("node3", job="ask"))
            until(lambda: len(site.of(Decision)) == 2, one.step)
            assert site.of(Request) == []
        finally:
            signal_controller(slurm, signal.SIGCONT)
        slurm.run("scontrol", "update", "nodename=node2", "state=resume")
        until(lambda: site.of(Request) != [], one.step)
    finally:
        looks.stop.set()
        thread.join(DEADLINE_S)
    (request,) = site.of(Request)
    assert isinstance(request, Request)
    assert (request.verb, request.target, request.by) == ("release", "node2", "scheduler")


def isolated(node: str, job: str = "") -> Incident:
    story = incident(node, job=job)
    verdict = msgspec.structs.replace(story.verdict, targets=[node], at=time.time())
    return msgspec.structs.replace(story, verdict=verdict, verdicts=[verdict])


class Looking(Lookout):
    """Says how often it began."""

    def __init__(self, settings: ActSettings) -> None:
        super().__init__(self._counted)
        self._slurm = slurm_executor(settings, CLOCK)
        self.stop, self.begun = threading.Event(), 0

    def _counted(self, nodes: Sequence[str]) -> Preconditions:
        self.begun += 1
        return self._slurm.observe(nodes)


def broken(node: str, job: str) -> Incident:
    """The node is to go, and the job to be restarted."""
    story = incident("a", action="isolate_and_restart", job=job)
    verdict = Verdict("isolate_and_restart", "it is broken", [node], "now", time.time())
    return msgspec.structs.replace(story, verdict=verdict, verdicts=[verdict])


def signal_controller(slurm: Slurm, what: signal.Signals) -> None:
    os.kill(int((slurm.directory / "slurmctld.pid").read_text()), what)


def until(true: Callable[[], bool], step: Callable[[], None] = lambda: None) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end_s, "not in time"
        step()
        time.sleep(0.05)
