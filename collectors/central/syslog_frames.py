"""Bytes of a syslog connection into messages: octet counting and lines, also mixed. Pure.

RFC 6587: a message that begins with a number, a blank and "<" is counted, else it ends with a line
break. Hostile input costs its length once and never more memory than one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

COUNT_DIGITS = 7
_COUNT = re.compile(rb"([1-9][0-9]{0,6}) <")
_MAYBE_COUNT = re.compile(rb"[1-9][0-9]{0,6}(?: |$)")


class Frames:
    """Of one connection.

    line_max   bytes; of a longer message nothing is kept
    overlong   messages that were longer
    """

    __slots__ = ("_buffer", "_line_max", "_skip", "_skip_line", "overlong")

    def __init__(self, line_max: int) -> None:
        self._line_max = line_max
        self._buffer = b""
        self._skip = 0  # bytes of a counted message that is too long
        self._skip_line = False
        self.overlong = 0

    @property
    def size(self) -> int:
        """Bytes that wait for the rest of their message."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The messages that are whole now, without line breaks at their end."""
        data = self._buffer + data if self._buffer else data
        at = 0
        while at < len(data):
            if self._skip:
                step = min(self._skip, len(data) - at)
                self._skip -= step
                at += step
                continue
            found = None if self._skip_line else _COUNT.match(data, at)
            taken = self._counted(found, data) if found is not None else self._line(data, at)
            if taken is None:
                break
            message, at = taken
            if message:
                yield message
        self._buffer = data[at:]
        self._give_up()

    def finish(self) -> bytes:
        """The last line where its end never came."""
        rest, self._buffer = self._buffer, b""
        return b"" if self._skip_line or _MAYBE_COUNT.match(rest) else rest.rstrip(b"\r\n\0")

    def _counted(self, found: re.Match[bytes], data: bytes) -> tuple[bytes, int] | None:
        size, start = int(found[1]), found.end() - 1
        if size > self._line_max:
            self.overlong += 1
            self._skip = size
            return b"", start
        if len(data) - start < size:
            return None
        return data[start : start + size].rstrip(b"\r\n\0"), start + size

    def _line(self, data: bytes, at: int) -> tuple[bytes, int] | None:
        end = data.find(b"\n", at)
        if end < 0:
            return None
        if self._skip_line:
            self._skip_line = False
            return b"", end + 1
        if end - at > self._line_max:
            self.overlong += 1
            return b"", end + 1
        return data[at:end].rstrip(b"\r\0"), end + 1

    def _give_up(self) -> None:
        """A line without an end is not waited for beyond its bound."""
        if self._skip_line:
            self._buffer = b""
        elif len(self._buffer) > self._line_max + COUNT_DIGITS + 1:
            self.overlong += 1
            self._buffer, self._skip_line = b"", True
