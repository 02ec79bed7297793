"""What the outbox says about itself. The names are API: renaming one is a line in the changelog."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class OutboxMetrics:
    """One per registry; `kind` is the record's: "frame", "event", "steps", ..."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sent = Counter(
            "nodewarden_outbox_sent",
            "Records handed to the producer, repeats included.",
            ["kind"], registry=registry,
        )  # fmt: skip
        self.acknowledged = Counter(
            "nodewarden_outbox_acknowledged",
            "Records that the broker has acknowledged.",
            ["kind"], registry=registry,
        )  # fmt: skip
        self.spooled = Counter(
            "nodewarden_outbox_spooled",
            "Records that had to wait on disk; rising means that the broker is away.",
            ["kind"], registry=registry,
        )  # fmt: skip
        self.dropped = Counter(
            "nodewarden_outbox_dropped",
            "Records lost, each a hole in its stream. reason: full (the spool's bound or disk), "
            "refused (the record can never be sent).",
            ["kind", "reason"], registry=registry,
        )  # fmt: skip
        self.errors = Counter(
            "nodewarden_outbox_errors",
            "reason: producer (failed and was replaced), silent (nothing acknowledged in time), "
            "sync (the spool's disk failed).",
            ["reason"], registry=registry,
        )  # fmt: skip
        self.under_way = Gauge(
            "nodewarden_outbox_under_way",
            "Records handed to the producer and not acknowledged.",
            registry=registry,
        )
        self.spool_bytes = Gauge(
            "nodewarden_outbox_spool_bytes",
            "Disk that the spool takes.",
            registry=registry,
        )
