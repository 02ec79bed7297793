"""Kernel logs in all forms in which tools print them, into events. Pure.

An ordinary line is never looked at by itself: the markers of all wordings are searched in a whole
piece of the file, and only lines that hold one are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any

import msgspec

from collectors.kernel.envelopes import open_line
from collectors.kernel.events import KernelEvent, read_pci
from collectors.kernel.forms import SEARCHED, SEARCHED_PLAIN, may_say, said_by
from collectors.kernel.story import Story
from collectors.kernel.times import MONTH_AT_START, Clock
from telemetry.codec import rejected
from telemetry.records import Event, Rejected

__all__ = ["KernelEvent", "KernelLog", "objects", "read_line", "read_pci", "records"]

LINE_BYTES_MAX = 65_536
SNIFF_BYTES = 4_096
HEADING_LINES = 20
NO_DATE = "no date"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(slots=True)
class KernelLog:
    """One log, fed in pieces of any size.

    name   for the places of what is rejected: "kernel/n1.log"
    clock  what is known of its times
    """

    name: str
    clock: Clock = field(default_factory=Clock)
    _story: Story = field(default_factory=Story)
    _tail: bytes = b""
    _lines: int = 0
    _month: bytes = b""
    _yearless: bool | None = None  # None: not seen yet

    def feed(self, data: bytes) -> Iterator[KernelEvent | Rejected]:
        """What the lines that are whole now say."""
        if self._lines == 0 and not self._tail and data.startswith(_UTF16):
            yield rejected("UTF-16 text; convert it to UTF-8", data[:64], f"{self.name}:1")
        whole, newline, tail = data.rpartition(b"\n")
        if not newline:
            self._tail = (self._tail + tail)[: LINE_BYTES_MAX + 1]
            return
        head, more, rest = whole.partition(b"\n")
        yield from self._piece((self._tail + head)[: LINE_BYTES_MAX + 1] + more + rest)
        self._tail = tail[: LINE_BYTES_MAX + 1]

    def finish(self) -> Iterator[KernelEvent | Rejected]:
        """What a last line without its end says, and what waits for further lines."""
        if self._tail:
            yield from self._piece(self._tail)
            self._tail = b""
        yield from self._story.finish()

    def _piece(self, piece: bytes) -> Iterator[KernelEvent | Rejected]:
        """Whole lines, the last without its end."""
        done, before = 0, self._lines
        for start, end, words in _marked(piece):
            self._lines += piece.count(b"\n", done, start)
            self._watch_months(piece, done, start)
            done = start
            yield from self._line(piece[start:end], words, self._lines + 1)
        self._watch_months(piece, done, len(piece))
        self._lines = before + piece.count(b"\n") + 1

    def _watch_months(self, piece: bytes, start: int, end: int) -> None:
        """The year of a yearless log goes on also where only ordinary lines stand."""
        if self._yearless is None:  # journalctl puts a heading first
            if MONTH_AT_START.search(piece, 0, SNIFF_BYTES) is not None:
                self._yearless = True
            elif self._lines > HEADING_LINES:
                self._yearless = False
        if not self._yearless or self._all_of_one_month(piece, start, end):
            return
        for found in MONTH_AT_START.finditer(piece, start, end):
            if found[1] != self._month:
                self._month = found[1]
                stop = piece.find(b"\n", found.start())
                open_line(piece[found.start() : stop if stop >= 0 else None][:256], 0, self.clock)

    def _all_of_one_month(self, piece: bytes, start: int, end: int) -> bool:
        """Two counts answer it for most of a log."""
        if self._month == b"" or not piece.startswith(self._month, start):
            return False
        sign = b"\n" + self._month + b" "
        return piece.count(b"\n", start, end) == piece.count(sign, start, end + len(sign) - 1)

    def _line(
        self, data: bytes, words: list[bytes], number: int
    ) -> Iterator[KernelEvent | Rejected]:
        place = f"{self.name}:{number}"
        if len(data) > LINE_BYTES_MAX:
            yield rejected("line too long", data, place)
            return
        if not may_say(data, words):
            return
        line = open_line(data, number, self.clock)
        said = said_by(line)
        if isinstance(said, str):
            yield rejected(said, data, place, line.at_s)
        elif said is not None:
            yield from self._story.hear(said, line)


def _marked(piece: bytes) -> list[tuple[int, int, list[bytes]]]:
    """Start and end of each line that holds a word which is searched for, and the words."""
    lower = piece.lower()
    words: dict[int, list[bytes]] = {}
    for word in SEARCHED if lower.startswith(b"{") or b"\n{" in lower else SEARCHED_PLAIN:
        at = lower.find(word)
        while at >= 0:
            words.setdefault(lower.rfind(b"\n", 0, at) + 1, []).append(word)
            end = lower.find(b"\n", at)
            at = lower.find(word, end) if end >= 0 else -1
    spans: list[tuple[int, int, list[bytes]]] = []
    for start in sorted(words):
        end = piece.find(b"\n", start)
        spans.append((start, end if end >= 0 else len(piece), words[start]))
    return spans


def read_line(line: bytes, place: str, tz: tzinfo = UTC) -> KernelEvent | Rejected | None:
    """What one line says by itself; None for an ordinary one, a `Rejected` for a broken one."""
    said = next(_all(KernelLog(place, Clock(tz=tz)), [line]), None)
    return msgspec.structs.replace(said, place=place) if isinstance(said, Rejected) else said


def records(
    log: KernelLog, pieces: Iterable[bytes], node: str
) -> Iterator[Event | Rejected]:  # fmt: skip
    """A whole log of one node."""
    for said in _all(log, pieces):
        if isinstance(said, KernelEvent):
            yield _placed(said, f"{log.name}:{said.line}", node)
        else:
            yield said


def _placed(said: KernelEvent, place: str, node: str) -> Event | Rejected:
    if said.at_s is None:
        return rejected(NO_DATE, said.text.encode(), place)
    return said.event(node, said.at_s)


def _all(log: KernelLog, pieces: Iterable[bytes]) -> Iterator[KernelEvent | Rejected]:
    for piece in pieces:
        yield from log.feed(piece)
    yield from log.finish()


def objects(
    file: str, pieces: Iterable[bytes], tz: tzinfo = UTC
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """`nodewarden parse kernel`: one object an event, or a rejected line."""
    for said in _all(KernelLog(file, Clock(tz=tz)), pieces):
        if isinstance(said, KernelEvent):
            yield said.as_object(file)
        else:
            yield {
                "file": file, "type": "rejected", "reason": said.reason, "text": said.text,
            }  # fmt: skip
