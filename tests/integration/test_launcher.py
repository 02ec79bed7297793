"""The launcher with plain processes of this machine as nodes: orders, holds, cleaning, ends."""

from __future__ import annotations

import mmap
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from actions.executors.launch import Launches
from collectors.launcher.cleaning import KEEP, MARK, clean, mark
from nodewarden.clock import SystemClock
from telemetry.actions import Command, Outcome
from telemetry.launch_files import read_file, write_file
from telemetry.launching import ORDER_FILE, STATUS_FILE, VERSIONS_FILE, LaunchOrder, LaunchStatus
from tests.commands import command

CLOCK = SystemClock()
DEADLINE_S = 60.0
ROOT = Path(__file__).parents[2]
RUN = """
import os, sys
from pathlib import Path
from collectors.launcher.launcher import Launcher
from collectors.launcher.parts import LaunchOptions
from collectors.launcher.steps import LocalSteps
from nodewarden.clock import SystemClock
job, directory, said, hold_s, grace_s, partial, *words = sys.argv[1:]
options = LaunchOptions(
    job=job, attempt=0, allocated=("n1", "n2", "n3"), nodes=2, words=tuple(words), tasks=2,
    directory=Path(directory), partial=partial == "partial", grace_s=float(grace_s),
    hold_s=float(hold_s),
)
sys.exit(Launcher(options, LocalSteps(os.environ), SystemClock()).run({}))
"""
RANK = """
import os, pathlib, signal, sys, time
STUBBORN = '' if len(sys.argv) < 3 else sys.argv[2]
if STUBBORN == 'stubborn':
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if STUBBORN == 'daemon' and os.environ['RANK'] == '0' and os.fork() == 0:
    os.setsid()
    (pathlib.Path(sys.argv[1]) / f"daemon.{os.getpid()}").touch()
    time.sleep(600)
name = f"{os.environ['RANK']}.{os.getpid()}"
path = pathlib.Path(sys.argv[1]) / ("." + name)
path.write_text(os.environ.get('NODEWARDEN_CODE_VERSION', '') + os.environ['WORLD_SIZE'])
path.rename(pathlib.Path(sys.argv[1]) / name)
if STUBBORN == 'fails' and os.environ['RANK'] == '3':
    sys.exit(9)
time.sleep(600)
"""


class Launched:
    """A launcher of two nodes with two ranks each, and a spare node."""

    def __init__(self, directory: Path, *, hold_s: float = 30.0, grace_s: float = 5.0,
                 partial: bool = True, kind: str = "") -> None:  # fmt: skip
        self.job = str(10_000_000 + secrets.randbelow(10_000_000))
        self.root, self.said = directory / "jobs", directory / "said"
        self.said.mkdir()
        program = directory / "rank.py"
        program.write_text(RANK, "utf-8")
        words = [sys.executable, str(program), str(self.said), *([kind] if kind else [])]
        self.log = (directory / "log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, self.job, str(self.root / self.job), str(self.said),
             str(hold_s), str(grace_s), "partial" if partial else "whole", *words],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        self.launches = Launches(self.root, self.wake, CLOCK, 30.0)
        self._count = 0

    def wake(self, job: str) -> str:
        self.process.send_signal(signal.SIGUSR1)
        return ""

    def status(self) -> LaunchStatus | None:
        return read_file(self.root / self.job, STATUS_FILE, LaunchStatus)

    def phase(self) -> str:
        status = self.status()
        return "" if status is None else status.phase

    def pids(self) -> dict[int, int]:
        found = {}
        for name in os.listdir(self.said):
            rank, _, pid = name.partition(".")
            if rank.isdecimal() and is_alive(int(pid)):
                found[int(rank)] = int(pid)
        return found

    def running(self, generation: int = 1) -> dict[int, int]:
        """Rank -> process, once all are there."""

        def whole() -> bool:
            status = self.status()
            return (
                status is not None and status.generation >= generation
                and {pid for part in status.parts for pid in part.pids}
                == set(self.pids().values()) and len(self.pids()) == 4
            )  # fmt: skip

        awaited(whole, self.tell)
        return self.pids()

    def order(self, step: str, mode: str, *nodes: str, **changes: object) -> Outcome:
        return self.launches.execute(self.command(step, mode, *nodes, **changes))

    def command(self, step: str, mode: str, *nodes: str, **changes: object) -> Command:
        self._count += 1
        made = command("restart", *nodes, step=step, mode=mode, job=self.job,  # type: ignore[arg-type]
                       name=f"o{self._count}", exclude=tuple(nodes), attempt=0, **changes)  # type: ignore[arg-type]  # fmt: skip
        wanted = msgspec.structs.replace(made.preconditions, job_user=os.getuid())
        return msgspec.structs.replace(made, expires_at=CLOCK.time_s() + 60.0, preconditions=wanted)

    def tell(self) -> str:
        return Path(self.log.name).read_text()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(30.0)
        finally:
            self.process.kill()
            self.process.wait()
            self.log.close()
            for name in os.listdir(self.said):
                pid = int(name.rpartition(".")[2])
                if is_alive(pid):
                    os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def awaited(true: Callable[[], bool], tell: Callable[[], str] = lambda: "") -> None:
    until_s = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < until_s, tell()
        time.sleep(0.05)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Launched]]:
    made: list[Launched] = []

    def one(**changes: object) -> Launched:
        made.append(Launched(tmp_path, **changes))  # type: ignore[arg-type]
        return made[-1]

    yield one
    for launched in made:
        launched.end()


def test_in_place_and_partial_and_the_same_order_once(make: Callable[..., Launched]) -> None:
    launched = make()
    before = launched.running()
    partial = launched.command("restart", "partial", "n2")
    assert "done" == launched.launches.execute(partial).status
    after = launched.running(2)
    assert (before[0], before[1]) == (after[0], after[1])
    assert not {before[2], before[3]} & {after[2], after[3]}
    assert "done" == launched.launches.execute(partial).status
    assert after == launched.pids()

    mixed = launched.order("restart", "partial", versions={"code": "v2"})
    assert "refused" == mixed.status
    assert "other versions" in mixed.reason
    assert "done" == launched.order("restart", "in_place", versions={"code": "v2"}).status
    newest = launched.running(3)
    assert not set(after.values()) & set(newest.values())
    assert {"v24"} == {(launched.said / f"{one}.{pid}").read_text() for one, pid in newest.items()}
    same = launched.order("restart", "partial", "n1", versions={"code": "v2"})
    assert "no part" not in same.reason
    assert "1 spare nodes are needed" in same.reason
    status = launched.status()
    assert status is not None
    assert (["n1", "n3"], ["n2"], []) == (
        [part.node for part in status.parts], status.excluded, status.spares,
    )  # fmt: skip


def test_a_daemon_that_a_rank_left_is_ended_before_the_next_start(
    make: Callable[..., Launched],
) -> None:
    launched = make(kind="daemon")
    launched.running()
    (daemon,) = (int(path.suffix[1:]) for path in launched.said.glob("daemon.*"))
    assert is_alive(daemon)
    assert "done" == launched.order("stop", "in_place").status
    assert is_alive(daemon)  # it left the rank's group, and this machine knows no steps
    assert "done" == launched.order("clean", "in_place").status
    assert not is_alive(daemon)


def test_ranks_that_ignore_the_end_are_killed_after_their_grace(
    make: Callable[..., Launched],
) -> None:
    launched = make(kind="stubborn", grace_s=0.3)
    launched.running()
    assert "done" == launched.order("stop", "in_place").status
    assert {} == launched.pids()
    assert "stopped" == launched.phase()


def test_a_failed_rank_ends_its_node_alone_and_the_rest_is_held(
    make: Callable[..., Launched],
) -> None:
    launched = make(kind="fails")
    awaited(lambda: launched.phase() == "failed", launched.tell)
    awaited(lambda: set(launched.pids()) == {0, 1}, launched.tell)
    launched.process.terminate()
    assert 128 + signal.SIGTERM == launched.process.wait(30.0)
    assert {} == launched.pids()


def test_nobody_holds_the_allocation_for_ever(make: Callable[..., Launched]) -> None:
    launched = make(kind="fails", hold_s=0.5)
    assert 9 == launched.process.wait(30.0)
    assert {} == launched.pids()
    assert "nobody started the processes again in time" in launched.tell()
    assert [] == list(launched.root.iterdir())


def test_orders_that_are_none_change_nothing(make: Callable[..., Launched]) -> None:
    launched = make(partial=False)
    before = launched.running()
    folder = launched.root / launched.job
    (folder / ORDER_FILE).write_text("{")
    launched.wake("")
    awaited(lambda: not (folder / ORDER_FILE).exists(), launched.tell)
    bad: list[tuple[dict[str, object], str]] = [
        ({"attempt": 3}, "this is attempt 0"),
        ({"expires_at": 1.0}, "it expired before it was read"),
        ({"mode": "partial", "nodes": ["n1"]}, "--partial"),
        ({"exclude": ["n1", "n2"]}, "2 spare nodes are needed and the allocation has 1"),
        ({"do": "clean"}, "its processes run; stop them first"),
    ]
    for number, (changes, why) in enumerate(bad):
        given: dict[str, object] = {
            "id": f"bad{number}", "job": launched.job, "attempt": 0, "do": "restart",
            "mode": "in_place", "expires_at": CLOCK.time_s() + 60.0, **changes,
        }  # fmt: skip
        write_file(folder, ORDER_FILE, LaunchOrder(**given))  # type: ignore[arg-type]
        launched.wake("")

        def answered(name: str = f"bad{number}", why: str = why) -> bool:
            status = launched.status()
            return any(
                one.id == name and one.state == "refused" and why in one.reason
                for one in (status.results if status is not None else ())
            )

        awaited(answered, launched.tell)
    assert before == launched.pids()


@pytest.mark.slow
def test_a_launcher_that_is_gone_or_frozen_refuses(make: Callable[..., Launched]) -> None:
    launched = make()
    launched.running()
    launched.process.send_signal(signal.SIGSTOP)
    hasty = Launches(launched.root, launched.wake, CLOCK, 6.0)
    frozen = hasty.execute(launched.command("restart", "in_place"))
    assert ("refused", "the launcher did not take the order") == (frozen.status, frozen.reason)
    assert not (launched.root / launched.job / ORDER_FILE).exists()
    launched.process.send_signal(signal.SIGCONT)
    time.sleep(0.2)
    status = launched.status()
    assert status is not None
    assert [] == status.results
    write_file(launched.root / launched.job, STATUS_FILE, {
        "job": launched.job, "attempt": 0, "at": 1.0, "phase": "running", "generation": 1,
        "partial": True,
    })  # fmt: skip
    old = launched.launches.execute(launched.command("restart", "in_place"))
    assert "is silent for" in old.reason


def test_versions_outlive_a_launcher_that_was_ended_from_outside(
    make: Callable[..., Launched],
) -> None:
    launched = make()
    launched.running()
    assert "done" == launched.order("restart", "in_place", versions={"code": "v2"}).status
    launched.process.terminate()
    launched.process.wait(30.0)
    folder = launched.root / launched.job
    assert {"code": "v2"} == read_file(folder, VERSIONS_FILE, dict[str, str])

    def left(code: str) -> str:
        one = launched.command("restart", "requeue", versions={"code": code})
        return launched.launches.leave_versions(one).said

    assert "its launcher will run code v3" == left("v3")
    assert {"code": "v3"} == read_file(folder, VERSIONS_FILE, dict[str, str])
    assert "names no" not in left("v4")
    assert "old versions" in left("$(id)")


def test_told_twice_it_ends_at_once(make: Callable[..., Launched]) -> None:
    launched = make(kind="stubborn", grace_s=60.0)
    launched.running()
    launched.process.terminate()
    awaited(lambda: launched.phase() == "stopping", launched.tell)
    launched.process.terminate()
    assert 128 + signal.SIGTERM == launched.process.wait(30.0)
    assert "Traceback" not in launched.tell()
    awaited(lambda: launched.pids() == {})  # a rank does not outlive its part


# -- cleaning


@pytest.fixture
def sleeper() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []

    def one(**environ: str) -> subprocess.Popen[bytes]:
        made.append(subprocess.Popen(["sleep", "600"], env={**os.environ, **environ}))
        return made[-1]

    yield one
    for process in made:
        process.kill()
        process.wait()


def test_only_leftovers_of_the_job_on_this_node_are_ended(
    sleeper: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    job = str(10_000_000 + secrets.randbelow(10_000_000))
    old, earlier = (
        sleeper(**{MARK: mark(job, 0, 1, "n1")}),
        sleeper(**{MARK: mark(job, 0, 0, "n1")}),
    )
    stay = [
        sleeper(**{MARK: mark(job, 0, 2, "n1")}), sleeper(**{MARK: mark(job, 0, 1, "n2")}),
        sleeper(**{MARK: mark("1" + job, 0, 1, "n1")}), sleeper(),
        sleeper(**{MARK: mark(job, 0, 1, "n1"), KEEP: "1"}), sleeper(**{MARK: f"{job}/0/n1"}),
    ]  # fmt: skip
    done = clean(job, "n1", mark(job, 0, 2, "n1"), shm=tmp_path)
    assert (2, 0) == (done.ended, done.stayed)
    assert [-signal.SIGKILL, -signal.SIGKILL] == [old.wait(), earlier.wait()]
    assert [None] * 6 == [one.poll() for one in stay]


def test_shared_memory_goes_but_never_what_lives_or_is_a_checkpoint(tmp_path: Path) -> None:
    names = ["7_rank0", "torch_7_x", "other_8_x", "7_ckpt_buffer", "flash_7_checkpoint",
             "mapped_7_a", "open_7_b", "77_x", "x7_y"]  # fmt: skip
    for name in names:
        (tmp_path / name).write_bytes(b"x" * 4_096)
    (tmp_path / "link_7_x").symlink_to(tmp_path / "other_8_x")
    with (tmp_path / "mapped_7_a").open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 4_096)
    with (tmp_path / "open_7_b").open("rb"), mapped:
        done = clean("7", "n1", shm=tmp_path)
    assert ("7_rank0", "torch_7_x") == done.removed
    assert ("7_ckpt_buffer", "flash_7_checkpoint", "mapped_7_a", "open_7_b") == done.kept
    left = {"other_8_x", "77_x", "x7_y", "link_7_x", *done.kept}
    assert left == set(os.listdir(tmp_path))
    again = clean("7", "n1", shm=tmp_path, keep_patterns=("*ckpt*", "*checkpoint*"))
    assert ("mapped_7_a", "open_7_b") == again.removed  # nobody uses them any more
