"""A topic from its beginning to where it ends now."""

from __future__ import annotations

from collections.abc import Iterator

from telemetry.archive_line import ArchiveLine
from telemetry.ports import LogReader

POLL_S = 1.0
EMPTY_MAX = 10  # the last offsets may be none that anybody gets to see: markers, compacted records


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
