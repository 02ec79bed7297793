"""Where listings come from: the port, and a `jobs.json` that people or cron jobs write."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from collectors.jobs import read_jobs
from telemetry.errors import InputError
from telemetry.ports import Clock
from telemetry.records import Allocation

FILE_MAX_BYTES = 256 * 1024 * 1024
# Within the granularity of a file system's clock a file may change and keep its stamp.
FRESH_S = 2.0

_Stamp = tuple[int, int, int]


class InventorySource(Protocol):
    """Knows which jobs run where.

    Raises SourceUnavailable where it does not answer, InputError where the answer is none; what
    was known before then stays in force.
    """

    def listing(self) -> Allocation:
        """All jobs and nodes, now. The caller numbers and stamps it."""
        ...


class JobsFile:
    """`jobs.json`; read again when it changed."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._stamp: _Stamp | None = None
        self._listing: Allocation | None = None

    def listing(self) -> Allocation:
        """What the file says. Raises InputError."""
        stamp = self._found()
        if self._listing is not None and stamp == self._stamp:
            return self._listing
        listing = read_jobs(self._read(), str(self._path), self._clock.time_s())
        self._listing = listing
        settled = abs(self._clock.time_s() - stamp[0] / 1e9) > FRESH_S
        self._stamp = stamp if settled else None
        return listing

    def _found(self) -> _Stamp:
        try:
            found = self._path.stat()
        except OSError as error:
            raise self._unreadable(error) from error
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    def _read(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                data = file.read(FILE_MAX_BYTES + 1)
        except OSError as error:
            raise self._unreadable(error) from error
        if len(data) > FILE_MAX_BYTES:
            raise InputError(f"{self._path}: over 256 MB, this is no listing of jobs")
        return data

    def _unreadable(self, error: OSError) -> InputError:
        return InputError(f"{self._path}: {error.strerror}; check the file and its permissions")
