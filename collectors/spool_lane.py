"""One lane of the disk spool: entries in segment files, appended, read and forgotten in order.

An entry is its head (length, CRC-32, order), the length of its kind, the kind, the payload. What a
killed writer left half written at a segment's end is cut off when the lane is opened.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

_HEAD = struct.Struct("<IIQ")
_KIND_MAX = 255
ENTRY_BYTES_MAX = 64 * 1024 * 1024


class Entry(msgspec.Struct, frozen=True):
    """One record that waits on disk.

    order   rises over all lanes of a spool, never used twice
    kind    what drops are counted by
    """

    order: int
    kind: str
    payload: bytes


class _Segment(msgspec.Struct):
    path: Path
    last: int  # the highest order in it, 0 while it is empty
    size_bytes: int


class Lane:
    """Files `<first order>.<name>` in one directory.

    torn_bytes  what was cut off when it was opened
    is_dirty    something appended may not have reached the disk yet
    """

    def __init__(self, directory: Path, name: str, segment_bytes: int) -> None:
        self._directory = directory
        self._name = name
        self._segment_bytes = segment_bytes
        self.torn_bytes = 0
        self._segments = [self._whole(path) for path in sorted(directory.glob(f"[0-9]*.{name}"))]
        self._writer: BinaryIO | None = None
        self.is_dirty = False
        self._reader: BinaryIO | None = None
        self._reading: _Segment | None = None
        self._next: Entry | None = None

    @property
    def size_bytes(self) -> int:
        """All segments together."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def last(self) -> int:
        """The highest order in it, 0 without any."""
        return max((segment.last for segment in self._segments), default=0)

    def append(self, entry: Entry) -> None:
        """Write it behind the others. Raises OSError and then has written nothing."""
        data = encoded(entry)
        segment = self._segments[-1] if self._segments else None
        if segment is None or segment.size_bytes >= self._segment_bytes:
            segment = self._new_segment(entry.order)
        if self._writer is None:
            self._writer = open(segment.path, "ab", buffering=0)  # noqa: SIM115 - kept open
        try:
            written = self._writer.write(data)
            if written != len(data):
                raise OSError(f"{segment.path}: {written} of {len(data)} bytes written")
        except OSError:
            os.truncate(segment.path, segment.size_bytes)
            raise
        self.is_dirty = True
        segment.size_bytes += len(data)
        segment.last = entry.order

    def peek(self) -> Entry | None:
        """The next entry that was not read, None at the end."""
        while self._next is None:
            if self._reader is None and not self._open_next():
                return None
            assert self._reader is not None
            self._next = read_entry(self._reader)
            if self._next is None:
                if self._reading is self._segments[-1]:
                    return None
                self._close_reader()
        return self._next

    def advance(self) -> None:
        """Past what `peek` gave."""
        self._next = None

    def rewind(self) -> None:
        """Read again from the oldest entry kept."""
        self._close_reader()
        self._reading = None
        self._next = None

    def skip(self) -> None:
        """Read on behind the newest entry."""
        self.rewind()
        if self._segments:
            self._reading = self._segments[-1]
            self._reader = open(self._reading.path, "rb")  # noqa: SIM115 - kept open
            self._reader.seek(self._reading.size_bytes)

    def forget(self, order: int) -> None:
        """Remove the segments that hold nothing after `order`."""
        while self._segments and self._segments[0].last <= order:
            self._remove_oldest()

    def drop_oldest(self, acked: int) -> Counter[str]:
        """Remove the oldest segment; its entries after `acked`, by kind."""
        lost: Counter[str] = Counter()
        with open(self._segments[0].path, "rb") as file:
            lost.update(entry.kind for entry in entries(file) if entry.order > acked)
        self._remove_oldest()
        return lost

    def sync(self) -> None:
        """Return when what was appended has reached the disk."""
        if self.is_dirty and self._writer is not None:
            os.fsync(self._writer.fileno())
        self.is_dirty = False

    def close(self) -> None:
        """Leave the files as they are."""
        self._close_reader()
        self._close_writer()

    def __bool__(self) -> bool:
        return bool(self._segments)

    def _new_segment(self, first: int) -> _Segment:
        self.sync()
        self._close_writer()
        path = self._directory / f"{first:020d}.{self._name}"
        path.touch()
        segment = _Segment(path, 0, 0)
        self._segments.append(segment)
        return segment

    def _remove_oldest(self) -> None:
        segment = self._segments.pop(0)
        if segment is self._reading:
            self.rewind()
        if not self._segments:
            self._close_writer()
        segment.path.unlink(missing_ok=True)

    def _open_next(self) -> bool:
        """Open the segment after the one read last; False where there is none."""
        after = 0 if self._reading is None else self._segments.index(self._reading) + 1
        if after >= len(self._segments):
            return False
        self._reading = self._segments[after]
        self._reader = open(self._reading.path, "rb")  # noqa: SIM115 - kept open
        return True

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self.is_dirty = False

    def _whole(self, path: Path) -> _Segment:
        """The segment of a file, its torn tail cut off."""
        size_bytes, last = 0, 0
        with open(path, "rb") as file:
            for entry in entries(file):
                size_bytes, last = file.tell(), entry.order
        torn = path.stat().st_size - size_bytes
        if torn:
            self.torn_bytes += torn
            os.truncate(path, size_bytes)
        return _Segment(path, last, size_bytes)


def encoded(entry: Entry) -> bytes:
    """The entry as it stands in a segment."""
    kind = entry.kind.encode()
    assert len(kind) <= _KIND_MAX, entry.kind
    rest = bytes([len(kind)]) + kind + entry.payload
    crc = zlib.crc32(rest, entry.order & 0xFFFF_FFFF)
    return _HEAD.pack(len(rest), crc, entry.order) + rest


def entries(file: BinaryIO) -> Iterator[Entry]:
    """The whole entries from where `file` stands; it ends at the first that is torn."""
    while (entry := read_entry(file)) is not None:
        yield entry


def read_entry(file: BinaryIO) -> Entry | None:
    """The entry where `file` stands; None, and not moved, where no whole one does."""
    start = file.tell()
    entry = _decoded(file)
    if entry is None:
        file.seek(start)
    return entry


def _decoded(file: BinaryIO) -> Entry | None:
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    length, crc, order = _HEAD.unpack(head)
    if not 0 < length <= ENTRY_BYTES_MAX or order == 0:
        return None
    rest = file.read(length)
    if len(rest) < length or zlib.crc32(rest, order & 0xFFFF_FFFF) != crc:
        return None
    kind_end = 1 + rest[0]
    return Entry(order, rest[1:kind_end].decode("utf-8", "replace"), rest[kind_end:])
