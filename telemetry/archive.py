"""Topic archives, read: `<topic>/<partition>/<first offset>.jsonl.zst`.

The reader streams with bounded memory, reads a torn file to its last whole frame and says so; it
never raises over what a file holds. Lines are `telemetry.archive_line`, files
`telemetry.archive_files`, and `telemetry.archive_writer` writes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar, cast

import msgspec
import zstandard

from telemetry.archive_files import ArchiveFile, archive_files, file_of, is_archive
from telemetry.archive_line import LINE_MAX, ArchiveLine, read_line
from telemetry.archive_writer import ArchiveWriter, Extent, Opener, open_file
from telemetry.topics import TELEMETRY
from telemetry.zstd_frames import whole_frames_end

__all__ = [
    "ArchiveFile", "ArchiveWriter", "Extent", "Opener", "Torn", "archive_files", "file_of",
    "is_archive", "open_file", "read_archive", "read_archive_file", "scan",
]  # fmt: skip

_CHUNK = 1024 * 1024
_WINDOW_MAX = 128 * 1024 * 1024  # what `zstd --long` writes; more needs memory that we refuse


class Placed(Protocol):
    """Anything that knows where in the log it stood."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


Line = TypeVar("Line", bound=Placed)


class Torn(msgspec.Struct, frozen=True):
    """A part of an archive that could not be read; what stands around it was.

    path    the file, relative to the archive
    offset  the last record read of that file before the damage, None where there is none
    """

    path: str
    reason: str
    offset: int | None = None


def read_archive(
    path: Path, topic: str = TELEMETRY, partition: int | None = None, from_offset: int = 0
) -> Iterator[ArchiveLine | Torn]:
    """The records of one topic from `from_offset` on, file by file in offset order.

    Damage is a `Torn` at its place. Gaps and repeats of offsets are left to the caller to see.
    Raises InputError where `path` is no directory that can be listed.
    """
    return scan(path, topic, partition, from_offset, read_line)


def scan(
    path: Path,
    topic: str,
    partition: int | None,
    from_offset: int,
    parse: Callable[[bytes], Line | str],
) -> Iterator[Line | Torn]:
    """`read_archive` with a parser of the caller's: a line, or the reason why it is none."""
    files = archive_files(path, topic, partition)
    for file, following in zip_longest(files, files[1:]):
        if _ends_before(following, file, from_offset):
            continue
        for found in _read_file(path, file, parse):
            if isinstance(found, Torn) or found.offset >= from_offset:
                yield found


def read_archive_file(path: Path, file: ArchiveFile) -> Iterator[ArchiveLine | Torn]:
    """One file of the archive in `path`."""
    return _read_file(path, file, read_line)


def _read_file(
    path: Path, file: ArchiveFile, parse: Callable[[bytes], Line | str]
) -> Iterator[Line | Torn]:
    try:
        with (path / file.relative).open("rb") as stream:
            yield from _read_stream(stream, file, parse)
    except OSError as error:
        yield Torn(file.relative, error.strerror or str(error))


def _ends_before(following: ArchiveFile | None, file: ArchiveFile, offset: int) -> bool:
    if following is None or following.partition != file.partition:
        return False
    return following.first_offset <= offset


def _read_stream(
    stream: BinaryIO, file: ArchiveFile, parse: Callable[[bytes], Line | str]
) -> Iterator[Line | Torn]:
    size = os.fstat(stream.fileno()).st_size
    whole = whole_frames_end(stream, size)
    stream.seek(0)
    offset: int | None = None
    for data in _lines(cast(BinaryIO, _Bounded(stream, whole))):
        found = data if isinstance(data, str) else parse(data)
        if isinstance(found, str):
            yield Torn(file.relative, found, offset)
        elif found.topic != file.topic or found.partition != file.partition:
            yield Torn(file.relative, f"holds a line of {found.topic}/{found.partition}", offset)
        else:
            offset = found.offset
            yield found
    if whole < size:
        yield Torn(file.relative, f"torn tail of {size - whole} bytes", offset)


def _lines(source: BinaryIO) -> Iterator[bytes | str]:
    """The lines of the decompressed text; a string is the reason why one could not be read."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_MAX)
    rest, skipping = b"", False
    with decompressor.stream_reader(source, read_across_frames=True, closefd=False) as text:
        while True:
            try:
                chunk = text.read(_CHUNK)
            except (zstandard.ZstdError, MemoryError) as error:
                yield f"damaged: {error}"
                return
            if not chunk:
                break
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            if skipping and lines:
                del lines[0]
                skipping = False
            yield from lines
            if skipping:
                rest = b""
            elif len(rest) > LINE_MAX:
                rest, skipping = b"", True
                yield "line over 16 MB"
    if rest:
        yield rest


class _Bounded:
    """The first `size` bytes of a file, for a reader that must not see more."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = size

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._file.read(wanted)
        self._left -= len(data)
        return data
