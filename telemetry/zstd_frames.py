"""Where the whole zstd frames of a file end, found without decompressing it.

A reader that knows it never touches the torn tail that a killed writer leaves behind. The layout
is RFC 8878: a frame header, blocks with a 3-byte header each, an optional 4-byte checksum.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import zstandard

MAGIC = b"\x28\xb5\x2f\xfd"
_HEADER_MAX = 18
_RLE, _RESERVED = 1, 3


def whole_frames_end(file: BinaryIO, size: int) -> int:
    """The byte at which the last whole frame among the first `size` bytes ends, 0 without any."""
    end = 0
    for end in frame_ends(file, size):  # noqa: B007 - the last one is wanted
        pass
    return end


def frame_ends(file: BinaryIO, size: int) -> Iterator[int]:
    """Where each whole frame among the first `size` bytes ends, up to the first torn one."""
    end = 0
    while end < size:
        after = _frame_end(file, end, size)
        if after is None:
            return
        yield after
        end = after


def _frame_end(file: BinaryIO, start: int, size: int) -> int | None:
    """The end of the frame that starts at `start`, None where it is torn or none starts there."""
    file.seek(start)
    head = file.read(_HEADER_MAX)
    if _is_skippable(head):
        end = start + 8 + int.from_bytes(head[4:8], "little")
        return end if end <= size else None
    if head[:4] != MAGIC:
        return None
    try:
        parameters = zstandard.get_frame_parameters(head)
        at = start + zstandard.frame_header_size(head)
    except zstandard.ZstdError:
        return None
    last = False
    while not last:
        file.seek(at)
        block = file.read(3)
        if len(block) < 3:
            return None
        word = int.from_bytes(block, "little")
        last, kind, length = bool(word & 1), (word >> 1) & 3, word >> 3
        if kind == _RESERVED:
            return None
        at += 3 + (1 if kind == _RLE else length)
    end = at + (4 if parameters.has_checksum else 0)
    return end if end <= size else None


def _is_skippable(head: bytes) -> bool:
    return len(head) >= 8 and head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50
