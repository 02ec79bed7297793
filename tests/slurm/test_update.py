"""Updates on a real Slurm, under the whole state machine: which ranks run which code."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from nodewarden.clock import SystemClock
from nodewarden.executing import executor
from telemetry.actions import Recovery, RestartMode, Update
from telemetry.findings import Verdict
from telemetry.settings import (
    ActLaunchSettings,
    ActSettings,
    ActSlurmSettings,
    RecoverySettings,
)
from tests.acting import Site, asked, incident
from tests.slurm.cluster import Slurm
from tests.slurm.launched import Launched

pytestmark = pytest.mark.slurm
DEADLINE_S = 180.0


class Acting(Site):
    """The active instance over a log in memory, with Slurm as its world."""

    def __init__(self, slurm: Slurm, launched: Launched, *modes: RestartMode) -> None:
        recovery = RecoverySettings(look_s=0.2)
        if modes:
            recovery = msgspec.structs.replace(recovery, modes=modes)
        settings = ActSettings(
            dry_run=False, executor="slurm", first_observe_s=0.0, call_timeout_s=60.0,
            slurm=ActSlurmSettings(conf=slurm.conf), recovery=recovery,
            launch=ActLaunchSettings(dir=str(launched.root)),
        )  # fmt: skip
        super().__init__(settings)
        clock = SystemClock()
        self.clock = clock  # type: ignore[assignment]
        self.world = executor(settings, clock)  # type: ignore[assignment]
        self.launched = launched

    def wish(self, verb: str, **changes: object) -> None:
        """A person's update or rollback."""
        assert self.instance is not None
        one = asked("update" if verb == "update" else "rollback", self.launched.job)
        reply = self.instance.ask(msgspec.structs.replace(one, **changes))
        assert 200 == reply.status, reply.body

    def fail(self, node: str) -> None:
        """The ladder wants the node out and the job restarted."""
        story = incident(node, action="isolate_and_restart", job=self.launched.job)
        verdict = Verdict("isolate_and_restart", "it is broken", [node], "now", time.time())
        self.tell(msgspec.structs.replace(story, verdict=verdict, verdicts=[verdict]))

    def until_over(self, recoveries: int) -> Recovery:
        """Work until so many are at an end; the newest."""
        assert self.instance is not None
        until_s = time.monotonic() + DEADLINE_S
        while True:
            self.instance.step()
            ended = [one for one in self.instance.ledger.recoveries.values()
                     if one.state in ("running", "escalated")]  # fmt: skip
            if len(ended) >= recoveries:
                self.instance.step()
                return ended[-1]
            assert time.monotonic() < until_s, self._told()
            time.sleep(0.05)

    def _told(self) -> str:
        """How things stand, for a test that fails."""
        told = [str(one) for one in self.records()[-4:]]
        return "\n".join([*told, str(self.launched.status()), self.launched.tell()])

    def update(self) -> Update:
        """The newest saying of the newest one."""
        return [one for one in self.records() if isinstance(one, Update)][-1]

    def code(self) -> set[str]:
        """What the ranks that live run."""
        said = self.launched.said
        return {(said / f"{rank}.{pid}").read_text() for rank, pid in self.launched.pids().items()}


def test_an_update_joins_the_failure_restart_and_a_rollback_names_the_version_before_it(
    slurm: Slurm, tmp_path: Path
) -> None:
    launched = Launched(slurm, tmp_path, "--partial")
    launched.running()
    before = launched.pids()
    site = Acting(slurm, launched)
    site.start()
    site.wish("update", versions={"code": "v1"}, running=True)
    site.wish("update", versions={"code": "v2"})
    assert ("waiting", before) == (site.update().state, launched.pids())

    site.fail("node2")
    done = site.until_over(1)
    assert ("running", "in_place") == (done.state, done.mode), done.reason
    assert any("other versions" in one.reason for one in done.history), done.history
    launched.running(2)
    assert {"v2"} == site.code()  # all of them: none goes on with the old one
    assert ("running", {"code": "v2"}) == (site.update().state, site.update().versions)
    status = launched.status()
    assert status is not None
    assert ["node1", "node4", "node3"] == [part.node for part in status.parts]

    site.wish("rollback", urgent=True)
    done = site.until_over(2)
    assert ("running", "in_place") == (done.state, done.mode), done.reason
    launched.running(3)
    assert {"v1"} == site.code()


def test_without_an_update_healthy_ranks_keep_their_processes(slurm: Slurm, tmp_path: Path) -> None:
    launched = Launched(slurm, tmp_path, "--partial")
    launched.running()
    before = launched.pids()
    site = Acting(slurm, launched)
    site.start()
    site.fail("node2")
    done = site.until_over(1)
    assert ("running", "partial") == (done.state, done.mode), done.reason
    launched.running(2)
    after = launched.pids()
    assert {rank: before[rank] for rank in (0, 1, 4, 5)} == {
        rank: after[rank] for rank in (0, 1, 4, 5)
    }
    assert not {before[2], before[3]} & set(after.values())


def test_an_update_outlives_a_requeue(slurm: Slurm, tmp_path: Path) -> None:
    launched = Launched(slurm, tmp_path)
    launched.running()
    site = Acting(slurm, launched, "requeue")
    site.start()
    site.wish("update", versions={"code": "v2", "config": "lr-1"}, urgent=True)
    done = site.until_over(1)
    assert ("running", "requeue") == (done.state, done.mode), done.reason
    status = launched.running()
    assert (1, {"code": "v2", "config": "lr-1"}) == (status.attempt, status.versions)
    assert {"v2"} == site.code()
    assert "running" == site.update().state
