"""The agent's own metrics, read off its counts when Prometheus asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from collectors.agent.counts import Counts
from telemetry.errors import SettingsError

# our count -> what it says and what its label is
_TOTALS = {
    "scrapes": ("Exporters asked", ""),
    "scrapes_left_out": ("Exporters left alone after a failure", ""),
    "rounds_left_out": ("Rounds left out because the one before still ran", "source"),
    "errors": ("Sources that did not answer", "source"),
    "rejected": ("Lines and datagrams that could not be used", "source"),
    "records": ("Records handed over", "kind"),
    "events": ("Events read", "source"),
    "kmsg_lost": ("Kernel records overwritten before they were read", ""),
    "step_datagrams": ("Datagrams on the step socket", ""),
    "steps_dropped": ("Steps of ranks beyond the bound", ""),
}


class AgentMetrics(Collector):
    """All metrics of one agent; `of_sink` gives the sink's own (name -> value)."""

    def __init__(self, counts: Counts, of_sink: Callable[[], dict[str, float]]) -> None:
        self._counts, self._of_sink = counts, of_sink

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
        for name, value in self._of_sink().items():
            gauge = GaugeMetricFamily(f"nodewarden_agent_{name}", "Of the way to the log")
            gauge.add_metric([], value)
            yield gauge


def serve(address: str, metrics: AgentMetrics) -> Callable[[], None]:
    """Answer on HOST:PORT; gives what ends it. Raises SettingsError where the address is none."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise SettingsError(f"collect.metrics_address: {address!r} is not HOST:PORT")
    registry = CollectorRegistry()
    registry.register(metrics)
    try:
        server, thread = start_http_server(int(port), host.strip("[]") or "0.0.0.0", registry)  # noqa: S104 - an empty host is the operator's word for all
    except OSError as error:
        raise SettingsError(f"collect.metrics_address: {address}: {error.strerror}") from error

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end
