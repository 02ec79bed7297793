"""The agent's own metrics, read off its counts when Prometheus asks."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from collectors.agent.counters import families
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
        yield from families(self._counts, "nodewarden_agent", _TOTALS)
