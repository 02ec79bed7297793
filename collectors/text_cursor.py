"""A file's text, walked line by line, JSON values of any number of lines taken whole. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

BYTES_MAX = 256 * 1024 * 1024
LINE_MAX = 65_536
_WORK_SHARE = 16  # what may be spent on JSON that proves broken, in lengths of the text
_WORK_MIN = 1 << 20
_WINDOW = 4_096  # a value is first sought in so much text, then in 16 times as much
_ERROR_WORK = 256


class BrokenJson(ValueError):
    """What begins here is no JSON; never leaves the parsers."""


class Cursor:
    """Stands at the beginning of a line.

    cut   whether the text was longer than what is read
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        data, size = [], 0
        self.cut = False
        for piece in pieces:
            room = BYTES_MAX - size
            self.cut = self.cut or len(piece) > room
            data.append(piece[:room])
            size += len(data[-1])
        self.text = b"".join(data).decode("utf-8", "replace")
        self.at = 0
        self.number = 1
        self._end = -1
        self._work = _WORK_SHARE * len(self.text) + _WORK_MIN
        self._decoder = json.JSONDecoder(parse_constant=_no_number)

    def __bool__(self) -> bool:
        """Whether there is another line."""
        return self.at < len(self.text)

    @property
    def line(self) -> str:
        """The line without its end, its first 64 kB where it is longer."""
        return self.text[self.at : min(self.end, self.at + LINE_MAX + 1)].rstrip("\r\x00")

    @property
    def end(self) -> int:
        """Where the line ends."""
        if self._end < self.at:
            found = self.text.find("\n", self.at)
            self._end = len(self.text) if found < 0 else found
        return self._end

    @property
    def is_long(self) -> bool:
        """Whether the line is longer than any that is read."""
        return self.end - self.at > LINE_MAX

    def next(self) -> None:
        """To the next line."""
        self.at = self.end + 1
        self.number += 1

    def back(self, at: int, number: int) -> None:
        """To a line where it stood before."""
        self.at, self.number, self._end = at, number, -1

    def json(self) -> Any:
        """The value that begins in this line; the cursor then stands behind it.

        Raises BrokenJson where there is none; the cursor stays. What is spent on broken values is
        bounded: beyond the bound only values of one line are tried.
        """
        start = self.at
        while start < self.end and self.text[start] in " \t,":
            start += 1
        size = _WINDOW
        while True:
            patient = self._work > 0
            window = self.text[start : start + size if patient else self.end]
            try:
                value, length = self._decoder.raw_decode(window)
            except json.JSONDecodeError as error:
                # An error costs what stands before it: Python counts the lines up to there.
                self._work -= error.pos + _ERROR_WORK
                if patient and _is_cut(error, window) and start + size < len(self.text):
                    size *= 16
                    continue
                line = self.number + window.count("\n", 0, error.pos)
                raise BrokenJson(f"{error.msg} in line {line}") from error
            except (ValueError, RecursionError) as error:
                self._work -= len(window)
                deep = isinstance(error, RecursionError)
                raise BrokenJson("nested too deeply" if deep else str(error)) from error
            self.number += window.count("\n", 0, length)
            self.at = start + length
            self._skip_blank()
            return value

    def _skip_blank(self) -> None:
        """What stands behind a value in its line begins a line of its own, unless it is nothing."""
        while self.at < self.end and self.text[self.at] in " \t\r,\x00":
            self.at += 1
        if self.at < len(self.text) and self.text[self.at] == "\n":
            self.at += 1
            self.number += 1


def _is_cut(error: json.JSONDecodeError, window: str) -> bool:
    """Whether the value may only go on behind the window."""
    return error.pos >= len(window) - 64 or error.msg.startswith("Unterminated")


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
