"""Whom the action service believes of a job within its allocation, and what it leaves for it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec
import pytest

from actions.executors.launch import Launches
from actions.executors.with_launcher import WithLauncher
from actions.ports import JobFacts
from actions.recovery.facts import replacements
from telemetry.actions import Command, OutcomeStatus
from telemetry.errors import SourceUnavailable
from telemetry.launch_files import read_file, write_file
from telemetry.launching import (
    ORDER_FILE,
    STATUS_FILE,
    VERSIONS_FILE,
    LaunchedPart,
    LaunchResult,
    LaunchStatus,
)
from telemetry.testing import ManualClock
from tests.commands import command
from tests.slurm_fake import FakeSlurm, executor

USER, SOMEBODY = (4_242, 4_343) if os.geteuid() == 0 else (os.geteuid(), -1)
PART = LaunchedPart(node="n1", node_rank=0, generation=1, state="running")


def give(path: Path, user: int) -> None:
    """It is theirs from here on."""
    if os.geteuid() == 0:
        os.chown(path, user, -1)
    elif user != USER:
        pytest.skip("only root gives files to others")


class Jobs:
    """A directory that anybody may write to, and Slurm's job 7 of the user."""

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock()
        self.folder = root / "7"
        self.folder.mkdir()
        give(self.folder, USER)
        self.slurm = FakeSlurm()
        self.slurm.run("7", "n1", "n2", user=USER)
        self.launches = Launches(root, lambda _job: "", self.clock, 0.2)
        self.scheduler = executor(self.slurm)
        self.acts = WithLauncher(self.scheduler, self.launches, self.clock)

    def say(self, by: int, *results: LaunchResult, job: str = "7", attempt: int = 0) -> None:
        status = LaunchStatus(
            job=job, attempt=attempt, at=self.clock.time_s(), phase="failed", generation=1,
            partial=True, spares=["n8", "n9"], parts=[PART],
            results=list(results),
        )  # fmt: skip
        write_file(self.folder, STATUS_FILE, status)
        give(self.folder / STATUS_FILE, by)

    def command(self, step: str, mode: str, **changes: object) -> Command:
        made = command("restart", step=step, mode=mode, job="7", attempt=0)  # type: ignore[arg-type]
        seen = self.acts.observe([], "7")
        return msgspec.structs.replace(made, preconditions=seen, **changes)


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path)


@pytest.mark.parametrize("by", [USER, 0])
def test_the_job_s_user_and_root_are_believed(jobs: Jobs, by: int) -> None:
    jobs.say(by)
    seen = jobs.acts.observe([], "7")
    assert ("FAILED", ["n1"], 2, USER) == (
        seen.job_state, seen.job_nodes, seen.job_spares, seen.job_user,
    )  # fmt: skip


def test_spare_nodes_of_the_allocation_are_replacements(jobs: Jobs) -> None:
    def free(of_site: int | None) -> int | None:
        return replacements(jobs.acts.observe([], "7"), JobFacts(replacements=of_site))

    assert (1, None) == (free(1), free(None))
    jobs.say(USER)
    assert (3, 2) == (free(1), free(None))
    jobs.clock.advance(120.0)  # its launcher says nothing any more
    assert (1, None) == (free(1), free(None))
    (jobs.folder / STATUS_FILE).write_text("{")
    assert 1 == free(1)


@pytest.mark.parametrize("what", ["file", "folder", "link", "job", "attempt", "owner unknown"])
def test_of_anybody_else_nothing_is_believed(jobs: Jobs, what: str) -> None:
    done = LaunchResult(id="c1", do="restart", state="done", reason="forged", at=1.0)
    jobs.say(SOMEBODY if what == "file" else USER, done, job="8" if what == "job" else "7",
             attempt=1 if what == "attempt" else 0)  # fmt: skip
    if what == "folder":
        give(jobs.folder, SOMEBODY)
    if what == "link":
        (jobs.folder / STATUS_FILE).rename(jobs.folder / "other")
        (jobs.folder / STATUS_FILE).symlink_to("other")
    if what == "owner unknown":
        jobs.slurm.run("7", "n1", "n2")
    seen = jobs.acts.observe([], "7")
    assert ("RUNNING", ["n1", "n2"], None) == (seen.job_state, seen.job_nodes, seen.job_spares)
    restart = jobs.command("restart", "in_place")
    if what != "attempt":  # a restart of a run before is of the log, and was done
        with contextlib.suppress(SourceUnavailable):  # through a link: nobody can tell
            assert not jobs.acts.achieved(restart, seen)
    outcome = jobs.acts.execute(msgspec.structs.replace(restart, id="c2"))
    assert "refused" == outcome.status, outcome.reason  # and the next mode is tried
    assert not (jobs.folder / ORDER_FILE).exists()


def test_an_order_that_cannot_be_written_is_refused_and_not_a_person_s(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(directory: Path, name: str, value: object) -> None:
        raise SourceUnavailable("Permission denied")

    jobs.say(USER)
    restart = jobs.command("restart", "in_place")
    monkeypatch.setattr("actions.executors.launch.write_file", fails)
    outcome = jobs.acts.execute(restart)
    assert "refused" == outcome.status
    assert "Permission denied" in outcome.reason


# -- versions


def left(jobs: Jobs) -> dict[str, str] | None:
    return read_file(jobs.folder, VERSIONS_FILE, dict[str, str])


def requeue(jobs: Jobs) -> Command:
    return jobs.command("restart", "requeue", versions={"code": "v2"}, exclude=["n2"])


def test_a_restart_leaves_the_versions_for_the_next_run(jobs: Jobs) -> None:
    jobs.scheduler.execute(jobs.command("stop", "requeue"))
    done = jobs.acts.execute(requeue(jobs))
    assert ("done", {"code": "v2"}) == (done.status, left(jobs))
    assert "its launcher will run code v2" in done.reason


@pytest.mark.parametrize("before", [None, {"code": "v1", "config": "c1"}])
@pytest.mark.parametrize("status", ["refused", "failed"])
def test_a_restart_that_is_not_made_leaves_the_versions_as_they_were(
    jobs: Jobs, before: dict[str, str] | None, status: OutcomeStatus
) -> None:
    if before is not None:
        write_file(jobs.folder, VERSIONS_FILE, before)
        give(jobs.folder / VERSIONS_FILE, USER)
    if status == "failed":
        jobs.scheduler.execute(jobs.command("stop", "requeue"))
        jobs.slurm.refusal = "Access/permission denied"
    done = jobs.acts.execute(requeue(jobs))  # it was not stopped, or Slurm does not release it
    assert (status, before) == (done.status, left(jobs)), done.reason
    assert "its next run has the versions of before" in done.reason


def test_a_restart_of_which_nobody_knows_whether_it_was_made_leaves_them(jobs: Jobs) -> None:
    jobs.scheduler.execute(jobs.command("stop", "requeue"))
    jobs.slurm.deaf = True
    done = jobs.acts.execute(requeue(jobs))
    assert ("unknown", {"code": "v2"}) == (done.status, left(jobs))


def test_what_somebody_else_wrote_is_no_version_of_before(jobs: Jobs) -> None:
    write_file(jobs.folder, VERSIONS_FILE, {"config": "forged"})
    give(jobs.folder / VERSIONS_FILE, SOMEBODY)
    jobs.scheduler.execute(jobs.command("stop", "requeue"))
    done = jobs.acts.execute(requeue(jobs))
    assert "done" == done.status
    assert f"it runs its old versions: {jobs.folder}/{VERSIONS_FILE}: written by user" \
        in done.reason  # fmt: skip


def test_where_nobody_says_whose_job_it_is_no_versions_are_left(jobs: Jobs) -> None:
    jobs.slurm.run("7", "n1", "n2")
    jobs.scheduler.execute(jobs.command("stop", "requeue"))
    done = jobs.acts.execute(requeue(jobs))
    assert ("done", None) == (done.status, left(jobs))
    assert "it runs its old versions: nobody says whose job it is" in done.reason
