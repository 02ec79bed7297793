"""A topic to its end: every record once, and an end that nobody gets to see does not hold it up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from telemetry.archive_line import ArchiveLine
from telemetry.errors import SourceUnavailable
from telemetry.log_reading import EMPTY_MAX, read_piece, read_to_end, read_whole_piece
from telemetry.ports import Place


def line(partition: int, offset: int) -> ArchiveLine:
    return ArchiveLine("t", partition, offset, 0, "LogAppendTime", (), None, b"{}")


class Reader:
    """Holds `lines`; each partition ends at `ends`, which may lie behind its last record.

    marked  what lies behind it is left behind once everything else was given, as Kafka does
    """

    def __init__(
        self, lines: Sequence[ArchiveLine], ends: Mapping[int, int], *, marked: bool = False
    ) -> None:
        self._lines, self._ends, self._marked = list(lines), dict(ends), marked
        self._positions: dict[Place, int] = {}
        self.polls = 0
        self.away = False

    def partitions(self, topic: str) -> Sequence[int]:
        return sorted(self._ends) if topic == "t" else []

    def bounds(self, places: Sequence[Place]) -> Mapping[Place, tuple[int, int]]:
        if self.away:
            raise SourceUnavailable("no broker")
        return {place: (0, self._ends[place[1]]) for place in places}

    def assign(self, positions: Mapping[Place, int]) -> None:
        self._positions = dict(positions)
        self._lines = [
            one for one in self._lines if one.offset >= positions.get((one.topic, one.partition), 9)
        ]

    def poll(self, timeout_s: float) -> Sequence[ArchiveLine]:
        self.polls += 1
        found, self._lines = self._lines[:2], self._lines[2:]
        for one in found:
            self._positions[one.topic, one.partition] = one.offset + 1
        if self._marked and not self._lines:
            self._positions = {place: self._ends[place[1]] for place in self._positions}
        return found

    def positions(self) -> Mapping[Place, int]:
        return dict(self._positions)

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
def test_an_end_that_was_compacted_away_is_waited_for_so_often_and_no_more(
    ends: dict[int, int],
) -> None:
    reader = Reader([line(0, 0), line(0, 1)], ends)
    assert 2 == len(list(read_to_end(reader, "t")))
    assert reader.polls == 1 + EMPTY_MAX


def test_an_end_that_is_a_transaction_s_mark_is_not_waited_for() -> None:
    reader = Reader([line(0, 0), line(0, 1)], {0: 3, 1: 1}, marked=True)
    assert 2 == len(list(read_to_end(reader, "t")))
    assert reader.polls == 1


def test_a_broker_that_went_away_has_not_said_that_there_is_no_more() -> None:
    reader = Reader([line(0, 0)], {0: 3})
    found = read_to_end(reader, "t")
    assert line(0, 0) == next(found)
    reader.away = True
    with pytest.raises(SourceUnavailable):
        next(found)


def test_a_piece_says_how_far_it_reaches() -> None:
    lines = [line(0, number) for number in range(6)]
    assert (lines[1:4], 4) == read_piece(Reader(lines, {0: 6}), ("t", 0), 1, 4)
    assert (lines[1:3], 3) == read_piece(Reader(lines[:3], {0: 6}), ("t", 0), 1, 5)
    assert (lines[1:3], 5) == read_piece(Reader(lines[:3], {0: 6}, marked=True), ("t", 0), 1, 5)
    assert ([], 2) == read_piece(Reader(lines, {0: 6}), ("t", 0), 2, 2)


def test_a_whole_piece_has_no_hole_at_its_end() -> None:
    lines = [line(0, number) for number in range(3)]
    assert lines == read_whole_piece(Reader(lines, {0: 3}), ("t", 0), 0, 3)
    with pytest.raises(SourceUnavailable, match="t/0: the broker gives nothing from offset 3 to 5"):
        read_whole_piece(Reader(lines, {0: 5}), ("t", 0), 0, 5)
