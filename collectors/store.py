"""Records that wait on disk until their time comes."""

from __future__ import annotations

import os
import tempfile
import weakref
from array import array
from collections.abc import Iterator

import msgspec

from telemetry.records import KIND_ORDER, Allocation, Event, Record, Rejected, Steps

DATED_MAX = 2_000_000  # their order stays in memory, about 150 bytes each

Order = tuple[float, int, str, str, int]  # time, kind, node, source, position
_BUFFER_BYTES = 1 << 18


class RecordStore:
    """Add all, then read as often as you like.

    dropped   records beyond `DATED_MAX`, not kept
    """

    def __init__(self) -> None:
        file, name = tempfile.mkstemp(prefix="nodewarden-")
        os.unlink(name)
        self._file = file
        self.close = weakref.finalize(self, os.close, file)
        self._buffer = bytearray()
        self._size = 0
        self._dated: list[tuple[Order, int, int]] = []
        self._undated = array("q")
        self._encoder = msgspec.json.Encoder()
        self._decoder: msgspec.json.Decoder[Record | Rejected] = msgspec.json.Decoder(
            Record | Rejected
        )
        self.dropped = 0

    def add(self, record: Event | Steps | Allocation | Rejected) -> None:
        """Keep it; what has no time is handed out before all else."""
        if record.at is not None and len(self._dated) >= DATED_MAX:
            self.dropped += 1
            return
        data = self._encoder.encode(record)
        if record.at is None:
            self._undated.extend((self._size, len(data)))
        else:
            self._dated.append((_order(record, record.at, self._size), self._size, len(data)))
        self._size += len(data)
        self._buffer += data
        if len(self._buffer) > _BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Put all on disk and in order; to be called after the last `add`."""
        offset, data = self._size - len(self._buffer), memoryview(bytes(self._buffer))
        while data:
            written = os.pwrite(self._file, data, offset)
            offset, data = offset + written, data[written:]
        self._buffer.clear()

    def sort(self) -> None:
        """Bring what has a time into the order of its time."""
        self._dated.sort()

    def span(self) -> tuple[float, float] | None:
        """First and last time; None where nothing has one."""
        if not self._dated:
            return None
        return self._dated[0][0][0], self._dated[-1][0][0]

    def undated(self) -> Iterator[Rejected]:
        """Rejected input without a time, in the order of the files."""
        for at in range(0, len(self._undated), 2):
            record = self._get(self._undated[at], self._undated[at + 1])
            assert isinstance(record, Rejected)
            yield record

    def dated(self) -> Iterator[tuple[Order, Record | Rejected]]:
        """Everything else, in order."""
        for order, offset, length in self._dated:
            yield order, self._get(offset, length)

    def _get(self, offset: int, length: int) -> Record | Rejected:
        return self._decoder.decode(os.pread(self._file, length, offset))


def _order(record: Event | Steps | Allocation | Rejected, at_s: float, position: int) -> Order:
    if isinstance(record, Rejected):
        return at_s, KIND_ORDER[Event], "", "", position
    return at_s, KIND_ORDER[type(record)], record.node, record.source, position
