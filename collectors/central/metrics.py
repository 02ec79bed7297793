"""The central collector's own metrics, read off its counts when Prometheus asks."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from collectors.agent.counts import Counts

# our count -> what it says and what its label is
_TOTALS = {
    "records": ("Records handed over", "kind"),
    "errors": ("Times a source did not answer, or a position was not saved", "source"),
    "rejected": ("Samples and lines that could not be used", "source"),
    "rejected_left_out": ("Of these, what was not sent on: more than 60 a minute", ""),
    "prometheus_polls": ("Times Prometheus was asked for a page", ""),
    "prometheus_samples": ("Samples of ours that it answered", ""),
    "prometheus_gap_seconds": ("Time that was never read: it lay behind the look-back", ""),
    "prometheus_left_out": ("Metrics too large to be answered, of one page", ""),
    "prometheus_nameless": ("Samples whose labels name no node", ""),
    "prometheus_beyond": ("Samples of sources or series beyond the bounds", ""),
    "syslog_received": ("Lines received", "transport"),
    "syslog_taken": ("Lines read", ""),
    "syslog_dropped": ("Lines dropped: queue (full), long, host (too many)", "reason"),
    "syslog_dropped_of": ("Lines dropped, by their sender", "sender"),
    "syslog_kernel_dropped": ("Datagrams that the kernel dropped before we read them", ""),
    "syslog_refused": ("Connections closed because there were too many", ""),
    "syslog_events": ("Events that lines told", "kind"),
    "syslog_clock": ("Lines whose time was not believed: the arrival stands for it", ""),
}
_GAUGES = {
    "prometheus_behind_seconds": "How far behind now the newest settled page ends",
    "syslog_connections": "Connections that are open",
    "syslog_waiting": "Lines that wait to be read",
}


class CentralMetrics(Collector):
    """All metrics of one central collector but those of its way to the log."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        """Read everything now."""
        totals = dict(self._counts.totals)
        for name, (text, label) in _TOTALS.items():
            labels = [label] if label else []
            family = CounterMetricFamily(f"nodewarden_central_{name}", text, labels=labels)
            if not label:
                family.add_metric([], totals.get((name, ""), 0))
            for (of, labelled), count in totals.items():
                if label and of == name:
                    family.add_metric([labelled], count)
            yield family
        for name, text in _GAUGES.items():
            value = totals.get((name, ""), 0)
            yield GaugeMetricFamily(f"nodewarden_central_{name}", text, value=value)
        last = GaugeMetricFamily(
            "nodewarden_central_last_success_timestamp_seconds", "When a source last worked",
            labels=["source"],
        )  # fmt: skip
        for source, at_s in dict(self._counts.last_success_s).items():
            last.add_metric([source], at_s)
        yield last
