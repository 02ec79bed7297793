"""A topic from its beginning to where it ends now, or a piece of one partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from telemetry.archive_line import ArchiveLine
from telemetry.errors import SourceUnavailable
from telemetry.ports import LogReader, Place

POLL_S = 0.2
EMPTY_MAX = 50  # 10 s of a broker that answers and gives nothing: the end was compacted away


def read_to_end(
    reader: LogReader, topic: str, partition: int | None = None
) -> Iterator[ArchiveLine]:
    """All that the topic holds now, or one of its partitions; nothing where there is none.

    Raises SourceUnavailable.
    """
    places = [(topic, one) for one in reader.partitions(topic) if partition in (None, one)]
    bounds = reader.bounds(places)
    ends = {place: end for place, (begin, end) in bounds.items() if begin < end}
    yield from _read(reader, {place: bounds[place][0] for place in ends}, ends)


def read_piece(
    reader: LogReader, place: Place, start: int, end: int
) -> tuple[list[ArchiveLine], int]:
    """The records of [start, end) that came, in order, and how far they reach: `end`, or less where
    the broker gave no more within 10 s. What lies before that was read, or is not there.

    Raises SourceUnavailable.
    """
    if start >= end:
        return [], end
    lines = list(_read(reader, {place: start}, {place: end}))
    reached = reader.positions().get(place, start)
    return lines, max(start, min(reached, end))


def read_whole_piece(reader: LogReader, place: Place, start: int, end: int) -> list[ArchiveLine]:
    """The records of [start, end), in order; what is not there any more is left out.

    Raises SourceUnavailable where the broker gave not all of it in time.
    """
    lines, reached = read_piece(reader, place, start, end)
    if reached < end:
        raise SourceUnavailable(
            f"{place[0]}/{place[1]}: the broker gives nothing from offset {reached} to {end}"
        )
    return lines


def _read(
    reader: LogReader, starts: Mapping[Place, int], ends: Mapping[Place, int]
) -> Iterator[ArchiveLine]:
    """What stands before the ends, until each is reached or nothing more comes.

    That an end is reached says the position alone: its last offsets may be none that anybody sees.
    """
    reader.assign(starts)
    empty = 0
    while empty < EMPTY_MAX and not _reached(reader, ends):
        lines = reader.poll(POLL_S)
        empty = 0 if lines else empty + 1
        for line in lines:
            if line.offset < ends[line.topic, line.partition]:
                yield line
    if empty:
        reader.bounds(list(ends))  # a broker that is away has not said that there is no more


def _reached(reader: LogReader, ends: Mapping[Place, int]) -> bool:
    positions = reader.positions()
    return all(positions.get(place, 0) >= end for place, end in ends.items())
