"""Reads files as they grow: through rotation, truncation and copies, from where it stopped before.

Handed out are whole lines only (a progress bar's lines end in a carriage return). A position is the
start of the first line that was not handed out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

PIECE_BYTES = 262_144
POLL_BYTES_MAX = 4 << 20  # of all files together
BACKLOG_BYTES_MAX = 16 << 20  # of a file that was never read; what is older is left out
LINE_BYTES_MAX = 1 << 20  # longer ones are handed out in parts
HEAD_BYTES = 256
FILES_MAX = 256
KEPT_MAX = 2_048


class FilePosition(msgspec.Struct, frozen=True):
    """How far a file was read; a file is known by device, number and its first bytes (hex)."""

    device: int
    inode: int
    offset: int
    head: str = ""


class TailPosition(msgspec.Struct, frozen=True):
    """Of all files that were read, by path."""

    files: dict[str, FilePosition]


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole lines of one file.

    restarted   the file is another than before, or was emptied: what was pending is over
    """

    path: str
    data: bytes
    restarted: bool = False


@dataclass(slots=True)
class _Open:
    file: int
    device: int
    inode: int
    offset: int
    head: bytes
    restarted: bool = False

    def position(self) -> FilePosition:
        return FilePosition(self.device, self.inode, self.offset, self.head.hex())


@dataclass(slots=True)
class Counts:
    """What was not read as it should be."""

    left_out_bytes: int = 0
    rotated: int = 0
    truncated: int = 0
    unreadable: int = 0
    too_many: int = 0
    errors: list[str] = field(default_factory=list)


class Tails:
    """All files that `find` names, newest first.

    find    paths to read, as they are now
    saved   positions of an agent before us; None on the very first start, when what files hold
            already is history
    """

    def __init__(self, find: Callable[[], list[Path]], saved: TailPosition | None) -> None:
        self._find = find
        self._history = saved is None
        kept = dict(saved.files) if saved is not None else {}
        self._kept = {(one.device, one.inode): one for one in kept.values()}
        self._open: dict[str, _Open] = {}
        self.counts = Counts()

    def look(self) -> list[str]:
        """Open the files that are new to us and close those that are gone; their paths."""
        paths = self._find()
        self.counts.too_many = max(0, len(paths) - FILES_MAX)
        wanted = {str(path): path for path in paths[:FILES_MAX]}
        gone = [path for path in self._open if path not in wanted]
        for path in gone:
            self._close(path)
        for name in (*wanted, *wanted):  # a second time: the first may have moved one away
            if name not in self._open:
                self._begin(name)
        self._history = False
        return gone

    def poll(self) -> Iterator[Piece]:
        """Lines that were written since; a bounded piece of each file."""
        left = POLL_BYTES_MAX
        for path in list(self._open):
            if left <= 0:
                return
            for piece in self._grown(path):
                left -= len(piece.data)
                yield piece
        # Whoever was not reached is first the next time.
        first = next(iter(self._open), None)
        if first is not None:
            self._open[first] = self._open.pop(first)

    def position(self) -> TailPosition:
        """Behind everything that was handed out."""
        files = {path: one.position() for path, one in self._open.items()}
        for number, kept in enumerate(self._kept.values()):
            if len(files) >= KEPT_MAX:
                break
            files.setdefault(f"closed:{number}", kept)
        return TailPosition(files)

    def close(self) -> None:
        """Give the files back."""
        for path in list(self._open):
            self._close(path)

    def _begin(self, path: str, offset: int | None = None) -> None:
        try:
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self._failed(path, error)
            return
        seen = os.fstat(file)
        if not stat.S_ISREG(seen.st_mode):
            os.close(file)
            return
        other = self._same(seen)
        if other is not None:
            os.close(file)
            if not _is_there(other, seen):  # renamed: it goes on under its new name
                self._open[path] = self._open.pop(other)
            return
        kept = self._kept.pop((seen.st_dev, seen.st_ino), None)
        head = os.pread(file, HEAD_BYTES, 0)
        if offset is None:
            offset = self._start(file, kept, head, seen.st_size)
        self._open[path] = _Open(file, seen.st_dev, seen.st_ino, offset, head)

    def _same(self, seen: os.stat_result) -> str | None:
        """Under which path the file is open already."""
        here = (seen.st_dev, seen.st_ino)
        return next((p for p, one in self._open.items() if (one.device, one.inode) == here), None)

    def _start(self, file: int, kept: FilePosition | None, head: bytes, size: int) -> int:
        if kept is not None and kept.offset <= size and head.hex().startswith(kept.head):
            return kept.offset
        if self._history and kept is None:
            return size
        if size <= BACKLOG_BYTES_MAX:
            return 0
        start = size - BACKLOG_BYTES_MAX
        start += os.pread(file, PIECE_BYTES, start).find(b"\n") + 1
        self.counts.left_out_bytes += start
        return start

    def _grown(self, path: str) -> Iterator[Piece]:
        one = self._open[path]
        seen: os.stat_result | None
        try:
            seen = os.stat(path)
        except OSError:
            seen = None  # moved away, and nothing in its place yet
        same = seen is not None and (seen.st_dev, seen.st_ino) == (one.device, one.inode)
        if same and seen is not None and self._was_emptied(one, seen.st_size):
            self.counts.truncated += 1
            one.offset, one.restarted = 0, True
            one.head = os.pread(one.file, HEAD_BYTES, 0)
        # Who rotates may put an empty file there long before the writer turns to it.
        turned = not same and seen is not None and seen.st_size > 0
        data = self._read(one, path, last=turned)
        if data:
            yield Piece(path, data, one.restarted)
            one.restarted = False
        elif turned:  # and the old file is read to its end
            self.counts.rotated += 1
            os.close(one.file)
            del self._open[path]
            self._begin(path, offset=0)
            if path in self._open:
                self._open[path].restarted = True

    def _was_emptied(self, one: _Open, size: int) -> bool:
        """Shorter than it was, or its beginning is another: it was copied away and written anew."""
        if size < one.offset:
            return True
        if size == one.offset and len(one.head) == min(HEAD_BYTES, size):
            return False
        head = os.pread(one.file, HEAD_BYTES, 0)
        if not head.startswith(one.head):
            return True
        one.head = head
        return False

    def _read(self, one: _Open, path: str, *, last: bool) -> bytes:
        """Whole lines from the position on; of a file that has ended also what has no end."""
        try:
            data = os.pread(one.file, PIECE_BYTES, one.offset)
        except OSError as error:
            self._failed(path, error)
            return b""
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if cut == 0 and (len(data) == PIECE_BYTES or last):
            cut = len(data)
        one.offset += cut
        return data[:cut]

    def _close(self, path: str) -> None:
        one = self._open.pop(path)
        self._kept[one.device, one.inode] = one.position()
        while len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        os.close(one.file)

    def _failed(self, path: str, error: OSError) -> None:
        self.counts.unreadable += 1
        if len(self.counts.errors) < FILES_MAX:
            self.counts.errors.append(f"{path}: {error.strerror}")


def _is_there(path: str, seen: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), seen)
    except OSError:
        return False
