"""The steps of jobs that were restarted for an update, out of the telemetry: before it and after.

Read in a thread of its own, and only while an update waits for it: first backwards from the end of
the log to a while before the restart, then what comes, until the new run has passed the place where
the earlier one ended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from actions.reruns import Run, compare
from telemetry.actions import Compared, Update
from telemetry.archive_line import ArchiveLine
from telemetry.codec import decode
from telemetry.errors import SourceUnavailable
from telemetry.log_reading import read_piece, read_whole_piece
from telemetry.ports import Clock, LogReader
from telemetry.records import Steps
from telemetry.settings import VersionSettings
from telemetry.topics import TELEMETRY

EVERY_S = 5.0
BLOCK = 5_000  # offsets that are read at once, backwards
BACK_MAX = 2_000_000  # offsets of a partition; what lies before is not known
WATCHED_MAX = 8  # updates at once; others wait their turn
_NEEDED_BACK_S = 3_600.0  # before the restart

_log = logging.getLogger("nodewarden.act")


@dataclass(slots=True)
class _Watched:
    update: Update
    before: Run
    after: Run
    positions: dict[int, int] = field(default_factory=dict)  # partition -> next offset

    def take(self, line: ArchiveLine) -> None:
        """One record; whatever is no step of the job is nothing."""
        kind = dict(line.headers).get("kind", b"steps")
        if kind != b"steps" or line.value is None:
            return
        record = decode(line.value, f"{line.topic}/{line.partition}@{line.offset}")
        of_job = {self.update.job, self.update.next_job} - {""}
        if isinstance(record, Steps) and record.job in of_job:
            started_at = self.update.joined_at
            is_after = started_at is not None and record.at >= started_at
            (self.after if is_after else self.before).take(record)


class RerunReader:
    """`compared` is asked by the service's loop, `run` is the thread.

    reader  makes a reader of the telemetry; partitions: of the live shards
    """

    def __init__(
        self, reader: Callable[[], LogReader], partitions: Sequence[int],
        settings: VersionSettings, clock: Clock,
    ) -> None:  # fmt: skip
        self._make, self._partitions = reader, list(partitions)
        self._settings, self._clock = settings, clock
        self._lock = threading.Lock()
        self._wanted: dict[str, Update] = {}
        self._results: dict[str, list[Compared]] = {}
        self._watched: dict[str, _Watched] = {}

    def compared(self, update: Update) -> list[Compared] | None:
        """What its steps say; None while nobody knows."""
        with self._lock:
            if update.id in self._results:
                return self._results[update.id]
            if len(self._wanted) < WATCHED_MAX:
                self._wanted[update.id] = update
        return None

    def run(self, stop: threading.Event) -> None:
        """Until `stop`."""
        while not stop.wait(EVERY_S):
            self.refresh()

    def refresh(self) -> None:
        """Read what there is for each update that is waited for."""
        with self._lock:
            wanted = list(self._wanted.values())
        for update in wanted:
            try:
                found = self._looked(update)
            except SourceUnavailable as error:
                _log.warning("steps_unread update=%s error=%s", update.id, error)
                self._watched.pop(update.id, None)
                continue
            if found is not None:
                self._watched.pop(update.id, None)
                with self._lock:
                    self._results[update.id] = found
                    del self._wanted[update.id]
                    while len(self._results) > 10 * WATCHED_MAX:
                        del self._results[next(iter(self._results))]

    def _looked(self, update: Update) -> list[Compared] | None:
        reader = self._make()
        try:
            watched = self._watched.get(update.id)
            if watched is None:
                steps_max = self._settings.steps_kept
                watched = _Watched(update, Run(steps_max), Run(steps_max))
                for partition in self._partitions:
                    self._read_back(reader, partition, watched)
                self._watched[update.id] = watched
            else:
                self._read_on(reader, watched)
        finally:
            reader.close()
        found = compare(watched.before, watched.after, self._settings)
        late = self._clock.time_s() - (update.ran_at or 0.0) >= self._settings.compare_s
        if found is None and late:
            return compare(watched.before, watched.after, self._settings, whole=False) or []
        return found

    def _read_back(self, reader: LogReader, partition: int, watched: _Watched) -> None:
        """From the end, block by block, until a while before the restart."""
        first, end = reader.bounds([(TELEMETRY, partition)])[(TELEMETRY, partition)]
        watched.positions[partition] = end
        since_ms = ((watched.update.joined_at or 0.0) - _NEEDED_BACK_S) * 1e3
        lowest = max(first, end - BACK_MAX)
        while end > lowest:
            start = max(lowest, end - BLOCK)
            lines = read_whole_piece(reader, (TELEMETRY, partition), start, end)
            for line in lines:
                watched.take(line)
            if lines and lines[0].timestamp_ms < since_ms:
                return
            end = start

    def _read_on(self, reader: LogReader, watched: _Watched) -> None:
        for partition in self._partitions:
            place = (TELEMETRY, partition)
            end = reader.bounds([place])[place][1]
            while (start := watched.positions[partition]) < end:
                lines, reached = read_piece(reader, place, start, min(start + BLOCK, end))
                for line in lines:
                    watched.take(line)
                watched.positions[partition] = reached
                if reached == start:  # a slow broker: the next round goes on here
                    return
