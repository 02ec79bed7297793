"""The agent's own metrics, read off its counts when Prometheus asks."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from collectors.agent.counts import Counts

# our count -> what it says and what its label is
_TOTALS = {
    "scrapes": ("Exporters asked", ""),
    "scrapes_left_out": ("Exporters left alone after a failure", ""),
    "rounds_left_out": ("Rounds left out because the one before still ran", "source"),
    "errors": ("Sources that did not answer", "source"),
    "rejected": ("Lines and datagrams that could not be used", "source"),
    "rejected_left_out": ("Of these, what was not sent on: more than 60 a minute", ""),
    "records": ("Records handed over", "kind"),
    "events": ("Events read", "source"),
    "kmsg_lost": ("Kernel records overwritten before they were read", ""),
    "step_datagrams": ("Datagrams on the step socket", ""),
    "launches": ("Commands of nodewarden run that began or ended", "launch"),
    "launches_left_out": ("Ends that are no event: more than 2,000 failed in a minute", ""),
    "collective_records": ("Collectives read from files; no record carries them yet", ""),
    "steps_dropped": ("Steps of ranks beyond the bound", ""),
}


class AgentMetrics(Collector):
    """All metrics of one agent but those of its way to the log."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        """Read everything now."""
        totals = dict(self._counts.totals)
        for name, (text, label) in _TOTALS.items():
            labels = [label] if label else []
            family = CounterMetricFamily(f"nodewarden_agent_{name}", text, labels=labels)
            if not label:
                family.add_metric([], totals.get((name, ""), 0))
            for (of, labelled), count in totals.items():
                if label and of == name:
                    family.add_metric([labelled], count)
            yield family
        last = GaugeMetricFamily(
            "nodewarden_agent_last_success_timestamp_seconds", "When a source last worked",
            labels=["source"],
        )  # fmt: skip
        for source, at_s in dict(self._counts.last_success_s).items():
            last.add_metric([source], at_s)
        yield last
