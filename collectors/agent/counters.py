"""What an agent or a central collector counted, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from collectors.agent.counts import Counts

Texts = Mapping[str, tuple[str, str]]  # name -> what it counts, and its label or ""


def families(counts: Counts, prefix: str, texts: Texts) -> Iterator[Metric]:
    """The totals, and when each source last worked; names begin with `prefix`."""
    totals = dict(counts.totals)
    for name, (text, label) in texts.items():
        labels = [label] if label else []
        family = CounterMetricFamily(f"{prefix}_{name}", text, labels=labels)
        if not label:
            family.add_metric([], totals.get((name, ""), 0))
        for (of, labelled), count in totals.items():
            if label and of == name:
                family.add_metric([labelled], count)
        yield family
    last = GaugeMetricFamily(
        f"{prefix}_last_success_timestamp_seconds", "When a source last worked", labels=["source"]
    )
    for source, at_s in dict(counts.last_success_s).items():
        last.add_metric([source], at_s)
    yield last
