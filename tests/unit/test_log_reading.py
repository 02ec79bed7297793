"""A topic to its end: every record once, and an end that nobody gets to see does not hold it up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from telemetry.archive_line import ArchiveLine
from telemetry.log_reading import EMPTY_MAX, read_to_end
from telemetry.ports import Place


def line(partition: int, offset: int) -> ArchiveLine:
    return ArchiveLine("t", partition, offset, 0, "LogAppendTime", (), None, b"{}")


class Reader:
    """Holds `lines`; each partition ends at `ends`, which may lie behind its last record."""

    def __init__(self, lines: Sequence[ArchiveLine], ends: Mapping[int, int]) -> None:
        self._lines, self._ends = list(lines), dict(ends)
        self.polls = 0

    def partitions(self, topic: str) -> Sequence[int]:
        return sorted(self._ends) if topic == "t" else []

    def bounds(self, places: Sequence[Place]) -> Mapping[Place, tuple[int, int]]:
        return {place: (0, self._ends[place[1]]) for place in places}

    def assign(self, positions: Mapping[Place, int]) -> None:
        self._lines = [one for one in self._lines if (one.topic, one.partition) in positions]

    def poll(self, timeout_s: float) -> Sequence[ArchiveLine]:
        self.polls += 1
        found, self._lines = self._lines[:2], self._lines[2:]
        return found

    def close(self) -> None:
        """Nothing is open."""


def test_all_partitions_are_read_to_where_they_ended_when_it_began() -> None:
    lines = [line(0, 0), line(1, 0), line(0, 1), line(1, 1), line(0, 2)]
    reader = Reader(lines, {0: 2, 1: 2})
    assert lines[:4] == list(read_to_end(reader, "t"))  # what came since is not of it


def test_one_partition_alone_and_a_topic_that_is_not_there() -> None:
    lines = [line(0, 0), line(1, 0)]
    assert lines[1:] == list(read_to_end(Reader(lines, {0: 1, 1: 1}), "t", 1))
    assert [] == list(read_to_end(Reader(lines, {0: 1}), "else"))


@pytest.mark.parametrize("ends", [{0: 9}, {0: 2, 1: 4}])
def test_an_end_that_is_no_record_is_waited_for_so_often_and_no_more(ends: dict[int, int]) -> None:
    """A transaction's marker, or what compaction took."""
    reader = Reader([line(0, 0), line(0, 1)], ends)
    assert 2 == len(list(read_to_end(reader, "t")))
    assert reader.polls == 1 + EMPTY_MAX
