"""Runs a tool and reads what it prints: never through a shell, with a time-out and a bound.

A driver that hangs leaves its tools unkillable. Such a process is let be, and until it is gone the
tool is not started again: a second one would hang beside it.
"""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Mapping, Sequence

from telemetry.errors import SourceUnavailable
from telemetry.ports import Clock

PRINTED_MAX = 4_000_000
PIECE_BYTES = 65_536
REAP_S = 0.2
ENVIRONMENT: Mapping[str, str] = {
    "LC_ALL": "C",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}


class Tools:
    """The tools of one thread; each runs at most once at a time."""

    def __init__(self, clock: Clock, environment: Mapping[str, str] = ENVIRONMENT) -> None:
        self._clock, self._environment = clock, dict(environment)
        self._stuck: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, words: Sequence[str], timeout_s: float) -> bytes:
        """What the tool prints on standard output.

        Raises SourceUnavailable where it is not there, fails, takes too long or prints too much.
        """
        name = words[0]
        stuck = self._stuck.get(name)
        if stuck is not None and stuck.poll() is None:
            raise SourceUnavailable(f"{name}: one that was started before still hangs")
        self._stuck.pop(name, None)
        try:
            process = subprocess.Popen(  # noqa: S603 - no shell; the words are ours
                list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, env=self._environment, bufsize=0,
            )  # fmt: skip
        except OSError as error:
            raise SourceUnavailable(f"{name}: {error.strerror}") from error
        try:
            printed = self._read(process, name, self._clock.monotonic_s() + timeout_s)
        finally:
            self._end(process, name)
        if process.returncode != 0 and not printed:
            raise SourceUnavailable(f"{name}: ends with status {process.returncode}")
        return printed

    def _read(self, process: subprocess.Popen[bytes], name: str, until_s: float) -> bytes:
        assert process.stdout is not None
        printed = bytearray()
        with process.stdout as out:
            while True:
                left_s = until_s - self._clock.monotonic_s()
                if left_s <= 0.0 or not select.select([out], [], [], left_s)[0]:
                    raise SourceUnavailable(f"{name}: is not done in time")
                piece = os.read(out.fileno(), PIECE_BYTES)
                if not piece:
                    return bytes(printed)
                printed += piece
                if len(printed) > PRINTED_MAX:
                    raise SourceUnavailable(f"{name}: prints more than {PRINTED_MAX} bytes")

    def _end(self, process: subprocess.Popen[bytes], name: str) -> None:
        try:
            process.wait(REAP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            try:
                process.wait(REAP_S)
            except subprocess.TimeoutExpired:
                self._stuck[name] = process
