"""Runs a tool and reads what it prints: never through a shell, with a time-out and a bound.

A driver that hangs leaves its tools unkillable. Such a process is let be, and until it is gone the
tool is not started again: a second one would hang beside it.
"""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from telemetry.errors import SourceUnavailable
from telemetry.ports import Clock

PRINTED_MAX = 4_000_000
PIECE_BYTES = 65_536
SAID_MAX = 4_096
REAP_S = 0.2
ENVIRONMENT: Mapping[str, str] = {
    "LC_ALL": "C",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}


class Ran(NamedTuple):
    """What came of a command: its exit status, and what it printed; `said` on standard error."""

    status: int
    printed: bytes
    said: str


class Tools:
    """The tools of one thread; each runs at most once at a time."""

    def __init__(
        self, clock: Clock, environment: Mapping[str, str] = ENVIRONMENT,
        printed_max: int = PRINTED_MAX,
    ) -> None:  # fmt: skip
        self._clock, self._environment = clock, dict(environment)
        self._printed_max = printed_max
        self._stuck: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, words: Sequence[str], timeout_s: float) -> bytes:
        """What the tool prints on standard output.

        Raises SourceUnavailable where it is not there, fails, takes too long or prints too much.
        """
        done = self.ran(words, timeout_s)
        if done.status != 0 and not done.printed:
            raise SourceUnavailable(f"{words[0]}: ends with status {done.status}")
        return done.printed

    def ran(self, words: Sequence[str], timeout_s: float) -> Ran:
        """The same with its exit status, whatever that is, and the beginning of its errors."""
        name = words[0]
        stuck = self._stuck.get(name)
        if stuck is not None and stuck.poll() is None:
            raise SourceUnavailable(f"{name}: one that was started before still hangs")
        self._stuck.pop(name, None)
        try:
            process = subprocess.Popen(  # noqa: S603 - no shell; the words are ours
                list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, env=self._environment, bufsize=0,
            )  # fmt: skip
        except OSError as error:
            raise SourceUnavailable(f"{name}: {error.strerror}") from error
        try:
            printed, said = self._read(process, name, self._clock.monotonic_s() + timeout_s)
        finally:
            self._end(process, name)
        if process.returncode is None:
            raise SourceUnavailable(f"{name}: printed everything and does not end")
        return Ran(process.returncode, printed, said.decode("utf-8", "replace"))

    def _read(
        self, process: subprocess.Popen[bytes], name: str, until_s: float
    ) -> tuple[bytes, bytes]:
        assert process.stdout is not None
        assert process.stderr is not None
        printed, said = bytearray(), bytearray()
        with process.stdout as out, process.stderr as err:
            pipes = {out: printed, err: said}
            while pipes:
                left_s = until_s - self._clock.monotonic_s()
                ready = select.select(list(pipes), [], [], max(left_s, 0.0))[0]
                if left_s <= 0.0 or not ready:
                    raise SourceUnavailable(f"{name}: is not done in time")
                for pipe in ready:
                    piece = os.read(pipe.fileno(), PIECE_BYTES)
                    if not piece:
                        del pipes[pipe]
                        continue
                    pipes[pipe] += piece
                del said[SAID_MAX:]
                if len(printed) > self._printed_max:
                    raise SourceUnavailable(f"{name}: prints more than {self._printed_max} bytes")
        return bytes(printed), bytes(said)

    def _end(self, process: subprocess.Popen[bytes], name: str) -> None:
        try:
            process.wait(REAP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            try:
                process.wait(REAP_S)
            except subprocess.TimeoutExpired:
                self._stuck[name] = process
