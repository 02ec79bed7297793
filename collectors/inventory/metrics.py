"""The poller's own metrics. Their names are API: renaming one is a line of the changelog."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class InventoryMetrics:
    """One registry with everything that the poller counts."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.listings = Counter(
            "nodewarden_inventory_listings", "Full listings published.", registry=registry
        )
        self.changes = Counter(
            "nodewarden_inventory_changes", "Changes published between listings.",
            registry=registry,
        )  # fmt: skip
        # Rising: the source is broken, and what was known before stays in force.
        self.failures = Counter(
            "nodewarden_inventory_source_failures", "Times the source gave no listing.",
            registry=registry,
        )  # fmt: skip
        # Of these the answers that broke off: they change nothing, as if none had come.
        self.incomplete = Counter(
            "nodewarden_inventory_incomplete_listings", "Times an answer was not whole.",
            registry=registry,
        )  # fmt: skip
        # Rising: the API server forgets its past sooner than a watch comes back.
        self.relists = Counter(
            "nodewarden_inventory_relists", "Gaps of a watch: everything was listed anew.",
            registry=registry,
        )  # fmt: skip
        # Old: the source is broken since then.
        self.source_s = Gauge(
            "nodewarden_inventory_source_timestamp_seconds", "When the source last gave a listing.",
            registry=registry,
        )  # fmt: skip
        self.publish_failures = Counter(
            "nodewarden_inventory_publish_failures", "Times Kafka did not take what was said.",
            registry=registry,
        )  # fmt: skip
        self.jobs = Gauge("nodewarden_inventory_jobs", "Jobs listed.", registry=registry)
        self.nodes = Gauge("nodewarden_inventory_nodes", "Nodes listed.", registry=registry)
