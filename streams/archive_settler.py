"""Hands closed files to the store and removes old ones, in a thread of its own: a slow store must
not stop the reading, nor a dead one lose a file."""

from __future__ import annotations

import logging
import threading
from collections import deque

from streams.archive_metrics import ArchiveMetrics
from streams.archive_retention import expired
from streams.archive_store import ArchiveStore
from telemetry.archive import ArchiveFile, Extent
from telemetry.archive_repair import examine
from telemetry.errors import InputError, SourceUnavailable
from telemetry.ports import Clock
from telemetry.settings import ArchiveSettings

RETENTION_EVERY_S = 600.0
RETRY_MIN_S, RETRY_MAX_S = 1.0, 60.0

_log = logging.getLogger("nodewarden.archive")


class Settler:
    """Closed files wait here in order; `work` settles them, `run` does so until told to stop.

    snapshots_s  see `archive_retention.expired`
    """

    def __init__(
        self, store: ArchiveStore, settings: ArchiveSettings, snapshots_s: float, clock: Clock,
        metrics: ArchiveMetrics,
    ) -> None:  # fmt: skip
        self.store = store
        self._settings = settings
        self._snapshots_s = snapshots_s
        self._clock = clock
        self._metrics = metrics
        self._waiting: deque[tuple[Extent | ArchiveFile, int]] = deque()
        self._offered = threading.Event()
        self._retained_at = -RETENTION_EVERY_S
        self._bytes = 0
        self._counting = threading.Lock()  # files are offered by one thread, settled by another

    @property
    def is_full(self) -> bool:
        """Whether more waits for the store than the staging directory is allowed to hold."""
        return self.store.remote and self._bytes > self._settings.staging_max_bytes

    def offer(self, closed: Extent | ArchiveFile) -> None:
        """A file is closed. One whose content is not known is read first."""
        if isinstance(closed, Extent):
            size = closed.bytes
        else:
            size = (self.store.work_dir / closed.relative).stat().st_size
        self._waiting.append((closed, size))
        self._count(size)
        self._offered.set()

    def wake(self) -> None:
        """Look at once whether there is something to do, or to end."""
        self._offered.set()

    def work(self) -> None:
        """Settle what waits, then remove what is old. Raises SourceUnavailable; ask again."""
        while self._waiting:
            closed, size = self._waiting[0]
            try:
                self._settle(closed)
            except (FileNotFoundError, InputError) as error:
                # Removed or spoiled by somebody: it stays as it is, and the next ones are settled.
                self._metrics.store_failures.inc()
                _log.error("file_not_settled error=%s", error)
            self._waiting.popleft()
            self._count(-size)
        now_s = self._clock.monotonic_s()
        if now_s - self._retained_at >= RETENTION_EVERY_S:
            self._retain()
            self._retained_at = now_s
        self.store.index()

    def run(self, stop: threading.Event) -> None:
        """`work` whenever there is some, with longer and longer waits where the store fails.

        After the stop what waits is tried once more; the rest is settled by the next start.
        """
        wait_s = RETRY_MIN_S
        while not stop.is_set():
            self._offered.clear()
            if self._worked(retry_s=wait_s):
                wait_s = RETRY_MIN_S
                self._offered.wait(1.0)
            else:
                stop.wait(wait_s)
                wait_s = min(2.0 * wait_s, RETRY_MAX_S)
        self._worked(retry_s=0.0)

    def _worked(self, retry_s: float) -> bool:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - the top of a thread that must not die
            self._metrics.store_failures.inc()
            unknown = not isinstance(error, OSError | SourceUnavailable)
            _log.error("store_failed error=%s retry_s=%.0f", error, retry_s, exc_info=unknown)
            return False
        return True

    def _settle(self, closed: Extent | ArchiveFile) -> None:
        if isinstance(closed, ArchiveFile):
            if self.store.has(closed):
                return
            closed = examine(self.store.work_dir, closed)
        self.store.settle(closed)
        _log.info("file_settled file=%s bytes=%d", closed.file.relative, closed.bytes)

    def _retain(self) -> None:
        if not self._settings.keep_days and not self._settings.keep_bytes:
            return
        now_s = self._clock.time_s()
        for file in expired(self.store.kept(), self._settings, self._snapshots_s, now_s):
            self.store.remove(file)
            self._metrics.removed_files.inc()
            _log.info("file_removed file=%s", file.relative)

    def _count(self, size: int) -> None:
        with self._counting:
            self._bytes += size
        self._metrics.waiting_bytes.set(self._bytes if self.store.remote else 0)
