"""JSON values in a file: one, one a line, or one after another over many lines. Pure, bounded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

FILE_BYTES_MAX = 256 << 20
VALUES_MAX = 1_000_000
_DECODER = json.JSONDecoder()


def whole(pieces: Iterable[bytes]) -> bytes | None:
    """The bytes of a file, None where it is beyond `FILE_BYTES_MAX`."""
    parts, size = [], 0
    for piece in pieces:
        size += len(piece)
        if size > FILE_BYTES_MAX:
            return None
        parts.append(piece)
    return b"".join(parts)


def values(data: bytes) -> Iterator[tuple[Any, str]]:
    """(value, "") of each JSON value, (None, text) of what is none, to its line's end."""
    try:
        yield msgspec.json.decode(data), ""
        return
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    text, at, count = data.decode("utf-8", "replace"), 0, 0
    while at < len(text) and count < VALUES_MAX:
        if text[at].isspace() or text[at] in ",\x00\ufeff":
            at += 1
            continue
        count += 1
        try:
            value, at = _DECODER.raw_decode(text, at)
            yield value, ""
        except (ValueError, RecursionError):
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            yield None, text[at:end]
            at = end + 1
