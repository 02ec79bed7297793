"""What a killed writer left of a file: cut to its last whole record, so that one may go on in it.

The begin of a frame is cut away; nobody could ever read it. Where more is broken (a frame that does
not decompress, others behind it, as a power cut leaves), the rest is kept beside the file as
`<name>.damaged` before it is cut.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import msgspec
import zstandard

from telemetry.archive import ArchiveFile, Extent
from telemetry.archive_line import LINE_MAX, ArchiveLine, read_line
from telemetry.errors import InputError
from telemetry.zstd_frames import MAGIC, frame_ends, whole_frames_end

_CHUNK = 1024 * 1024
_WINDOW_MAX = 128 * 1024 * 1024


class Repaired(msgspec.Struct, frozen=True):
    """A file after its repair.

    cut_bytes  how much was cut off its end
    damaged    where what was cut is kept, None where it was a torn tail
    """

    extent: Extent
    cut_bytes: int = 0
    damaged: Path | None = None


def examine(path: Path, file: ArchiveFile) -> Extent:
    """What one file of the archive in `path` holds, up to its first torn or broken frame.

    Decompresses everything, checksums included. Raises InputError where its last whole line is no
    record of its place, OSError where it cannot be read.
    """
    extent = Extent(file=file)
    with (path / file.relative).open("rb") as stream:
        start = 0
        for end in frame_ends(stream, os.fstat(stream.fileno()).st_size):
            lines = _frame_lines(stream, start, end)
            if lines is None:
                break
            if lines.count:
                _note(extent, lines)
            extent.bytes = start = end
    return extent


def repair(path: Path, file: ArchiveFile) -> Repaired:
    """Cut the file after its last whole record, and say what it holds then.

    Raises as `examine` does, OSError where the file cannot be written.
    """
    extent = examine(path, file)
    place = path / file.relative
    with place.open("r+b") as stream:
        size = os.fstat(stream.fileno()).st_size
        if extent.bytes == size:
            return Repaired(extent)
        damaged = None
        if not _is_begun_frame(stream, extent.bytes, size):
            damaged = place.with_name(f"{place.name}.damaged")
            _keep(stream, extent.bytes, damaged)
        stream.truncate(extent.bytes)
        os.fsync(stream.fileno())
    return Repaired(extent, size - extent.bytes, damaged)


class _Lines(msgspec.Struct):
    """First and last line of a frame, and how many there are."""

    count: int = 0
    first: bytes = b""
    last: bytes = b""


def _frame_lines(stream: BinaryIO, start: int, end: int) -> _Lines | None:
    """None where the frame does not decompress or does not end with a whole line."""
    stream.seek(start)
    found, rest = _Lines(), b""
    try:
        for chunk in _decompressed(stream.read(end - start)):
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            if lines:
                found.first = found.first or lines[0]
                found.last = lines[-1]
                found.count += len(lines)
            if len(rest) > LINE_MAX:
                return None
    except (zstandard.ZstdError, MemoryError):
        return None
    return None if rest else found


def _decompressed(frame: bytes) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_MAX)
    with decompressor.stream_reader(BytesIO(frame)) as text:
        while chunk := text.read(_CHUNK):
            yield chunk


def _note(extent: Extent, lines: _Lines) -> None:
    last = _record(extent.file, lines.last)
    if extent.first_offset is None:
        first = _record(extent.file, lines.first)
        extent.first_offset, extent.first_ms = first.offset, first.timestamp_ms
    extent.last_offset, extent.last_ms = last.offset, last.timestamp_ms
    extent.lines += lines.count


def _record(file: ArchiveFile, line: bytes) -> ArchiveLine:
    found = read_line(line)
    if isinstance(found, str):
        raise InputError(f"{file.relative}: a whole line is no record ({found}); move it away")
    if (found.topic, found.partition) != (file.topic, file.partition):
        at = f"{found.topic}/{found.partition}"
        raise InputError(f"{file.relative}: holds a record of {at}; move it away")
    return found


def _is_begun_frame(stream: BinaryIO, start: int, size: int) -> bool:
    """Whether the tail is what a kill leaves: the begin of one frame and nothing behind it."""
    if size - start > 2 * LINE_MAX:
        return False
    stream.seek(start)
    tail = stream.read(size - start)
    begun = MAGIC.startswith(tail[: len(MAGIC)])
    return begun and MAGIC not in tail[1:] and whole_frames_end(BytesIO(tail), len(tail)) == 0


def _keep(stream: BinaryIO, start: int, target: Path) -> None:
    stream.seek(start)
    with target.open("wb") as copy:
        shutil.copyfileobj(stream, copy, _CHUNK)
        copy.flush()
        os.fsync(copy.fileno())
