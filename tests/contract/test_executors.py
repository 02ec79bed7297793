"""What executors promise: no exception but one, nothing in a dry run, hostile names refused."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actions.executors.command import CommandExecutor
from actions.executors.launch import Launches
from actions.executors.mpirun import MpirunExecutor
from actions.executors.webhook import WebhookExecutor
from actions.executors.with_launcher import WithLauncher
from actions.notify.calls import Answer, Call, NoAnswer
from actions.ports import Executor
from nodewarden.clock import SystemClock
from telemetry.actions import Command, CommandStep, OutcomeStatus, Preconditions, RestartMode
from telemetry.errors import SourceUnavailable
from telemetry.findings import Action
from telemetry.settings import ActCommandSettings, ActMpirunSettings, ActWebhookSettings
from telemetry.testing import ManualClock
from telemetry.tools import Tools
from tests.commands import command
from tests.recovering import Scheduler

CLOCK = SystemClock()


class Counted:
    """How often somebody outside was called."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.posts = 0
        self.woken = 0

    def post(self, call: Call) -> Answer | NoAnswer:
        self.posts += 1
        return Answer(200)

    def wake(self, job: str) -> str:
        self.woken += 1
        return ""

    @property
    def calls(self) -> int:
        written = [path for path in self.directory.rglob("*") if path.name == "order.json"]
        return self.posts + self.woken + len(written) + (self.directory / "ran").exists()


def touching(outside: Counted) -> tuple[str, ...]:
    code = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()"
    return (sys.executable, "-c", code, str(outside.directory / "ran"), "{node}{job}")


def by_command(outside: Counted) -> Executor:
    words = touching(outside)
    return CommandExecutor(
        ActCommandSettings(isolate=words, release=words, restart=words), Tools(CLOCK), CLOCK
    )


def by_webhook(outside: Counted) -> Executor:
    return WebhookExecutor(
        ActWebhookSettings(url="https://ops.example/", key="k" * 16), outside, CLOCK
    )


def by_mpirun(outside: Counted) -> Executor:
    return MpirunExecutor(
        ActMpirunSettings(
            job="7", command=("/no/such/mpirun",), pool=("n[1-3]",), nodes=2,
            dir=str(outside.directory / "mpirun"), grace_s=0.1,
        ),
        CLOCK, lambda: Tools(CLOCK),
    )  # fmt: skip


def by_launcher(outside: Counted) -> Executor:
    clock = ManualClock()
    launches = Launches(outside.directory, outside.wake, clock, 0.2)
    return WithLauncher(Scheduler(clock), launches, clock)


MAKERS: tuple[Callable[[Counted], Executor], ...] = (
    by_command, by_webhook, by_mpirun, by_launcher,
)  # fmt: skip
NAMES = st.one_of(
    st.sampled_from(["n1", "n2", "n3", "7", "-rf", "../x", "n1;id", "n1,n2", "", "n\n1", "{job}"]),
    st.text(max_size=12),
)
COMMANDS = st.builds(
    lambda action, nodes, step, mode, job, versions, dry_run: command(
        action, *nodes, step=step, mode=mode, job=job, versions=versions, dry_run=dry_run
    ),
    st.sampled_from(get_args(Action)),
    st.lists(NAMES, max_size=3),
    st.sampled_from([None, *get_args(CommandStep)]),
    st.sampled_from([None, *get_args(RestartMode)]),
    NAMES,
    st.dictionaries(st.sampled_from(["code", "config", "x"]), NAMES, max_size=2),
    st.booleans(),
)


@contextmanager
def made(make: Callable[[Counted], Executor]) -> Iterator[tuple[Executor, Counted]]:
    with tempfile.TemporaryDirectory() as directory:
        outside = Counted(Path(directory))
        yield make(outside), outside


@pytest.mark.parametrize("make", MAKERS)
@settings(deadline=None, max_examples=40)
@given(one=COMMANDS)
def test_whatever_is_commanded_ends_in_an_outcome_or_in_no_answer(
    make: Callable[[Counted], Executor], one: Command
) -> None:
    with made(make) as (executor, outside):
        try:
            seen = executor.observe(one.targets, one.job)
            assert executor.achieved(one, seen) in (True, False, None)
            done = executor.execute(one)
        except SourceUnavailable:
            return
        assert (one.id, True) == (done.command, done.status in get_args(OutcomeStatus))
        assert done.reason
        if one.dry_run and make is not by_launcher:
            assert ("refused", 0) == (done.status, outside.calls)


@pytest.mark.parametrize("make", MAKERS)
def test_in_a_dry_run_nobody_is_called(make: Callable[[Counted], Executor]) -> None:
    with made(make) as (executor, outside):
        for step in ("stop", "clean", "restart"):
            one = command("restart", "n1", step=step, mode="in_place", job="7", dry_run=True)
            assert "refused" == executor.execute(one).status
        assert 0 == outside.calls


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_not_known_of_a_node_is_not_said(make: Callable[[Counted], Executor]) -> None:
    with made(make) as (executor, _):
        seen = executor.observe([], "")
        assert Preconditions(job="") == Preconditions(
            states=seen.states, owners=seen.owners, boots=seen.boots, job=seen.job
        )
