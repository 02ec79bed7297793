"""Topic archives: `<topic>/<partition>/<first offset>.jsonl.zst`, written and read.

The writer ends a zstd frame at each flush, so that a kill at any moment leaves whole frames and a
torn tail. The reader streams with bounded memory, reads a torn file to its last whole frame and
says so; it never raises over what a file holds. Lines are `telemetry.archive_line`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal, Protocol, Self, TypeVar, cast

import msgspec
import zstandard

from telemetry.archive_line import LINE_MAX, ArchiveLine, read_line, write_line
from telemetry.errors import InputError
from telemetry.topics import TELEMETRY
from telemetry.zstd_frames import whole_frames_end

_SUFFIX = ".jsonl.zst"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")  # Kafka's own rule for names
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
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


class ArchiveFile(msgspec.Struct, frozen=True, order=True):
    """One file of an archive; they sort in offset order."""

    topic: str
    partition: int
    first_offset: int

    @property
    def relative(self) -> str:
        """Its path below the archive's directory."""
        return f"{self.topic}/{self.partition}/{self.first_offset}{_SUFFIX}"


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
        assert _TOPIC.fullmatch(topic), topic
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
        self._extent.bytes += len(frame)
        self.written_bytes += len(frame)
        self._pending.clear()
        self._pending_bytes = 0

    def sync(self) -> None:
        """`flush`, and wait until the disk has it."""
        self.flush()
        if self._file is not None:
            os.fsync(self._file.fileno())

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


def file_of(relative: str) -> ArchiveFile | None:
    """The archive file that stands at this path below the archive, None where none does."""
    parts = relative.split("/")
    if len(parts) != 3:
        return None
    topic, number, name = parts
    first = name.removesuffix(_SUFFIX)
    if first == name or not all(_NUMBER.fullmatch(text) for text in (number, first)):
        return None
    return ArchiveFile(topic, int(number), int(first)) if _TOPIC.fullmatch(topic) else None


def is_archive(path: Path) -> bool:
    """Whether `path` is a directory with at least one archive file of any topic in its place."""
    return path.is_dir() and next(_files(path, None, None), None) is not None


def archive_files(
    path: Path, topic: str | None = TELEMETRY, partition: int | None = None
) -> list[ArchiveFile]:
    """The files of a topic (None: of all), by topic, partition and offset.

    Raises InputError where `path` is no directory that can be listed.
    """
    return sorted(_files(path, topic, partition))


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


def _files(path: Path, topic: str | None, partition: int | None) -> Iterator[ArchiveFile]:
    """Regular files in their place; symbolic links below `path` are not followed."""
    for topic_name in _directories(path):
        if not _TOPIC.fullmatch(topic_name) or topic not in (None, topic_name):
            continue
        for number in _directories(path / topic_name):
            if not _NUMBER.fullmatch(number) or partition not in (None, int(number)):
                continue
            for name in _regular_files(path / topic_name / number):
                first = name.removesuffix(_SUFFIX)
                if first != name and _NUMBER.fullmatch(first):
                    yield ArchiveFile(topic_name, int(number), int(first))


def _directories(path: Path) -> list[str]:
    return [entry.name for entry in _entries(path) if entry.is_dir(follow_symlinks=False)]


def _regular_files(path: Path) -> list[str]:
    return [entry.name for entry in _entries(path) if entry.is_file(follow_symlinks=False)]


def _entries(path: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except NotADirectoryError:
        return []
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
