"""Files that appear: dumps of watchdogs and people, each read once, what grows read on.

A file is read when it was not written to for a moment, or has been waiting for long. Runs in a
thread of its own: such files often lie on network storage.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec
from msgspec import structs

from collectors.agent.counts import Counts
from collectors.agent.dumps import Found, Said, is_inspector, named
from collectors.agent.log_names import LogNames
from collectors.agent.rounds import Reading
from telemetry.ports import Clock

FOUND = "files"
MATCHES_MAX = 10_000  # of one template
FILES_A_LOOK = 32
BYTES_A_LOOK = 8 << 20
FILE_BYTES_MAX = 2 << 20  # JSON takes ten times as much in memory
GROWN_BYTES_MAX = 262_144  # of a file that grows, each look
HEAD_BYTES = 65_536
MARK_BYTES = 256
KNOWN_MAX = 4_096
FRESH_S = 86_400.0
SETTLED_S = 2.0
WAITS_MAX_S = 30.0


class FoundFile(msgspec.Struct, frozen=True):
    """One file as it was when it was looked at, and how far it was read.

    head   checksum of its first bytes: another file may come under its name and number
    """

    device: int
    inode: int
    size: int
    changed_ns: int
    read_to: int = 0
    head: int = 0


class FoundPosition(msgspec.Struct, frozen=True):
    """All files that were read and are still there, by path."""

    files: dict[str, FoundFile]


@dataclass(frozen=True, slots=True)
class Watched:
    """Which files, and what is made of one; `has_job` where the path names its job."""

    names: LogNames
    has_job: bool
    read: Callable[[Found], Said]


class FoundFiles:
    """The files that templates name; `saved` None on the very first start: what is there is old."""

    def __init__(
        self, watched: Sequence[Watched], node: str, boot_id: str, saved: FoundPosition | None,
        counts: Counts, clock: Clock,
    ) -> None:  # fmt: skip
        self._watched, self._node, self._boot_id = watched, node, boot_id
        self._counts, self._clock = counts, clock
        self._history = saved is None
        self._known = dict(saved.files) if saved is not None else {}
        self._waiting: dict[str, float] = {}

    def read(self) -> Reading:
        """One look: what is new, bounded; the rest is for the next."""
        reading = Reading()
        now_s, left, files = self._clock.time_s(), BYTES_A_LOOK, 0
        seen: set[str] = set()
        renamed = {(one.device, one.inode): one for one in self._known.values()}
        for watched, path, status in self._matches(reading):
            if path in seen:
                continue
            seen.add(path)
            other = renamed.get((status.st_dev, status.st_ino))
            if path not in self._known and other is not None and _is_same(other, status):
                self._known[path] = other
            if self._history:
                self._known[path] = _as_it_is(status, status.st_size)
            elif self._is_due(path, status, now_s) and left > 0 and files < FILES_A_LOOK:
                left -= self._take(watched, path, status, now_s, reading)
                files += 1
        self._forget(seen)
        self._history = False
        self._counts.succeeded(FOUND, now_s)
        reading.position = FoundPosition(dict(self._known))
        return reading

    def _matches(self, reading: Reading) -> Iterator[tuple[Watched, str, os.stat_result]]:
        since_s = self._clock.time_s() - FRESH_S
        for watched in self._watched:
            paths = list(islice(watched.names.paths(), MATCHES_MAX))
            for path in paths:
                try:
                    status = os.stat(path)
                except OSError:  # it has just gone
                    continue
                fresh = stat.S_ISREG(status.st_mode) and status.st_mtime >= since_s
                if fresh and watched.names.read(path) is not None:
                    yield watched, path, status
            if len(paths) == MATCHES_MAX:
                self._failed(f"{watched.names.template}: more than {MATCHES_MAX} files", reading)

    def _is_due(self, path: str, status: os.stat_result, now_s: float) -> bool:
        known = self._known.get(path)
        if (known is not None and _is_same(known, status)) or status.st_size == 0:
            self._waiting.pop(path, None)
            return False
        since_s = self._waiting.setdefault(path, now_s)
        # A clock that is set back must not make a file wait for ever.
        settled = abs(now_s - status.st_mtime) >= SETTLED_S
        return settled or now_s - since_s >= WAITS_MAX_S

    def _take(
        self, watched: Watched, path: str, status: os.stat_result, now_s: float, reading: Reading
    ) -> int:
        """Read one file, and say what it says; how many bytes that were."""
        self._waiting.pop(path, None)
        known = self._known.pop(path, None)
        try:
            data, position, whole = _content(path, status, known)
        except OSError as error:
            self._known[path] = _as_it_is(status)
            self._failed(f"{path}: {error.strerror}", reading)
            return 0
        self._known[path] = position
        if not data:
            return 0
        job, rank = named(watched.names, path, watched.has_job)
        at_s = min(status.st_mtime, now_s)
        said = watched.read(Found(path, job, rank, at_s, data, whole))
        if said.event is not None:
            event = structs.replace(said.event, node=self._node, boot_id=self._boot_id)
            reading.records.append(event)
            self._counts.add("events", 1, FOUND)
        self._counts.add("collective_records", said.records)
        self._counts.add("rejected", said.broken, FOUND)
        reading.rejected += said.rejected
        return len(data)

    def _failed(self, sentence: str, reading: Reading) -> None:
        self._counts.add("errors", 1, FOUND)
        reading.notes.append(sentence)

    def _forget(self, seen: set[str]) -> None:
        """Those that are gone; of too many, those that were read first."""
        for path in [path for path in self._known if path not in seen]:
            del self._known[path]
        for path in [path for path in self._waiting if path not in seen]:
            del self._waiting[path]
        for path in list(self._known)[: max(0, len(self._known) - KNOWN_MAX)]:
            del self._known[path]


def _as_it_is(status: os.stat_result, read_to: int = 0, head: int = 0) -> FoundFile:
    return FoundFile(
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, read_to, head
    )  # fmt: skip


def _is_same(known: FoundFile, status: os.stat_result) -> bool:
    return structs.replace(known, read_to=0, head=0) == _as_it_is(status)


def _content(
    path: str, status: os.stat_result, known: FoundFile | None
) -> tuple[bytes, FoundFile, bool]:
    """What is new, the position behind it, and whether nothing was left out.

    Text that grew is read on from where it ended; JSON and pickles are written anew.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        head, size = os.pread(file, HEAD_BYTES, 0), status.st_size
        mark = _mark(head, size)
        lines = is_inspector(head)
        grows = lines or not head.lstrip().startswith((b"{", b"[", b"\x80"))
        start = known.read_to if known is not None and grows and _grew(known, status, head) else 0
        if not lines:
            data = os.pread(file, min(FILE_BYTES_MAX, size - start), start)
            return data, _as_it_is(status, size, mark), start + len(data) >= size
        newest = max(start, size - GROWN_BYTES_MAX)
        data = os.pread(file, size - newest, newest)
    finally:
        os.close(file)
    end = data.rfind(b"\n") + 1
    begin = data.find(b"\n") + 1 if newest > start else 0
    return data[begin:end], _as_it_is(status, newest + end, mark), newest == start


def _grew(known: FoundFile, status: os.stat_result, head: bytes) -> bool:
    same = (known.device, known.inode) == (status.st_dev, status.st_ino)
    return same and known.size < status.st_size and known.head == _mark(head, known.size)


def _mark(head: bytes, size: int) -> int:
    return zlib.crc32(head[: min(MARK_BYTES, size)])
