"""Finds the few lines of a log that can say something, without making lines of the rest.

A block is looked at once, whatever the number of words searched for: each is told by up to seven of
its bytes, a table a byte, and all are looked up together: the first bytes at every place, the
others where the first ones fit. What is found so is a line to look at, not yet a hit;
`worth_reading` is exact.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

WORDS = (
    b"iteration ", b"loss:", b"loss'", b'loss"', b"loss=", b"loss = ", b"loss at ", b"Loss: ",
    b"%|", b":::MLLOG", b"[#step]", b"[#save]", b"[#log]", b"[#evalu", b"[#predi",
    b'"_step"', b"step=", b"; step ", b"OVERFLOW", b"(Perf: ",
    b"[before the start", b"rror:", b"Error", b"ERROR", b"rror code", b"CUDA error", b"xception",
    b"Traceback", b"what():", b"terminate called", b"NCCL WARN", b"atchdog",
    b"ProcessGroupNCCL.cpp", b"NCCL work", b"exitcode", b"CANCELLED", b"oom-kill",
    b"oom_kill", b"oom kill", b" Killed",
    b" Terminated", b" Aborted", b" Segmentation fault", b" Bus error", b'  File "', b"Interrupt",
    b"SystemExit", b"Root Cause", b"entire process down", b"RankID:", b"nexpected pos ",
)  # fmt: skip
"""One of these stands in every line that a form reads, or that the parser keeps in mind."""

# What of the words the tables look for; groups of a few, so that chance hits are rare.
_BYTES = 7
_GROUPS = (
    (b"ration ", b"Traceba", b"Segment", b"RankID:", b"[#step]"),
    (b"loss", b":::MLLO", b"OVERFLO"),
    (b"rror", b"(Perf: ", b"Bus err"),
    (b"%|",),
    (b"Loss: ", b"xceptio", b"ANCELLE", b'File "', b"nexpect", b"Killed"),
    (b"step=", b"[before", b"tchdog "),
    (b'_step"', b"ERROR", b"xitcode", b"Aborted", b"Root Ca", b"oom_kil", b"[#save]", b"[#evalu",
     b"hat():"),
    (b"; step ", b"erminat", b"oom kil", b"L WARN", b"L work", b"entire ", b"[#log]", b"CL.cpp",
     b"SystemE", b"terrupt", b"oom-kil", b"[#predi"),
)  # fmt: skip


def _tables() -> tuple[bytes, ...]:
    """For each of seven places, by the byte that stands there: the groups it may belong to."""
    tables = [bytearray(256) for _ in range(_BYTES)]
    for group, words in enumerate(_GROUPS):
        for word in words:
            for place, table in enumerate(tables):
                at = (word[place],) if place < len(word) else range(256)
                for byte in at:
                    table[byte] |= 1 << group
    return tuple(bytes(table) for table in tables)


_TABLES = _tables()
_ARRAYS = tuple(np.frombuffer(table, dtype=np.uint8) for table in _TABLES)
_DENSE = 4  # bytes that are looked up at every place
PIECE_MIN_BYTES, PIECE_BYTES = 4_096, 65_536
_PAD = b"\n" * _BYTES


def starts(block: bytes) -> Iterator[int]:
    """Where lines that may be worth reading start, ascending, each once."""
    size = len(block)
    padded = block + _PAD
    found = np.frombuffer(padded.translate(_TABLES[0]), dtype=np.uint8)[:size].copy()
    for place in range(1, _DENSE):
        column = np.frombuffer(padded.translate(_TABLES[place]), dtype=np.uint8)
        found &= column[place : size + place]
    hits, said = np.flatnonzero(found), np.frombuffer(padded, dtype=np.uint8)
    for place in range(_DENSE, _BYTES):
        groups = found[hits] & _ARRAYS[place][said[hits + place]]
        found[hits] = groups
        hits = hits[groups != 0]
    if hits.size == 0:
        return iter(())
    ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == 10)
    rows = np.unique(np.searchsorted(ends, hits))
    before = np.concatenate([np.zeros(1, dtype=np.int64), ends + 1])
    return iter(before[rows].tolist())


class Starts:
    """The same of one block, but only of what is asked for: who reads on from line to line, as
    long as he knows their form, spares these the search."""

    def __init__(self, block: bytes) -> None:
        self._block = block
        self._to = 0  # searched up to here
        self._piece = PIECE_MIN_BYTES
        self._found: Iterator[int] = iter(())

    def after(self, position: int) -> int | None:
        """The first at or behind a line's start; `position` never goes back."""
        while True:
            for start in self._found:
                if start >= position:
                    return start
            if position > self._to:  # it went on without a search, and may do so again
                self._to, self._piece = position, PIECE_MIN_BYTES
            begin = self._to
            if begin >= len(self._block):
                return None
            end = self._block.find(b"\n", begin + self._piece) + 1 or len(self._block)
            self._piece = min(2 * self._piece, PIECE_BYTES)
            self._found = (begin + at for at in starts(self._block[begin:end]))
            self._to = end


def worth_reading(line: bytes) -> bool:
    """Whether a line holds one of the words."""
    for word in WORDS:  # noqa: SIM110 - twice as fast as any()
        if word in line:
            return True
    return False
