"""The kernel's lines from journald, where /dev/kmsg may not be read: a `journalctl` that follows.

journald keeps no kernel number, so its events have none: after a kill, what was read since the last
saved position is told again.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

import msgspec
from msgspec import structs

from collectors.agent.patience import Patience
from collectors.kernel_log import KernelEvent, KernelLog
from telemetry.ports import Clock
from telemetry.records import Event, Rejected
from telemetry.tools import ENVIRONMENT

PIECE_BYTES = 65_536
PIECES_MAX = 16  # of one poll
TAIL_BYTES_MAX = 1_000_000
HOLD_S = 0.2
END_S = 1.0
_CURSOR = re.compile(rb'"__CURSOR"\s?:\s?"([^"\\]{1,512})"')


class JournalPosition(msgspec.Struct, frozen=True):
    """The newest line that was read, of which boot."""

    boot_id: str
    cursor: str


class Journal:
    """The kernel's lines of one boot. It ends and starts anew by itself."""

    def __init__(
        self, program: str, node: str, boot_id: str, saved: JournalPosition | None, clock: Clock
    ) -> None:
        self._program, self._node, self._boot_id, self._clock = program, node, boot_id, clock
        self._first = saved is None  # of all starts: what is there is history, but tells where
        self._cursor = saved.cursor if saved is not None and saved.boot_id == boot_id else ""
        self._told = self._cursor
        self._log = KernelLog("journal")
        self._process: subprocess.Popen[bytes] | None = None
        self._patience = Patience()
        self._tail = b""
        self._fed_s: float | None = None
        self.failures = 0
        self.whole = False

    @property
    def waits(self) -> bool:
        """Whether `poll` should be called soon although nothing was printed."""
        return self._fed_s is not None

    def position(self) -> JournalPosition:
        """Behind all whose events were told."""
        return JournalPosition(self._boot_id, self._told)

    def poll(self) -> list[Event | Rejected]:
        """What was printed since; never waits. Starts `journalctl` where none runs."""
        now_s = self._clock.monotonic_s()
        if self._process is None and not self._start(now_s):
            return []
        said: list[Event | Rejected] = []
        self.whole = False
        for _ in range(PIECES_MAX):
            data = self._read()
            if data is None:
                self.whole = True
                break
            if not data:
                self._ended(now_s)
                break
            said += self._take(data)
        if self.whole and self._fed_s is not None and now_s - self._fed_s >= HOLD_S:
            said += self.finish()
        return said

    def finish(self) -> list[Event | Rejected]:
        """What waited for further lines."""
        self._fed_s, self._told = None, self._cursor
        return list(self._events(self._log.finish()))

    def close(self) -> None:
        """End `journalctl`."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdout is not None:
            process.stdout.close()
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self, now_s: float) -> bool:
        if not self._patience.is_over(now_s):
            return False
        words = [self._program, "-k", "-o", "json", "--follow"]
        if self._cursor:
            words.append(f"--after-cursor={self._cursor}")
        else:
            words.append("--lines=1" if self._first else "--no-tail")
        try:
            self._process = subprocess.Popen(  # noqa: S603 - no shell; the words are ours
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, env=dict(ENVIRONMENT), bufsize=0,
            )  # fmt: skip
        except OSError:
            self.failures += 1
            self._patience.failed(now_s)
            return False
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        return True

    def _read(self) -> bytes | None:
        """A piece; empty where journalctl ended, None where it says nothing now."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            return os.read(self._process.stdout.fileno(), PIECE_BYTES)
        except BlockingIOError:
            return None

    def _ended(self, now_s: float) -> None:
        self.failures += 1
        self._patience.failed(now_s)
        self._tail = b""
        self.close()

    def _take(self, data: bytes) -> Iterator[Event | Rejected]:
        whole, newline, tail = (self._tail + data).rpartition(b"\n")
        self._tail = tail[:TAIL_BYTES_MAX]
        if not newline:
            return
        self._patience.worked()
        self._fed_s = self._clock.monotonic_s()
        for found in _CURSOR.finditer(whole):
            self._cursor = found[1].decode("ascii", "replace")
        if self._first:
            self._first = False
            whole = whole.partition(b"\n")[2]
        if whole:
            yield from self._events(self._log.feed(whole + newline))

    def _events(self, said: Iterator[KernelEvent | Rejected]) -> Iterator[Event | Rejected]:
        for one in said:
            if isinstance(one, KernelEvent):
                at_s = one.at_s if one.at_s is not None else self._clock.time_s()
                yield structs.replace(one.event(self._node, at_s), boot_id=self._boot_id)
            else:
                yield one
