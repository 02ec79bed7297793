"""The canaries at the end of the findings topic, wherever that is when the watch begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from telemetry.canary import Heard, heard
from telemetry.errors import OffsetGone
from telemetry.ports import LogReader, Place
from telemetry.topics import FINDINGS


class FindingsTail:
    """What the engine says from now on.

    opened   makes the reader, at the first use and after it failed
    shards   partition -> the shard whose findings it holds; others are not read
    """

    def __init__(self, opened: Callable[[], LogReader], shards: Mapping[int, str]) -> None:
        self._opened = opened
        self._shards = dict(shards)
        self._reader: LogReader | None = None
        self._next: dict[Place, int] = {}
        self._placed = False

    def place(self) -> None:
        """Stand where it stopped, at first at the end. Raises SourceUnavailable."""
        if self._placed:
            return
        if self._reader is None:
            self._reader = self._opened()
        places = [(FINDINGS, partition) for partition in self._shards]
        if not self._next:
            bounds = self._reader.bounds(places)
            self._next = {place: end for place, (_, end) in bounds.items()}
        self._reader.assign(self._next)
        self._placed = True

    def poll(self, timeout_s: float) -> Sequence[tuple[str, Heard]]:
        """Shard and canary of what came. Raises SourceUnavailable; the next call goes on."""
        self.place()
        assert self._reader is not None
        self._placed = False  # after an error the reader may stand anywhere
        try:
            lines = self._reader.poll(timeout_s)
        except OffsetGone:
            self._next = {}  # what was said meanwhile is no longer kept: at the end again
            raise
        self._placed = True
        found = []
        for line in lines:
            self._next[line.topic, line.partition] = line.offset + 1
            came = heard(line.value)
            if came is not None and line.partition in self._shards:
                found.append((self._shards[line.partition], came))
        return found

    def close(self) -> None:
        """Leave."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._placed = False
