"""Metrics of telling. Names are API: renaming one is a line of the changelog."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class NotifyMetrics:
    """Failing calls are seen by reason; what waits, and for how long, by receiver."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        self.told = counter(
            "nodewarden_notify_told_total", "Events that a receiver took", "receiver", "event"
        )
        self.failed = counter(
            "nodewarden_notify_failed_total", "Calls that failed, by reason", "receiver", "reason"
        )
        self.refused = counter(
            "nodewarden_notify_refused_total", "Events that a receiver would never take", "receiver"
        )
        self.rolled_up = counter(
            "nodewarden_notify_rolled_up_total",
            "Incidents told in a storm page instead of their own",
            "receiver",
        )
        self.fallback = counter(
            "nodewarden_notify_fallback_total", "Groups told to the second receiver too", "receiver"
        )
        self.dropped = counter(
            "nodewarden_notify_dropped_total", "Change events that had no room", "receiver"
        )
        self.not_saved = counter(
            "nodewarden_notify_not_saved_total", "Times the state could not be written"
        )
        self.waiting = gauge(
            "nodewarden_notify_waiting", "Groups that nobody was told of yet", "receiver"
        )
        self.oldest_s = gauge(
            "nodewarden_notify_oldest_waiting_seconds",
            "Age of the oldest of them: over a minute is bad",
            "receiver",
        )
