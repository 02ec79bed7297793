"""A job without a scheduler, as real processes: hostfile, stop, clean, start, and nothing twice."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from actions.executors.mpirun import MpirunExecutor, placed, pool
from actions.executors.mpirun_run import HOST_FILE, MpirunJob
from nodewarden.clock import SystemClock
from telemetry.actions import Outcome, Preconditions
from telemetry.errors import SettingsError, SourceUnavailable
from telemetry.settings import ActMpirunSettings, ActSettings, RecoverySettings
from telemetry.tools import Tools
from tests.acting import Site, incident
from tests.commands import command

CLOCK = SystemClock()
DEADLINE_S = 30.0
MPIRUN = """
import os, pathlib, subprocess, sys
hosts = [line.split()[0] for line in open(sys.argv[1]) if line.strip()]
rank = (
    "import os, sys, time;"
    " open(sys.argv[1], 'w').write(os.environ.get('NODEWARDEN_CODE_VERSION', ''));"
    " time.sleep(600)"
)
places = [f"{sys.argv[2]}/{number}.{host}.{os.getpid()}" for number, host in enumerate(hosts)]
for one in [subprocess.Popen([sys.executable, "-c", rank, place]) for place in places]:
    one.wait()
"""


class Running:
    """The executor with its directory, and what its ranks said."""

    def __init__(self, directory: Path, **changes: object) -> None:
        self.directory, self.said = directory / "job", directory / "said"
        self.said.mkdir()
        program = directory / "mpirun.py"
        program.write_text(MPIRUN, "utf-8")
        given: dict[str, object] = {
            "job": "llm", "pool": ("n[1-4]",), "nodes": 2, "slots": 8, "dir": str(self.directory),
            "command": (sys.executable, str(program), "{hostfile}", str(self.said)),
            "grace_s": 5.0, **changes,
        }  # fmt: skip
        self.settings = ActMpirunSettings(**given)  # type: ignore[arg-type]
        self.executor = MpirunExecutor(self.settings, CLOCK, lambda: Tools(CLOCK))
        self._count = 0

    def does(self, action: str, *nodes: str, **changes: object) -> Outcome:
        self._count += 1
        return self.executor.execute(
            command(action, *nodes, job="llm", name=f"c{self._count}", **changes)  # type: ignore[arg-type]
        )

    def hosts(self) -> list[str]:
        return (self.directory / HOST_FILE).read_text().splitlines()

    def state(self) -> Preconditions:
        return self.executor.observe(["n1", "n2", "n3", "n4", "other"], "llm")

    def ranks(self) -> set[str]:
        """RANK.NODE of what the newest mpirun started."""
        pid = str(MpirunJob(self.directory, CLOCK).state().pid)
        return {name.rpartition(".")[0] for name in os.listdir(self.said) if name.endswith(pid)}

    def stop(self) -> None:
        job = MpirunJob(self.directory, CLOCK)
        pid = job.process(job.state())
        if pid is not None:
            job.end(pid, 1.0)
        self.state()  # takes leave of its child


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    made: list[Running] = []

    def one(**changes: object) -> Running:
        made.append(Running(tmp_path, **changes))
        return made[-1]

    yield one
    for running in made:
        running.stop()


def awaited(true: Callable[[], bool]) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def test_a_bad_node_is_out_of_the_hostfile_and_the_others_keep_their_ranks(
    make: Callable[..., Running],
) -> None:
    running = make()
    assert "done" == running.does("restart").status
    assert ["n1 slots=8", "n2 slots=8"] == running.hosts()
    awaited(lambda: running.ranks() == {"0.n1", "1.n2"})
    before = running.state()
    assert ("RUNNING", 1, ["n1", "n2"]) == (before.job_state, before.attempt, before.job_nodes)
    assert {"n1": "working", "n2": "working", "n3": "standby", "n4": "standby"} == before.states

    done = running.does("isolate_and_restart", "n1", attempt=1, versions={"code": "v2"})
    assert "done" == done.status, done.reason
    assert ["n3 slots=8", "n2 slots=8"] == running.hosts()
    awaited(lambda: running.ranks() == {"0.n3", "1.n2"})
    awaited(lambda: "v2" in {path.read_text() for path in running.said.iterdir()})
    after = running.state()
    assert ("RUNNING", 2, "out", "nodewarden") == (
        after.job_state, after.attempt, after.states["n1"], after.owners["n1"],
    )  # fmt: skip

    assert "done" == running.does("isolate", "n1", step="undrain").status
    assert "standby" == running.state().states["n1"]


def test_step_by_step_and_each_can_be_read_back(make: Callable[..., Running]) -> None:
    running = make(clean=(sys.executable, "-c", "import sys; sys.exit(sys.argv[1] == 'n9')",
                          "{node}"))  # fmt: skip
    running.does("restart")
    for step in ("drain", "stop", "clean", "replace", "restart"):
        one = command("isolate_and_restart", "n2", step=step, mode="replacement", job="llm",
                      name=step, exclude=("n2",))  # fmt: skip
        assert not running.executor.achieved(one, running.state())
        done = running.executor.execute(one)
        assert "done" == done.status, (step, done.reason)
        assert running.executor.achieved(one, running.state())
    assert ["n1 slots=8", "n3 slots=8"] == running.hosts()


def test_a_start_that_nobody_wrote_down_is_found_again(make: Callable[..., Running]) -> None:
    running = make()
    running.does("restart")
    job = MpirunJob(running.directory, CLOCK)
    state = job.state()
    # As a process that was killed right after the start leaves it.
    job.keep(msgspec.structs.replace(state, pid=None, ticks=None, done=[]))
    again = MpirunExecutor(running.settings, CLOCK, lambda: Tools(CLOCK))
    one = command("restart", job="llm", name="c1")
    assert again.achieved(one, Preconditions())
    assert "RUNNING" == again.observe([], "llm").job_state
    assert (
        "refused" == again.execute(command("restart", job="llm", name="x", step="restart")).status
    )
    assert state.pid == job.process(job.state())
    assert "done" == again.execute(command("restart", job="llm", name="y", step="stop")).status
    assert job.process(job.state()) is None


def test_a_pid_that_is_another_process_s_now_is_not_touched(make: Callable[..., Running]) -> None:
    running = make()
    running.does("restart")
    running.does("restart", step="stop")
    job = MpirunJob(running.directory, CLOCK)
    job.keep(msgspec.structs.replace(job.state(), pid=os.getpid(), ticks=1))
    assert "STOPPED" == running.state().job_state
    assert "done" == running.does("restart", step="stop").status  # and we live


def test_what_it_cannot_do_it_refuses(make: Callable[..., Running]) -> None:
    running = make()
    assert "refused" == running.does("isolate", "other").status
    assert "refused" == running.does("isolate", "n1;id").status
    assert "refused" == running.does("restart", "n1", step="restart", mode="partial").status
    assert "refused" == running.does("isolate", "n1", dry_run=True).status
    other = running.executor.execute(command("restart", job="another"))
    assert ("refused", "act.mpirun.job is 'llm', not 'another'") == (other.status, other.reason)
    running.does("restart")
    assert "refused" == running.does("restart", step="restart").status
    late = running.does("restart", step="stop", attempt=7)
    assert ("refused", "meant is attempt 7, and the newest is 1") == (late.status, late.reason)
    assert {} == running.executor.observe(["other"], "").states


def test_without_enough_nodes_nothing_is_started(make: Callable[..., Running]) -> None:
    running = make()
    running.does("isolate", "n1", "n2", "n3")
    done = running.does("restart")
    assert ("failed", True) == (done.status, "2 nodes are needed and 1 of the pool" in done.reason)
    assert "STOPPED" == running.state().job_state


def test_a_command_that_ends_at_once_is_no_start(make: Callable[..., Running]) -> None:
    running = make(command=("false",))
    done = running.does("restart")
    assert "failed" == done.status
    assert "ended at once" in done.reason
    missing = make_missing(running)
    assert "failed" == missing.status


def make_missing(running: Running) -> Outcome:
    settings = msgspec.structs.replace(running.settings, command=("/no/such/mpirun",))
    executor = MpirunExecutor(settings, CLOCK, lambda: Tools(CLOCK))
    return executor.execute(command("restart", job="llm", name="m"))


def test_a_cleaning_that_fails_is_no_restart(make: Callable[..., Running]) -> None:
    running = make(clean=(sys.executable, "-c", "import sys; sys.exit(sys.argv[1] == 'n2')",
                          "{node}"))  # fmt: skip
    running.does("restart")
    done = running.does("restart")
    assert "failed" == done.status
    assert "not clean: n2: exit 1" in done.reason
    assert "STOPPED" == running.state().job_state


def test_two_services_do_not_act_at_once(make: Callable[..., Running]) -> None:
    running = make()
    other = MpirunJob(running.directory, CLOCK)
    with other.locked(), pytest.raises(SourceUnavailable):
        running.does("isolate", "n1")


def test_nodes_keep_their_places() -> None:
    names = ["a", "b", "c", "d", "e"]
    assert ["a", "b", "c"] == placed(names, [], set(), 3)
    assert ["a", "d", "c"] == placed(names, ["a", "b", "c"], {"b"}, 3)
    assert ["e", "d"] == placed(names, ["a", "b"], {"b", "c", "d"} - {"d"} | {"a"}, 2)[::-1]
    assert ["b", "c"] == placed(names, ["gone", "c"], {"a"}, 2)
    assert isinstance(placed(names, ["a"], {"a", "b", "c", "d"}, 2), str)


def test_settings_that_describe_no_job_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"act\.mpirun\.command"):
        pool(ActMpirunSettings())
    with pytest.raises(SettingsError, match=r"has 1 nodes and act\.mpirun\.nodes asks for 2"):
        pool(ActMpirunSettings(command=("mpirun",), pool=("n1",), nodes=2))
    with pytest.raises(SettingsError, match=r"act\.mpirun\.pool"):
        pool(ActMpirunSettings(command=("mpirun",), pool=("n[1",)))


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI's mpirun is not installed")
def test_open_mpi_reads_the_hostfile(tmp_path: Path, make: Callable[..., Running]) -> None:
    agent = tmp_path / "agent"
    # All nodes are this machine: what would go over ssh runs here.
    agent.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n', "utf-8")
    agent.chmod(0o755)
    rank = "echo $OMPI_COMM_WORLD_RANK > $0/$OMPI_COMM_WORLD_RANK.$PPID; exec sleep 600"
    running = make(
        slots=1, pool=("127.0.0.1", "127.0.0.2"),
        command=("mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", str(agent),
                 "--hostfile", "{hostfile}", "-np", "{nodes}", "--oversubscribe",
                 "sh", "-c", rank, str(tmp_path / "said")),
    )  # fmt: skip
    done = running.does("restart")
    assert "done" == done.status, (done.reason, (running.directory / "output.log").read_text())
    awaited(lambda: {name.split(".")[0] for name in os.listdir(running.said)} == {"0", "1"})
    assert "done" == running.does("restart", step="stop").status


def test_a_bad_node_is_replaced_state_by_state(make: Callable[..., Running]) -> None:
    running = make()
    running.does("restart")
    awaited(lambda: running.ranks() == {"0.n1", "1.n2"})
    settings = ActSettings(
        dry_run=False, first_observe_s=0.0, executor="mpirun", mpirun=running.settings,
        recovery=RecoverySettings(look_s=0.1),
    )  # fmt: skip
    site = Site(settings)
    site.clock = CLOCK  # type: ignore[assignment]
    site.world = running.executor  # type: ignore[assignment]
    story = incident("a", action="isolate_and_restart", job="llm")
    verdict = msgspec.structs.replace(story.verdict, targets=["n1"])
    site.tell(msgspec.structs.replace(story, verdict=verdict, verdicts=[verdict]))
    instance = site.start()

    def over() -> bool:
        instance.step()
        return any(
            one.state in ("running", "escalated") for one in instance.ledger.recoveries.values()
        )

    awaited(over)
    (recovery,) = instance.ledger.recoveries.values()
    assert ("running", "in_place") == (recovery.state, recovery.mode), recovery
    assert ["n3 slots=8", "n2 slots=8"] == running.hosts()
    awaited(lambda: running.ranks() == {"0.n3", "1.n2"})
    assert "out" == running.state().states["n1"]
