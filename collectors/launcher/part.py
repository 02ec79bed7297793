"""The processes of one node of a job: started, told of in a file, ended together.

Runs as one step of the scheduler; standard library only, so that it starts at once. It cleans what
an earlier generation left, starts one process a local rank, each the head of a session of its own,
and ends with the first exit status that is not 0, after it has ended the others. SIGTERM is passed
on; after `--grace` seconds what is left is killed. `python -m collectors.launcher.part --help`.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from collectors.launcher.cleaning import KEEP_PATTERNS, MARK, SHM_PATTERNS, Cleaned, clean, mark

NOT_FOUND, NOT_STARTED = 127, 126  # as shells have it
POLL_S = 0.5
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class Part:
    """See above."""

    def __init__(self, options: argparse.Namespace, environ: Mapping[str, str]) -> None:
        self._options, self._environ = options, environ
        self._node = options.node
        self._mark = mark(options.job, options.attempt, options.generation, self._node)
        self._ranks: list[subprocess.Popen[bytes]] = []
        self._told: int | None = None  # the signal that ends us
        self._wake, self._woken = os.pipe()

    def run(self) -> int:
        """Until all ranks have ended; the exit status."""
        signal.set_wakeup_fd(self._nonblocking())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._tell)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        cleaned = self._clean()
        if self._options.clean:
            self._say(cleaned, "ended")
            return 1 if cleaned.stayed else 0
        try:
            for local in range(self._options.tasks):
                self._ranks.append(self._start(local))
        except OSError as error:
            print(f"nodewarden: {self._options.words[0]}: {error.strerror}", file=sys.stderr)
            self._end()
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_STARTED
        self._say(cleaned, "running")
        return self._follow()

    def _follow(self) -> int:
        while True:
            codes = [rank.poll() for rank in self._ranks]
            failed = next((code for code in codes if code not in (None, 0)), None)
            if failed is not None or self._told is not None:
                self._end()
                return _status(failed) if failed is not None else 128 + (self._told or 0)
            if all(code == 0 for code in codes):
                return 0
            self._sleep(POLL_S)

    def _start(self, local: int) -> subprocess.Popen[bytes]:
        options, parent = self._options, os.getpid()
        words, environ = ranked(options, local, {**self._environ, MARK: self._mark})

        def prepare() -> None:
            # Where this process is killed its ranks are of no use any more.
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)

        return subprocess.Popen(  # noqa: S603 - running what it is given is what this is for
            words, env=environ, stdin=subprocess.DEVNULL, start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509 - no thread runs
        )  # fmt: skip

    def _end(self) -> None:
        """All ranks, with their own children as far as they stayed in the rank's group."""
        self._signal(signal.SIGTERM)
        until_s = time.monotonic() + self._options.grace
        while any(rank.poll() is None for rank in self._ranks) and time.monotonic() < until_s:
            self._sleep(min(POLL_S, max(until_s - time.monotonic(), 0.0)))
        self._signal(signal.SIGKILL)
        for rank in self._ranks:
            rank.wait()

    def _signal(self, number: int) -> None:
        """To the whole group of each rank: it lives on while a child of the rank does."""
        for rank in self._ranks:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(rank.pid, number)

    def _clean(self) -> Cleaned:
        options = self._options
        lives = "" if options.clean else self._mark
        return clean(
            options.job, self._node, lives, shm_patterns=(*SHM_PATTERNS, *options.shm),
            keep_patterns=(*KEEP_PATTERNS, *options.keep_shm),
        )  # fmt: skip

    def _say(self, cleaned: Cleaned, state: str) -> None:
        """What runs here, for the launcher; whole or not at all."""
        options = self._options
        step = self._environ.get("SLURM_STEP_ID", "")
        said = {
            "node": self._node, "node_rank": options.node_rank, "generation": options.generation,
            "state": state, "step": int(step) if step.isdecimal() else None,
            "pids": [rank.pid for rank in self._ranks],
        }  # fmt: skip
        path = Path(options.report)
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.write_text(json.dumps(said), "utf-8")
        os.replace(fresh, path)
        if cleaned != Cleaned():
            print(f"nodewarden: {self._node}: {told(cleaned)}", file=sys.stderr)

    def _tell(self, number: int, _frame: object) -> None:
        self._told = number

    def _nonblocking(self) -> int:
        os.set_blocking(self._wake, False)
        os.set_blocking(self._woken, False)
        return self._woken

    def _sleep(self, seconds: float) -> None:
        select.select([self._wake], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4_096)


def ranked(
    options: argparse.Namespace, local: int, environ: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Command and environment of one local rank, as torch's launchers name them."""
    rank = options.node_rank * options.tasks + local
    said = {
        "RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": options.nodes * options.tasks,
        "LOCAL_WORLD_SIZE": options.tasks, "NODE_RANK": options.node_rank,
        "GROUP_RANK": options.node_rank, "MASTER_ADDR": options.master,
        "MASTER_PORT": options.master_port, "NODEWARDEN_JOB": options.job,
        "NODEWARDEN_GENERATION": options.generation, "NODEWARDEN_NODES": options.nodes,
    }  # fmt: skip
    for variable, version in (("CODE", options.code), ("CONFIG", options.config)):
        if version:
            said[f"NODEWARDEN_{variable}_VERSION"] = version
    placed = {
        "{node_rank}": options.node_rank, "{nodes}": options.nodes, "{master}": options.master,
        "{master_port}": options.master_port, "{generation}": options.generation,
        "{code}": options.code, "{config}": options.config,
    }  # fmt: skip
    words = [_placed(word, placed) for word in options.words]
    return words, {**environ, **{name: str(value) for name, value in said.items()}}


def told(cleaned: Cleaned) -> str:
    """One line for the job's output."""
    return (
        f"cleaned: {cleaned.ended} processes ended, {cleaned.stayed} did not go,"
        f" shared memory removed: {len(cleaned.removed)}, kept: {len(cleaned.kept)}"
    )


def _placed(word: str, placed: Mapping[str, object]) -> str:
    for name, value in placed.items():
        word = word.replace(name, str(value))
    return word


def _status(code: int) -> int:
    return code if code >= 0 else 128 - code


def parser() -> argparse.ArgumentParser:
    """The options; the launcher gives all of them."""
    made = argparse.ArgumentParser(prog="part", allow_abbrev=False)
    for name in ("job", "node", "report"):
        made.add_argument(f"--{name}", required=True)
    for name, least in (("attempt", 0), ("generation", 0), ("node-rank", 0), ("nodes", 1),
                        ("tasks", 1), ("master-port", 29_500)):  # fmt: skip
        made.add_argument(f"--{name}", type=int, default=least)
    for name in ("master", "code", "config"):
        made.add_argument(f"--{name}", default="")
    for name in ("shm", "keep-shm"):
        made.add_argument(f"--{name}", action="append", default=[])
    made.add_argument("--grace", type=float, default=10.0)
    made.add_argument("--clean", action="store_true")
    made.add_argument("words", nargs="*")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    return Part(parser().parse_args(arguments), dict(os.environ)).run()


if __name__ == "__main__":
    sys.exit(main())
