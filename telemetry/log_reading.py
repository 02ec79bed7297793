"""A topic from its beginning to where it ends now, or a piece of one partition."""

from __future__ import annotations

from collections.abc import Iterator

from telemetry.archive_line import ArchiveLine
from telemetry.ports import LogReader, Place

POLL_S = 1.0
EMPTY_MAX = 10  # the last offsets may be none that anybody gets to see: markers, compacted records
PIECE_POLL_S = 0.5
PIECE_EMPTY_MAX = 4


def read_to_end(
    reader: LogReader, topic: str, partition: int | None = None
) -> Iterator[ArchiveLine]:
    """All that the topic holds now, or one of its partitions; nothing where there is none.

    Raises SourceUnavailable.
    """
    places = [(topic, one) for one in reader.partitions(topic) if partition in (None, one)]
    bounds = reader.bounds(places)
    left = {place: end for place, (begin, end) in bounds.items() if begin < end}
    reader.assign({place: bounds[place][0] for place in left})
    empty = 0
    while left and empty < EMPTY_MAX:
        lines = reader.poll(POLL_S)
        empty = 0 if lines else empty + 1
        for line in lines:
            place = (line.topic, line.partition)
            end = left.get(place, 0)
            if line.offset < end:
                yield line
            if line.offset + 1 >= end:
                left.pop(place, None)


def read_piece(
    reader: LogReader, place: Place, start: int, end: int, *, marked: bool = False
) -> list[ArchiveLine]:
    """The records of [start, end) that are there, in order; ends where no more come.

    marked  transactions end in a mark that nobody gets to see: the last offset is waited for once
    raises  SourceUnavailable
    """
    reader.assign({place: start})
    found: list[ArchiveLine] = []
    empty = 0
    while empty < PIECE_EMPTY_MAX and (not found or found[-1].offset < end - 1):
        lines = reader.poll(PIECE_POLL_S)
        empty = 0 if lines else empty + 1
        found += lines
        if marked and found and found[-1].offset == end - 2:
            empty = max(empty, PIECE_EMPTY_MAX - 1)
    return [line for line in found if line.offset < end]
