"""Joins lines that a terminal or an editor has broken, and leaves alone what was not broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from collectors.training import forms
from collectors.training.speakers import Speaker

PIECES_MAX = 5
JOINED_MAX = 8_192
_ENDS_OTHERS = ("Traceback", "time (ms)", "----", "[20")


class Piece(Struct, frozen=True):
    """One line: its speaker, the words after the prefix, its bytes.

    number  of the line in its file, None where it is the one that is just read
    """

    speaker: Speaker
    text: str
    line: bytes
    number: int | None = None


@dataclass(slots=True)
class Wrap:
    """A line that seems to go on, and the lines after it."""

    _held: list[Piece] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._held)

    def join(self, piece: Piece, number: Callable[[], int]) -> Iterator[Piece]:
        """Lines as they were before they were broken; nothing while one is still open.

        number  the number of the line; counted only where the line has to wait
        """
        if not self._held and not _goes_on(piece.text):
            yield piece
            return
        if self._held and not _continues(piece.speaker, piece.text):
            yield from self.flush()
            yield from self.join(piece, number)
            return
        self._held.append(replace(piece, number=number()))
        if len(self._held) == 1:
            return
        whole = "".join(part.text for part in self._held)
        if not _goes_on(whole):
            first = self._held[0]
            self._held = []
            yield replace(first, text=whole)
        elif len(self._held) >= PIECES_MAX or len(whole) > JOINED_MAX:
            yield from self.flush()

    def flush(self) -> Iterator[Piece]:
        """The lines one by one: they did not belong together."""
        held, self._held = self._held, []
        yield from held


def _goes_on(text: str) -> bool:
    """Whether a line ends before it can."""
    if "|" in text and forms.is_step(text):
        return not text.rstrip().endswith("|")
    if "atchdog caught" in text:
        return "WorkNCCL" not in text or " milliseconds" not in text
    if "Timeout at NCCL work" in text:
        return "last completed" not in text
    return "ProcessGroupNCCL.cpp" in text and text.rstrip().endswith("]")


def _continues(speaker: Speaker, text: str) -> bool:
    labelled = speaker.rank is not None or speaker.local_rank is not None
    return not labelled and bool(text.strip()) and not (
        text.lstrip().startswith(_ENDS_OTHERS) or forms.is_step(text)
    )  # fmt: skip
