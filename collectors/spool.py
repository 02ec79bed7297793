"""Records that wait on disk, in order, while the broker is away; bounded, and kill -9 proof.

Two lanes: what is to be kept (events), and telemetry, whose oldest segment goes when the spool is
full. Memory holds the names of the segments, never records. Not to be mixed up with `spill`, which
holds captures while they are sorted.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections import Counter
from pathlib import Path

from collectors.spool_lane import Entry, Lane
from telemetry.errors import SettingsError

SEGMENT_BYTES_MAX = 4_000_000
SEGMENTS = 16  # of a full spool, at least: so much is dropped at once
BYTES_MIN = 16_384
_ACKED_BYTES = 12


class Spool:
    """Append, peek and advance, acknowledge; what is not acknowledged can be read again.

    dropped     entries lost to the bound, or to a full disk, by kind
    sync_faults times the disk failed to take what was written
    torn_bytes  what killed writers left half written, cut off when the spool was opened
    """

    def __init__(self, directory: Path, bytes_max: int) -> None:
        """Open or make it. Raises SettingsError where that cannot be, or another process has it."""
        if bytes_max < BYTES_MIN:
            raise SettingsError(f"a spool of {bytes_max} bytes is none; at least {BYTES_MIN}")
        self._directory = directory
        self._bytes_max = bytes_max
        self.dropped: Counter[str] = Counter()
        self.sync_faults = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            self._claim()
            segment_bytes = min(SEGMENT_BYTES_MAX, bytes_max // SEGMENTS)
            self._kept = Lane(directory, "kept", segment_bytes)
            self._telemetry = Lane(directory, "telemetry", segment_bytes)
            self._acked = _read_acked(directory / "acked")
        except OSError as error:
            raise SettingsError(f"{directory}: {error.strerror}; the spool must be ours") from error
        self._acked_saved = self._acked
        self._last = max(self._acked, self._kept.last, self._telemetry.last)

    @property
    def torn_bytes(self) -> int:
        """See above."""
        return self._kept.torn_bytes + self._telemetry.torn_bytes

    @property
    def size_bytes(self) -> int:
        """What it takes on disk, acknowledged entries of open segments included."""
        return self._kept.size_bytes + self._telemetry.size_bytes

    @property
    def is_dirty(self) -> bool:
        """Whether something appended may not have reached the disk yet."""
        return self._kept.is_dirty or self._telemetry.is_dirty

    def append(self, payload: bytes, kind: str, *, keep: bool) -> int | None:
        """The entry's order; None where it was dropped for want of room.

        The oldest telemetry makes room; what is to be kept never goes for what comes later.
        """
        entry = Entry(self._last + 1, kind, payload)
        size_bytes = len(payload) + len(kind) + 32
        while self.size_bytes + size_bytes > self._bytes_max:
            if not self._make_room():
                self.dropped[kind] += 1
                return None
        try:
            (self._kept if keep else self._telemetry).append(entry)
        except OSError:  # the disk is full, or broken: the record is lost, the agent is not
            self._make_room()
            self.dropped[kind] += 1
            return None
        self._last = entry.order
        return entry.order

    def peek(self) -> Entry | None:
        """The next entry not read yet, None at the end."""
        lane = self._next_lane()
        return None if lane is None else lane.peek()

    def advance(self) -> None:
        """Count what `peek` gave as read."""
        lane = self._next_lane()
        assert lane is not None, "nothing was peeked at"
        lane.advance()

    def skip(self) -> None:
        """Count everything as read."""
        self._kept.skip()
        self._telemetry.skip()

    def rewind(self) -> None:
        """Read again from the oldest entry that is not acknowledged."""
        self._kept.rewind()
        self._telemetry.rewind()

    def ack(self, order: int) -> None:
        """Everything up to this order is done with; made durable by `sync`."""
        self._acked = max(self._acked, order)

    def sync(self) -> None:
        """Return when what was appended is on the disk, and forget what was acknowledged.

        A disk that fails then is no error: what could be lost is what a power cut would take.
        """
        try:
            self._kept.sync()
            self._telemetry.sync()
            if self._acked != self._acked_saved:
                _write_acked(self._directory / "acked", self._acked)
                self._acked_saved = self._acked
                self._kept.forget(self._acked)
                self._telemetry.forget(self._acked)
        except OSError:
            self.sync_faults += 1

    def close(self) -> None:
        """Leave the files for the next start."""
        self.sync()
        self._kept.close()
        self._telemetry.close()
        os.close(self._lock)

    def _claim(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise SettingsError(
                f"{self._directory}: another process uses this spool; give each its own"
            ) from error

    def _make_room(self) -> bool:
        if not self._telemetry:
            return False
        self.dropped += self._telemetry.drop_oldest(self._acked)
        return True

    def _next_lane(self) -> Lane | None:
        found: tuple[int, Lane] | None = None
        for lane in (self._kept, self._telemetry):
            entry = lane.peek()
            while entry is not None and entry.order <= self._acked:
                lane.advance()
                entry = lane.peek()
            if entry is not None and (found is None or entry.order < found[0]):
                found = (entry.order, lane)
        return None if found is None else found[1]


def _read_acked(path: Path) -> int:
    """The order saved last; 0 where none can be read: then everything is sent again."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0
    whole = len(data) == _ACKED_BYTES and zlib.crc32(data[:8]).to_bytes(4, "little") == data[8:]
    return int.from_bytes(data[:8], "little") if whole else 0


def _write_acked(path: Path, order: int) -> None:
    data = order.to_bytes(8, "little")
    written = path.with_suffix(".new")
    with open(written, "wb") as file:
        file.write(data + zlib.crc32(data).to_bytes(4, "little"))
        file.flush()
        os.fsync(file.fileno())
    written.replace(path)
