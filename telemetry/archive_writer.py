"""Writes an archive: one partition's records in offset order, rolled by size and time.

A zstd frame ends at each flush, so that a kill at any moment leaves whole frames and a torn tail.
`telemetry.archive_repair` cuts the tail, and the writer goes on in the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal, Self

import msgspec
import zstandard

from telemetry.archive_files import TOPIC_NAME, ArchiveFile
from telemetry.archive_line import LINE_MAX, ArchiveLine, write_line
from telemetry.errors import InputError
from telemetry.topics import TELEMETRY


class Extent(msgspec.Struct, kw_only=True):
    """What one file holds: its whole records and the bytes that they take.

    first_offset, last_offset  None where it holds no record
    first_ms, last_ms          timestamps of its first and last record, as the log gave them
    """

    file: ArchiveFile
    lines: int = 0
    bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    first_ms: int | None = None
    last_ms: int | None = None


Opener = Callable[[Path, Literal["xb", "ab"]], BinaryIO]


def open_file(path: Path, mode: Literal["xb", "ab"]) -> BinaryIO:
    """How files are opened unless a writer is told otherwise."""
    return path.open(mode)


class ArchiveWriter:
    """Appends one partition's records in offset order; a context manager.

    roll_bytes, roll_s  a new file starts beyond so much on disk or so much record time
    flush_bytes         a zstd frame ends at the latest after so much uncompressed text
    on_closed           told what a file holds when it was closed and is on the disk
    opener              opens files; tests let it fail at a certain byte
    Raises InputError where the file exists already: an archive is never written over.
    """

    def __init__(
        self,
        out_dir: Path,
        topic: str = TELEMETRY,
        partition: int = 0,
        *,
        roll_bytes: int = 256 * 1024 * 1024,
        roll_s: float = 86_400.0,
        flush_bytes: int = 256 * 1024,
        on_closed: Callable[[Extent], None] | None = None,
        opener: Opener = open_file,
    ) -> None:
        assert TOPIC_NAME.fullmatch(topic), topic
        assert partition >= 0
        self._out_dir = out_dir
        self._topic = topic
        self._partition = partition
        self._roll_bytes = roll_bytes
        self._roll_ms = roll_s * 1000.0
        self._flush_bytes = flush_bytes
        self._compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
        self._on_closed = on_closed
        self._opener = opener
        self._file: BinaryIO | None = None
        self._extent = Extent(file=ArchiveFile(topic, partition, 0))
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._unsynced = False
        self._last_offset = -1
        self.written_bytes = 0  # of all files together

    @property
    def is_open(self) -> bool:
        """Whether a file is open; one is from the first record on, until it is closed."""
        return self._file is not None

    @property
    def extent(self) -> Extent:
        """What the open file holds, or the last one held; `bytes` is what was flushed."""
        return self._extent

    def resume(self, extent: Extent) -> None:
        """Go on in a file that ends with a whole record (`telemetry.archive_repair`)."""
        assert self._file is None
        self._file = self._opener(self._out_dir / extent.file.relative, "ab")
        self._extent = extent
        self._unsynced = True  # whoever wrote it may not have come to it
        last = extent.last_offset
        self._last_offset = extent.file.first_offset - 1 if last is None else last

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def append(
        self,
        offset: int,
        timestamp_ms: int,
        value: bytes | None,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
        timestamp_type: str = "LogAppendTime",
    ) -> None:
        """Add one record; offsets rise, with gaps where the log has them."""
        assert offset > self._last_offset, (offset, self._last_offset)
        line = write_line(
            ArchiveLine(
                self._topic, self._partition, offset, timestamp_ms, timestamp_type,
                tuple(headers), key, value,
            )
        )  # fmt: skip
        if len(line) > LINE_MAX:
            raise InputError(f"{self._topic}/{self._partition}@{offset}: record over 16 MB")
        if self._file is None or self._is_full(offset, timestamp_ms):
            self._roll(offset)
        self._last_offset = offset
        self._note(offset, timestamp_ms)
        self._pending.append(line)
        self._pending_bytes += len(line)
        if self._pending_bytes >= self._flush_bytes:
            self.flush()

    def flush(self) -> None:
        """Hand everything appended so far to the operating system, as one whole zstd frame."""
        if self._file is None or not self._pending:
            return
        frame = self._compressor.compress(b"".join(self._pending))
        self._file.write(frame)
        self._file.flush()
        self._unsynced = True
        self._extent.bytes += len(frame)
        self.written_bytes += len(frame)
        self._pending.clear()
        self._pending_bytes = 0

    def sync(self) -> None:
        """`flush`, and wait until the disk has it."""
        self.flush()
        if self._file is not None and self._unsynced:
            os.fsync(self._file.fileno())
            self._unsynced = False

    def close(self) -> None:
        """End the file; what was appended is on the disk afterwards."""
        was_open = self.is_open
        self.suspend()
        if was_open and self._on_closed is not None and self._extent.lines:
            self._on_closed(self._extent)

    def suspend(self) -> None:
        """Put everything on the disk and let the file go, for a later `resume`."""
        self.sync()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _is_full(self, offset: int, timestamp_ms: int) -> bool:
        extent = self._extent
        if extent.first_ms is None:  # resumed and empty: right for the offset it is named after
            return offset != extent.file.first_offset
        age_ms = timestamp_ms - extent.first_ms
        return extent.bytes >= self._roll_bytes or age_ms >= self._roll_ms

    def _note(self, offset: int, timestamp_ms: int) -> None:
        extent = self._extent
        if extent.first_offset is None:
            extent.first_offset, extent.first_ms = offset, timestamp_ms
        extent.last_offset, extent.last_ms = offset, timestamp_ms
        extent.lines += 1

    def _roll(self, offset: int) -> None:
        if self._file is not None and self._extent.lines == 0:
            (self._out_dir / self._extent.file.relative).unlink()
        self.close()
        file = ArchiveFile(self._topic, self._partition, offset)
        path = self._out_dir / file.relative
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._file = self._opener(path, "xb")
        except FileExistsError as error:
            raise InputError(f"{path}: exists already; choose an empty directory") from error
        _sync_directory(path.parent)
        self._extent = Extent(file=file)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
