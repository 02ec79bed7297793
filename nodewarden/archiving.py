"""The archiver's process: what it is made of, its loop, and how it ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from collectors.broker.consumer import KafkaLogReader
from streams.archive_metrics import ArchiveMetrics
from streams.archive_objects import ObjectStore
from streams.archive_settler import Settler
from streams.archive_store import ArchiveStore, DirectoryStore, WriterLock
from streams.archiver import Archiver
from streams.snapshot import RING
from telemetry.archive import Opener, open_file
from telemetry.errors import SettingsError, SourceUnavailable
from telemetry.ports import Clock, LogReader
from telemetry.settings import ArchiveSettings, Configuration

POLL_S = 0.25  # a stop is noticed within it
RETRY_MIN_S, RETRY_MAX_S = 0.5, 10.0
LAST_FILES_S = 5.0  # what the store does not take by then waits for the next start

_log = logging.getLogger("nodewarden.archive")


def store_of(out: str, settings: ArchiveSettings) -> ArchiveStore:
    """A directory, or an object store where `out` is a URL. Raises SettingsError, InputError."""
    if "://" not in out:
        return DirectoryStore(Path(out))
    if not settings.staging_dir:
        raise SettingsError(
            f"--out {out}: archive.staging_dir is not set: a local directory that outlives restarts"
        )
    return ObjectStore(out, Path(settings.staging_dir), settings.endpoint_url)


def archive(
    configuration: Configuration, store: ArchiveStore, clock: Clock, metrics: ArchiveMetrics,
    stop: threading.Event, *, reader: Callable[[], LogReader] | None = None,
    opener: Opener = open_file,
) -> Archiver:  # fmt: skip
    """Archive until `stop`; returns the archiver as it ended.

    reader  makes the log's reader; None: Kafka's
    raises  InputError where another archiver writes there or the archive is another log's,
            SourceUnavailable where broker or store do not answer at the start
    """
    lock = WriterLock(store.work_dir)
    try:
        log = _kafka(configuration, clock) if reader is None else reader()
        try:
            return _run(configuration, store, clock, metrics, stop, log, opener)
        finally:
            log.close()
    finally:
        lock.release()


def _kafka(configuration: Configuration, clock: Clock) -> LogReader:
    """What a transaction took back was never said: the archive does not have it either."""
    return KafkaLogReader(configuration.kafka, clock, "nodewarden-archive", committed=True)


def _run(
    configuration: Configuration, store: ArchiveStore, clock: Clock, metrics: ArchiveMetrics,
    stop: threading.Event, reader: LogReader, opener: Opener,
) -> Archiver:  # fmt: skip
    settings = configuration.archive
    snapshots_s = RING * configuration.stream.snapshot_s
    settler = Settler(store, settings, snapshots_s, clock, metrics)
    archiver = Archiver(reader, settler, settings, clock, metrics, opener=opener)
    archiver.start()
    no_more = threading.Event()  # after the archiver's last file, not before
    settling = threading.Thread(target=settler.run, args=(no_more,), name="settler", daemon=True)
    settling.start()
    _loop(archiver, metrics, stop)
    archiver.stop()
    no_more.set()
    settler.wake()
    settling.join(LAST_FILES_S)
    return archiver


def _loop(archiver: Archiver, metrics: ArchiveMetrics, stop: threading.Event) -> None:
    wait_s = RETRY_MIN_S
    while not stop.is_set():
        try:
            archiver.step(POLL_S)
        except SourceUnavailable as error:
            metrics.broker_failures.inc()
            _log.warning("broker_unavailable error=%s retry_s=%.1f", error, wait_s)
            archiver.sync_if_due()
            stop.wait(wait_s)
            wait_s = min(2.0 * wait_s, RETRY_MAX_S)
        else:
            wait_s = RETRY_MIN_S
