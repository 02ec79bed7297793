"""A job on a real Slurm that `nodewarden launch` runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from actions.executors.launch import Launches
from nodewarden.clock import SystemClock
from telemetry.actions import Command, CommandStep, Outcome, Preconditions, RestartMode
from telemetry.launch_files import read_file
from telemetry.launching import STATUS_FILE, LaunchStatus
from tests.inventory_fold import PLAIN_PATH
from tests.slurm.cluster import Slurm

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
CLOCK = SystemClock()
Found = TypeVar("Found")
RANK = """
import os, pathlib, sys, time
place = pathlib.Path(sys.argv[1])
name = f"{os.environ['RANK']}.{os.getpid()}"
(place / ("." + name)).write_text(os.environ.get("NODEWARDEN_CODE_VERSION", ""))
(place / ("." + name)).rename(place / name)
time.sleep(600)
"""


class Launched:
    """Three nodes with `tasks` ranks each, and a spare one."""

    def __init__(
        self, slurm: Slurm, directory: Path, *options: str, tasks: int = 2, rank: str = RANK
    ) -> None:
        self.slurm, self._tasks = slurm, tasks
        self.root, self.said = directory / "jobs", directory / "said"
        self.output = directory / "out"
        self.root.mkdir()
        self.said.mkdir()
        program = directory / "rank.py"
        program.write_text(rank, "utf-8")
        script = directory / "job.sh"
        words = ["launch", f"--dir={self.root}", "--nodes=3", f"--tasks-per-node={tasks}",
                 "--grace=2", *options, "--", sys.executable, str(program),
                 str(self.said)]  # fmt: skip
        script.write_text(
            f"#!/bin/sh\nexport PYTHONPATH={ROOT}\n"
            f"exec {sys.executable} -m nodewarden {' '.join(words)}\n",
            "utf-8",
        )
        self.job = slurm.run(
            "sbatch", "--parsable", "--nodes=4", "--requeue", f"--output={self.output}",
            "--open-mode=append", "--chdir=/", str(script),
        )  # fmt: skip
        self.launches = Launches(self.root, self._wake, CLOCK, 60.0)
        self._orders = 0

    def status(self) -> LaunchStatus | None:
        """The launcher's word."""
        return read_file(self.root / self.job, STATUS_FILE, LaunchStatus)

    def running(self, generation: int = 1) -> LaunchStatus:
        """Its status once all ranks of that generation's start have begun."""
        return awaited(lambda: self._running(generation), self.tell)

    def pids(self) -> dict[int, int]:
        """Rank -> its process, of those that live."""
        found = {}
        for path in self.said.glob("*.*"):
            rank, _, pid = path.name.partition(".")
            if rank and Path(f"/proc/{pid}").exists():
                found[int(rank)] = int(pid)
        return found

    def ordered(
        self,
        step: CommandStep,
        mode: RestartMode,
        *nodes: str,
        versions: dict[str, str] | None = None,
    ) -> Outcome:  # fmt: skip
        """What came of one command of the action service."""
        return self.launches.execute(self.command(step, mode, *nodes, versions=versions))

    def command(
        self,
        step: CommandStep,
        mode: RestartMode,
        *nodes: str,
        versions: dict[str, str] | None = None,
    ) -> Command:  # fmt: skip
        """One command, with these nodes excluded."""
        self._orders += 1
        return Command(
            id=f"order{self._orders}", decision="d", action="isolate_and_restart",
            targets=list(nodes), intent_at=CLOCK.time_s(), expires_at=CLOCK.time_s() + 60.0,
            preconditions=Preconditions(job=self.job, attempt=0, job_user=os.getuid()),
            job=self.job, dry_run=False, step=step, mode=mode, exclude=list(nodes),
            versions=versions or {},
        )  # fmt: skip

    def tell(self) -> str:
        """What the job wrote, for a test that fails."""
        return self.output.read_text("utf-8") if self.output.exists() else "no output"

    def _running(self, generation: int) -> LaunchStatus | None:
        status = self.status()
        if status is None or status.phase != "running" or status.generation < generation:
            return None
        known = {pid for part in status.parts for pid in part.pids}
        whole = len(known) == 3 * self._tasks and known == set(self.pids().values())
        return status if whole else None

    def _wake(self, job: str) -> str:
        done = subprocess.run(
            ["scancel", "--signal=USR1", "--batch", job], capture_output=True, text=True,
            check=False, timeout=30.0, stdin=subprocess.DEVNULL,
            env={"PATH": PLAIN_PATH, "SLURM_CONF": self.slurm.conf},
        )  # fmt: skip
        return done.stderr.strip() if done.returncode else ""


def awaited(look: Callable[[], Found | None], tell: Callable[[], str]) -> Found:
    """What `look` finds, once it finds something."""
    until_s = time.monotonic() + DEADLINE_S
    while (found := look()) is None:
        assert time.monotonic() < until_s, tell()
        time.sleep(0.05)
    return found


def requeued(launched: Launched, attempt: int) -> None:
    """Requeue the job as the action service does, and wait until that run of it is on its way.

    It begins two seconds later and not after Slurm's two minutes; never within the second in which
    its last run was killed, or Slurm fails it for good.
    """
    slurm, job = launched.slurm, launched.job
    slurm.run("scontrol", "requeuehold", job)

    def waits() -> bool | None:
        return True if slurm.run("squeue", "-h", "-j", job, "-o", "%T") == "PENDING" else None

    awaited(waits, launched.tell)
    slurm.run("scontrol", "release", job)
    told_s = float("-inf")

    def again() -> bool | None:
        nonlocal told_s
        waiting = slurm.run("squeue", "-h", "-j", job, "-o", "%T %r") == "PENDING BeginTime"
        if waiting and time.monotonic() - told_s > 4.0:  # Slurm may set its own once more
            told_s = time.monotonic()
            slurm.run("scontrol", "update", f"jobid={job}", "starttime=now+2")
        status = launched.status()
        return True if status is not None and status.attempt == attempt else None

    awaited(again, launched.tell)
