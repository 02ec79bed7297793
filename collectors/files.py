"""Bytes of capture files, plain or gzipped, in pieces; what is cut is read to where it is cut."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from telemetry.errors import InputError

PIECE_BYTES = 1 << 20
SNIFF_BYTES = 4_096
_GZIP = b"\x1f\x8b"
_TEXT_CONTROLS = frozenset(b"\t\n\v\f\r\x1b")
_JUNK_SHARE_MAX = 0.2

Progress = Callable[[int], None]


def pieces(path: Path, cut: Callable[[str], None], progress: Progress) -> Iterator[bytes]:
    """The file's bytes, unpacked where it is gzipped.

    cut       told why, once, where a gzipped file ends too early or is damaged
    progress  told how many bytes of the file were read
    raises    InputError where the file cannot be read, or is no text and not gzipped
    """
    source = _plain(path, progress)
    first = next(source, b"")
    if path.suffix == ".gz":
        if first and not first.startswith(_GZIP):
            raise InputError(f"{path}: not gzipped although its name says so; gzip or rename it")
        source = _unzipped(_chain(first, source), cut)
        first = next(source, b"")
    if not looks_like_text(first[:SNIFF_BYTES]):
        raise InputError(f"{path}: this is no text; put the tool's own output there, or remove it")
    return _chain(first, source)


def looks_like_text(data: bytes) -> bool:
    """Whether the bytes are mostly text: logs hold a stray byte now and then."""
    controls = sum(1 for byte in data if byte < 32 and byte not in _TEXT_CONTROLS)
    broken = data.decode("utf-8", "replace").count("\ufffd")
    return controls + broken <= _JUNK_SHARE_MAX * len(data)


def lines(source: Iterator[bytes], line_bytes_max: int) -> Iterator[bytes]:
    """Lines without their ends; of a line beyond the bound only its beginning, a byte too long."""
    tail = b""
    for data in source:
        head, *rest = data.split(b"\n")
        tail = (tail + head)[: line_bytes_max + 1]
        if rest:
            yield tail
            yield from rest[:-1]
            tail = rest[-1]
    if tail:
        yield tail


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _plain(path: Path, progress: Progress) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while data := file.read(PIECE_BYTES):
                progress(len(data))
                yield data
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; check the file and its permissions") from error


def _unzipped(source: Iterator[bytes], cut: Callable[[str], None]) -> Iterator[bytes]:
    """Members one after another, at most a piece at a time however well they are packed."""
    unzip = zlib.decompressobj(wbits=31)
    for packed in source:
        data = packed
        while data:
            if unzip.eof:
                if not data.startswith(_GZIP):
                    return  # padding behind the last member, as tapes leave it
                unzip = zlib.decompressobj(wbits=31)
            try:
                out = unzip.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                cut(f"damaged ({error})")
                return
            data = unzip.unused_data if unzip.eof else unzip.unconsumed_tail
            if out:
                yield out
    if not unzip.eof:
        cut("cut short")
