"""The one job of a pool without a scheduler: what is out, what runs, and its process.

All of it is in a directory: `state.json` (whole or not at all), `hostfile`, `output.log`. A start
is written down before the process is started, and the process carries the directory and the attempt
in its environment: after a crash in between it is found again instead of being started twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from telemetry.errors import InputError, SourceUnavailable
from telemetry.launch_files import read_file, write_file
from telemetry.ports import Clock

MARK = "NODEWARDEN_MPIRUN"  # DIRECTORY:ATTEMPT, in the environment of mpirun and its ranks
STATE_FILE, HOST_FILE, OUTPUT_FILE, LOCK_FILE = "state.json", "hostfile", "output.log", "lock"
DONE_MAX = 200
ENVIRON_MAX_BYTES = 1_000_000
LOOK_EVERY_S = 0.05
KILLED_WITHIN_S = 5.0


class MpirunState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the job.

    attempt   of the newest start, 0 before the first
    pid       of its mpirun; None where it was to be started, and nobody wrote that it was
    ticks     when that process began, in the kernel's ticks: its number may be another's by now
    started_by  the command that led to it
    nodes     of the hostfile
    out       node -> the incident for which it gets no work
    versions  what runs
    done      ids of the newest commands that were carried out, oldest first
    """

    attempt: int = 0
    pid: int | None = None
    ticks: int | None = None
    started_by: str = ""
    nodes: list[str] = []
    out: dict[str, str] = {}
    versions: dict[str, str] = {}
    done: list[str] = []

    def after(self, command: str, **changes: object) -> MpirunState:
        """Changed by a command that is done."""
        done = [*(one for one in self.done if one != command), command][-DONE_MAX:]
        return msgspec.structs.replace(self, done=done, **changes)


class MpirunJob:
    """See above. All of it raises SourceUnavailable where the directory or /proc fails."""

    def __init__(self, directory: Path, clock: Clock, proc: Path = Path("/proc")) -> None:
        self.directory, self._clock, self._proc = directory, clock, proc
        self._child: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else changes anything meanwhile; another holder is waited for by nobody."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with (self.directory / LOCK_FILE).open("a", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield
        except OSError as error:
            raise SourceUnavailable(f"{self.directory}: {error.strerror}") from error

    def state(self) -> MpirunState:
        """As it is written."""
        try:
            found = read_file(self.directory, STATE_FILE, MpirunState, frozenset({0, os.getuid()}))
        except InputError as error:
            raise SourceUnavailable(str(error)) from error
        return found or MpirunState()

    def keep(self, state: MpirunState) -> None:
        """Write it."""
        write_file(self.directory, STATE_FILE, state)

    def process(self, state: MpirunState) -> int | None:
        """The number of the mpirun that runs now; None where none does."""
        if self._child is not None and self._child.poll() is not None:
            self._child = None
        if state.attempt == 0:
            return None
        if state.pid is None:
            return self._lost(state.attempt)
        same = state.ticks is not None and state.ticks == self._ticks(state.pid)
        return state.pid if same else None

    def start(self, words: Sequence[str], state: MpirunState) -> MpirunState:
        """Start it; `state` is that of the new attempt. Raises OSError where it cannot be."""
        self.keep(state)
        environ = {**os.environ, MARK: self._mark(state.attempt)}
        for kind, version in state.versions.items():
            environ[f"NODEWARDEN_{kind.upper()}_VERSION"] = version
        with (self.directory / OUTPUT_FILE).open("ab") as output:
            self._child = subprocess.Popen(  # noqa: S603 - the site's own words
                list(words), env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                cwd=self.directory, start_new_session=True,
            )  # fmt: skip
        pid = self._child.pid
        started = msgspec.structs.replace(state, pid=pid, ticks=self._ticks(pid))
        self.keep(started)
        return started

    def end(self, pid: int, grace_s: float) -> bool:
        """End it and what it started here; whether it is gone. mpirun ends its ranks elsewhere."""
        for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILLED_WITHIN_S)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)
            until_s = self._clock.monotonic_s() + patience_s
            while self._lives(pid):
                if self._clock.monotonic_s() >= until_s:
                    break
                self._clock.sleep(LOOK_EVERY_S)
            else:
                return True
        return False

    def write_hosts(self, nodes: Sequence[str], slots: int) -> None:
        """The hostfile, as Open MPI reads it, in one step."""
        fresh = self.directory / f".{HOST_FILE}"
        try:
            fresh.write_text("".join(f"{node} slots={slots}\n" for node in nodes), "utf-8")
            os.replace(fresh, self.directory / HOST_FILE)
        except OSError as error:
            raise SourceUnavailable(f"{self.directory}: {error.strerror}") from error

    def _lives(self, pid: int) -> bool:
        if self._child is not None and self._child.pid == pid:
            return self._child.poll() is None
        return self._ticks(pid) is not None

    def _ticks(self, pid: int) -> int | None:
        """When it began; None where it is gone, or ended and only not yet taken leave of."""
        try:
            text = (self._proc / str(pid) / "stat").read_text("utf-8", "replace")
        except OSError:
            return None
        # The name may hold anything, also a bracket: what follows the last one has fixed places.
        words = text.rpartition(")")[2].split()
        if len(words) < 20 or words[0] in ("Z", "X"):
            return None
        return int(words[19])

    def _lost(self, attempt: int) -> int | None:
        """The process of a start of which nobody wrote that it was made."""
        wanted = self._mark(attempt)
        for name in os.listdir(self._proc):
            if not name.isdecimal() or self._environ(name).get(MARK) != wanted:
                continue
            pid = int(name)
            with contextlib.suppress(OSError):
                if os.getpgid(pid) == pid and self._ticks(pid) is not None:
                    return pid
        return None

    def _environ(self, pid: str) -> Mapping[str, str]:
        try:
            with (self._proc / pid / "environ").open("rb") as file:
                text = file.read(ENVIRON_MAX_BYTES).decode("utf-8", "replace")
        except OSError:
            return {}
        return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)

    def _mark(self, attempt: int) -> str:
        return f"{self.directory.absolute()}:{attempt}"
