"""Metrics of telling. Names are API: renaming one is a line of the changelog."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class NotifyMetrics:
    """Failing calls are seen by reason; what waits, and for how long, by receiver."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"nodewarden_notify_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"nodewarden_notify_{name}", text, labels, registry=registry)

        self.told = counter("told_total", "Events that a receiver took", "receiver", "event")
        self.failed = counter("failed_total", "Calls that failed, by reason", "receiver", "reason")
        self.refused = counter(
            "refused_total", "Events that a receiver would never take; a person was told by the"
            " fallback alone", "receiver",
        )  # fmt: skip
        self.rolled_up = counter(
            "rolled_up_total", "Incidents told in a storm page instead of their own", "receiver"
        )
        self.fallback = counter(
            "fallback_total", "Groups told to the second receiver too", "receiver"
        )
        self.dropped = counter("dropped_total", "Change events that had no room", "receiver")
        self.not_saved = counter("not_saved_total", "Times the state could not be written")
        self.waiting = gauge("waiting", "Groups that nobody was told of yet", "receiver")
        self.oldest_s = gauge(
            "oldest_waiting_seconds", "Age of the oldest of them: over a minute is bad", "receiver"
        )
