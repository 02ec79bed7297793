"""An archiver that kills itself (SIGKILL) at a named point; started by tests as a process.

    python -m tests.dying_archiver OUT POINT NUMBER [HOST:PORT]

POINT is one of `POINTS`, NUMBER says at which of its occurrences. Without a broker it reads
`memory_log()`. It ends with status 0 when nothing more comes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from collectors.broker.consumer import KafkaLogReader
from nodewarden.archiving import archive
from nodewarden.clock import SystemClock
from streams.archive_metrics import ArchiveMetrics
from streams.archive_store import DirectoryStore
from telemetry.archive import Extent, Opener
from telemetry.archive_line import ArchiveLine
from telemetry.ports import LogReader, Place
from telemetry.settings import ArchiveSettings, Configuration, KafkaSettings
from telemetry.testing import MemoryLog
from telemetry.topics import INVENTORY, TELEMETRY, TOPICS

POINTS = (
    "in_frame",  # half of a zstd frame is written
    "after_frame",  # a frame is written, and not yet synced
    "before_new_file",  # the old file is closed, the new one not there
    "in_new_file",  # the new file is there, and empty
    "before_index",  # a file is closed, and not yet in the index
)
CHOSEN = ArchiveSettings(roll_bytes=1_500, flush_bytes=600, sync_s=0.05)
IDLE_POLLS = 4


def memory_log() -> MemoryLog:
    """The same at every start: records of three partitions, with holes as compaction makes."""
    log = MemoryLog({topic.name: 2 if topic.by_shard else 1 for topic in TOPICS})
    for number in range(300):
        log.append(TELEMETRY, b'{"n":%d,"pad":"%d"}' % (number, 7**90 + number), key=b"main")
        log.append(TELEMETRY, b"no json \xff", partition=1)
        log.append(INVENTORY, None if number % 3 else b'{"n":%d}' % number, key=b"job/%d" % number)
        log.now_ms += 10
    log.compact(INVENTORY, 0, range(5, 300, 7))
    return log


class _Fate:
    """Counts occurrences of one point and dies at the chosen one."""

    def __init__(self, point: str, number: int) -> None:
        self._point = point
        self._left = number

    def comes(self, point: str) -> bool:
        """Whether this is the moment."""
        self._left -= point == self._point
        return point == self._point and self._left == 0

    def meet(self, point: str) -> None:
        """Die where it is the moment."""
        if self.comes(point):
            os.kill(os.getpid(), signal.SIGKILL)


class _DyingFile:
    """A file in which the process dies."""

    def __init__(self, file: BinaryIO, fate: _Fate) -> None:
        self._file = file
        self._fate = fate

    def write(self, data: bytes) -> int:
        if self._fate.comes("in_frame"):
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return self._file.write(data)

    def fileno(self) -> int:  # asked for by fsync alone
        self._fate.meet("after_frame")
        return self._file.fileno()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def dying_opener(fate: _Fate) -> Opener:
    """Opens files in which the process dies, or dies around the opening."""

    def opened(path: Path, mode: Literal["xb", "ab"]) -> BinaryIO:
        if mode == "xb":
            fate.meet("before_new_file")
        file = path.open(mode)
        if mode == "xb":
            fate.meet("in_new_file")
        return cast(BinaryIO, _DyingFile(file, fate))

    return opened


class _DyingStore(DirectoryStore):
    def __init__(self, out: Path, fate: _Fate) -> None:
        super().__init__(out)
        self._fate = fate

    def settle(self, extent: Extent) -> None:
        self._fate.meet("before_index")
        super().settle(extent)


class UntilIdle:
    """A reader that asks for the end when nothing more comes."""

    def __init__(self, reader: LogReader, stop: threading.Event) -> None:
        self._reader = reader
        self._stop = stop
        self._empty = 0

    def partitions(self, topic: str) -> Sequence[int]:
        return self._reader.partitions(topic)

    def bounds(self, places: Sequence[Place]) -> Mapping[Place, tuple[int, int]]:
        return self._reader.bounds(places)

    def assign(self, positions: Mapping[Place, int]) -> None:
        self._reader.assign(positions)

    def poll(self, timeout_s: float) -> Sequence[ArchiveLine]:
        found = self._reader.poll(timeout_s)
        self._empty = 0 if found else self._empty + 1
        if self._empty >= IDLE_POLLS:
            self._stop.set()
        return found

    def positions(self) -> Mapping[Place, int]:
        return self._reader.positions()

    def close(self) -> None:
        self._reader.close()


def main(out: str, point: str, number: str, broker: str = "") -> None:
    """Archive until nothing more comes, or die."""
    assert point in POINTS
    fate, stop, clock = _Fate(point, int(number)), threading.Event(), SystemClock()
    kafka = KafkaSettings(brokers=(broker,))
    configuration = Configuration(archive=CHOSEN, kafka=kafka)

    def reader() -> LogReader:
        if broker:
            return UntilIdle(KafkaLogReader(kafka, clock), stop)
        return UntilIdle(memory_log().reader(records_max=7), stop)

    archive(
        configuration, _DyingStore(Path(out), fate), clock, ArchiveMetrics(), stop,
        reader=reader, opener=dying_opener(fate),
    )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
