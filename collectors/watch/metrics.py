"""The watch's own metrics. Their names are API: renaming one is a line of the changelog."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

_SHARD = ["shard"]
REASONS = ("canary", "worker", "nodes", "source")


class WatchMetrics:
    """What canaries and pings tell, in the registry of the process that watches."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.canaries = Counter(
            "nodewarden_canary_sent", "Canaries written into the log.", _SHARD, registry=registry
        )
        self.canary_s = Gauge(
            "nodewarden_canary_interval_seconds", "How often a canary is sent; 0: never.",
            registry=registry,
        )  # fmt: skip
        self.limit_s = Gauge(
            "nodewarden_canary_limit_seconds", "A canary that takes longer is late.",
            registry=registry,
        )  # fmt: skip
        # High: so long a fault that happens now stays unsaid.
        self.delay_s = Gauge(
            "nodewarden_canary_delay_seconds",
            "From writing the newest canary that came back to seeing its finding.",
            _SHARD, registry=registry,
        )  # fmt: skip
        self.seen_s = Gauge(
            "nodewarden_canary_last_seen_timestamp_seconds", "When a canary last came back.",
            _SHARD, registry=registry,
        )  # fmt: skip
        # Above the usual delay: the engine does not fold, or what it says is not read.
        self.waiting_s = Gauge(
            "nodewarden_canary_waiting_seconds",
            "Age of the oldest canary that has not come back; 0 without one.",
            _SHARD, registry=registry,
        )  # fmt: skip
        self.late = Counter(
            "nodewarden_canary_late", "Canaries that took longer than watch.canary_late_s.",
            _SHARD, registry=registry,
        )  # fmt: skip
        self.foreign = Counter(
            "nodewarden_canary_foreign", "Canaries that came back and were not ours.", _SHARD,
            registry=registry,
        )  # fmt: skip
        # part: canary, findings (reading them back), deadman.
        self.errors = Counter(
            "nodewarden_watch_errors", "Times a part of the watch failed and went on.", ["part"],
            registry=registry,
        )  # fmt: skip
        self.pings = Counter(
            "nodewarden_deadman_pings", "Pings that were taken outside.", registry=registry
        )
        # Rising: whoever waits for the pings will alarm, and is right to.
        self.failed = Counter(
            "nodewarden_deadman_failed_pings", "Pings that were not taken outside.",
            registry=registry,
        )  # fmt: skip
        self.withheld = Counter(
            "nodewarden_deadman_withheld_pings", "Pings that were not sent, by what was not well.",
            ["reason"], registry=registry,
        )  # fmt: skip
        for reason in REASONS:
            self.withheld.labels(reason)
