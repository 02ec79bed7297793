"""Starting and ending the parts: one step of Slurm each, or plain processes where there is none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Protocol

from telemetry.errors import SourceUnavailable

ASKING_MAX = 4  # calls of scancel that a dead node holds up
# The batch step's own numbers: srun would take them for its options.
NOT_PASSED = frozenset({
    "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE",
    "SLURM_DISTRIBUTION", "SLURM_NNODES", "SLURM_JOB_NUM_NODES",
})  # fmt: skip


class Started(Protocol):
    """What runs on a node, as far as this machine sees it: `subprocess.Popen`."""

    pid: int

    def poll(self) -> int | None:
        """Its exit status once it has ended."""
        ...

    def terminate(self) -> None:
        """Ask it to end."""
        ...

    def kill(self) -> None:
        """End it."""
        ...


class Steps(Protocol):
    """The world, as far as the launcher needs it."""

    def start(self, node: str, words: Sequence[str]) -> Started:
        """Run `words` on `node`. Raises SourceUnavailable."""
        ...

    def end(self, numbers: Sequence[int], *, kill: bool) -> None:
        """Tell the steps of these numbers to end. Raises SourceUnavailable."""
        ...


class SlurmSteps:
    """`srun` inside of the allocation, and `scancel` for single steps.

    options  what srun gets beside: "--gpus-per-node=8"
    """

    def __init__(
        self, job: str, environ: Mapping[str, str], options: Sequence[str] = (), srun: str = "srun",
        scancel: str = "scancel",
    ) -> None:  # fmt: skip
        self._job, self._options = job, list(options)
        self._srun, self._scancel = srun, scancel
        self._asking: list[subprocess.Popen[bytes]] = []
        self._environ = {name: said for name, said in environ.items() if name not in NOT_PASSED}

    def start(self, node: str, words: Sequence[str]) -> Started:
        """One task on `node`, with all that the job has there. Raises SourceUnavailable."""
        # --overlap: what a step before holds until its last process is gone must not hold up ours.
        command = [
            self._srun, "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--overlap", "--mem=0",
            "--input=none", "--kill-on-bad-exit=0", *self._options, *words,
        ]  # fmt: skip
        try:
            return subprocess.Popen(  # noqa: S603
                command, env=self._environ, stdin=subprocess.DEVNULL,
                start_new_session=True,  # what a terminal sends is ours to pass on
            )  # fmt: skip
        except OSError as error:
            raise SourceUnavailable(f"{self._srun}: {error.strerror}") from error

    def end(self, numbers: Sequence[int], *, kill: bool) -> None:
        """SIGTERM or SIGKILL to all processes of the steps, not waited for: it asks each node, and
        one that is dead would hold up the others. Raises SourceUnavailable.

        Its exit status says nothing: 22.05 signals the step and still ends with "Invalid job id".
        Whether it had an effect is seen by the steps that end.
        """
        self._reap()
        if not numbers:
            return
        steps = [f"{self._job}.{number}" for number in numbers]
        command = [self._scancel, "--quiet", f"--signal={'KILL' if kill else 'TERM'}", *steps]
        try:
            asking = subprocess.Popen(  # noqa: S603
                command, env=self._environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            raise SourceUnavailable(f"{self._scancel}: {error.strerror}") from error
        self._asking.append(asking)

    def _reap(self) -> None:
        """Those that are done; of the others the newest few stay."""
        self._asking = [one for one in self._asking if one.poll() is None]
        for one in self._asking[:-ASKING_MAX]:
            one.kill()


class LocalSteps:
    """Plain processes of this machine: for trying a launch, and for tests."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)

    def start(self, node: str, words: Sequence[str]) -> Started:
        """As if this machine were `node`. Raises SourceUnavailable."""
        try:
            return subprocess.Popen(  # noqa: S603
                list(words), env=self._environ, stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            raise SourceUnavailable(f"{words[0]}: {error.strerror}") from error

    def end(self, numbers: Sequence[int], *, kill: bool) -> None:
        """No process here has a number: they are told one by one."""


def part_words(
    options: Mapping[str, object], flags: Sequence[str], words: Sequence[str]
) -> list[str]:
    """The command of a part. `-P`: a directory of the job's that is called as ours is not ours."""
    said = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    return [sys.executable, "-P", "-m", "collectors.launcher.part", *said, *flags, "--", *words]
