"""What the action service counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class ActMetrics:
    """One registry a process."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.active = Gauge(
            "nodewarden_act_active", "1 while this instance is the active one", registry=registry
        )
        self.paused = Gauge("nodewarden_act_paused", "1 while paused", registry=registry)
        self.waiting = Gauge(
            "nodewarden_act_waiting", "Decisions that wait for a person", registry=registry
        )
        self.decisions = Counter(
            "nodewarden_act_decisions", "Sayings of decisions", ["state"], registry=registry
        )
        self.requests = Counter(
            "nodewarden_act_requests", "What people asked for", ["verb", "accepted"],
            registry=registry,
        )  # fmt: skip
        self.unaudited = Counter(
            "nodewarden_act_refusals_unaudited",
            "Refused requests beyond the rate that the audit takes", registry=registry,
        )  # fmt: skip
        self.standby_refusals = Counter(
            "nodewarden_act_refusals_standby",
            "Refused requests to an instance that is not the active one: the audit lacks them",
            ["verb", "status"], registry=registry,
        )  # fmt: skip
        self.outcomes = Counter(
            "nodewarden_act_outcomes", "What became of commands", ["status"], registry=registry
        )
        self.recoveries = Gauge(
            "nodewarden_act_recoveries", "Jobs that are or were brought back, by their state",
            ["state"], registry=registry,
        )  # fmt: skip
        self.updates = Gauge(
            "nodewarden_act_updates", "Jobs by the state of their newest update of code or config",
            ["state"], registry=registry,
        )  # fmt: skip
        self.escalations = Gauge(
            "nodewarden_act_escalations", "Decisions that ended with nobody but a person to go on",
            registry=registry,
        )  # fmt: skip
        self.rejected = Counter(
            "nodewarden_act_rejected", "Records that could not be read", registry=registry
        )
