"""The central collector's own metrics, read off its counts when Prometheus asks."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from collectors.agent.counters import families
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
        yield from families(self._counts, "nodewarden_central", _TOTALS)
        for name, text in _GAUGES.items():
            value = self._counts.totals.get((name, ""), 0)
            yield GaugeMetricFamily(f"nodewarden_central_{name}", text, value=value)
