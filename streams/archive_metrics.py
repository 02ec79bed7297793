"""The archiver's own metrics. Their names are API: renaming one is a line of the changelog."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

_PLACE = ("topic", "partition")


class ArchiveMetrics:
    """One registry with everything that the archiver counts."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        # High: the archiver falls behind; beyond the topic's retention records are lost to it.
        self.lag = Gauge(
            "nodewarden_archive_lag_records", "Records in Kafka that are not archived.",
            _PLACE, registry=registry,
        )  # fmt: skip
        self.records = Counter(
            "nodewarden_archive_records", "Records taken.", ("topic",), registry=registry
        )
        self.written_bytes = Counter(
            "nodewarden_archive_written_bytes", "Compressed bytes written.", ("topic",),
            registry=registry,
        )  # fmt: skip
        # Old: nothing reaches the disk.
        self.last_sync_s = Gauge(
            "nodewarden_archive_last_sync_timestamp_seconds",
            "When everything taken was last on the disk.", registry=registry,
        )  # fmt: skip
        # Above 0: records were gone before they were archived, for ever.
        self.gaps = Counter(
            "nodewarden_archive_gaps", "Pieces of the log that are missing in the archive.",
            (*_PLACE, "reason"), registry=registry,
        )  # fmt: skip
        self.gap_records = Counter(
            "nodewarden_archive_gap_records", "Records that are missing in the archive, at most.",
            (*_PLACE, "reason"), registry=registry,
        )  # fmt: skip
        self.repeated = Counter(
            "nodewarden_archive_repeated_records", "Records read again and left out.",
            ("topic",), registry=registry,
        )  # fmt: skip
        self.broker_failures = Counter(
            "nodewarden_archive_broker_failures", "Times the broker did not answer.",
            registry=registry,
        )  # fmt: skip
        # High: the store does not take what was closed.
        self.waiting_bytes = Gauge(
            "nodewarden_archive_waiting_bytes", "Closed files that the store has not taken yet.",
            registry=registry,
        )  # fmt: skip
        self.store_failures = Counter(
            "nodewarden_archive_store_failures", "Times the store did not answer.",
            registry=registry,
        )  # fmt: skip
        self.removed_files = Counter(
            "nodewarden_archive_removed_files", "Files removed by retention.", registry=registry
        )
