"""The worker's own metrics, read off its shards when Prometheus asks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streams.blindness import blindness

if TYPE_CHECKING:
    from streams.live.worker import StreamWorker

_PER_SHARD = (
    ("records", "Records taken out of the log"),
    ("used", "Records that were used"),
    ("late", "Frames that came after their tick had closed"),
    ("duplicate", "Records whose sequence number was seen before"),
    ("rejected", "Records that could not be used; they are kept in nodewarden.rejected"),
    ("control", "Records about the log itself"),
    ("lost", "Holes in sequence numbers that nobody filled"),
    ("skewed", "Records whose time was corrected by the error of their node's clock"),
    ("junk", "Values outside their physical range"),
)
_TOTALS = (
    ("published", "Findings, incidents and rejected records that were published"),
    ("muted", "Repeats after a restart that were not said again"),
    ("conflicts", "Repeats whose content was another; always 0 in a healthy worker"),
    ("snapshots", "Snapshots kept"),
    ("snapshot_bytes", "Bytes of the chunks of all snapshots"),
    ("loads", "Times a shard was taken over"),
    ("cold_starts", "Take-overs without a snapshot that fits the log: the state before is lost"),
    ("skipped", "Records that were deleted before they were folded"),
)


class WorkerMetrics(Collector):
    """All metrics of one worker."""

    def __init__(self, worker: StreamWorker) -> None:
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        """Read everything now."""
        shards = list(self._worker.shards.values())
        for name, text in _PER_SHARD:
            family = CounterMetricFamily(f"nodewarden_stream_{name}", text, labels=["shard"])
            for shard in shards:
                family.add_metric([shard.name], getattr(shard.fold.counters, name))
            yield family
        found = CounterMetricFamily(
            "nodewarden_stream_findings", "Findings opened", labels=["shard", "detector"]
        )
        for shard in shards:
            for detector, count in list(shard.fold.counters.findings.items()):
                found.add_metric([shard.name, detector], count)
        yield found
        for name, text in _TOTALS:
            value = getattr(self._worker.totals, name)
            yield CounterMetricFamily(f"nodewarden_stream_{name}", text, value=value)
        yield from self._gauges(time.time())

    def _gauges(self, now_s: float) -> Iterator[Metric]:
        lag = GaugeMetricFamily(
            "nodewarden_stream_lag_records", "Records that wait in the log", labels=["shard"]
        )
        share = GaugeMetricFamily(
            "nodewarden_stream_lag_retention_ratio",
            "Lag over the length of the log: at 1 the oldest waiting records are deleted",
            labels=["shard"],
        )
        delay = GaugeMetricFamily(
            "nodewarden_stream_delay_seconds", "Age of the newest record taken", labels=["shard"]
        )
        open_ = GaugeMetricFamily(
            "nodewarden_stream_incidents_open", "Incidents that are open", labels=["shard"]
        )
        settled = GaugeMetricFamily(
            "nodewarden_stream_settled_offset",
            "Offset before which all is folded and what was said of it is acknowledged",
            labels=["shard"],
        )
        for partition, shard in list(self._worker.shards.items()):
            settled.add_metric([shard.name], shard.settled_offset)
            end = self._worker.ends.get(partition, shard.offset)
            begin = self._worker.begins.get(partition, 0)
            waiting = max(end - shard.offset, 0)
            lag.add_metric([shard.name], waiting)
            share.add_metric([shard.name], waiting / max(end - begin, 1))
            if shard.kind == "live" and shard.fold.now > 0.0:
                delay.add_metric([shard.name], max(now_s - shard.fold.now, 0.0))
            incidents = list(shard.fold.judge.docket.incidents.values())
            open_.add_metric([shard.name], sum(i.closed_at is None for i in incidents))
        yield from (lag, share, delay, open_, settled)
        yield from self._blind()
        yield self._snapshot_age(time.monotonic())
        yield GaugeMetricFamily(
            "nodewarden_stream_load_seconds", "How long the last take-over took",
            value=self._worker.totals.load_s,
        )  # fmt: skip
        yield GaugeMetricFamily(
            "nodewarden_stream_stood_still_seconds", "Time since records were last folded",
            value=self._worker.stood_still_s(time.monotonic()),
        )  # fmt: skip

    def _blind(self) -> Iterator[Metric]:
        """Who watches the worker asks these before it says that all is well."""
        expected = GaugeMetricFamily(
            "nodewarden_stream_nodes_expected", "Nodes that should report", labels=["shard"]
        )
        blind = GaugeMetricFamily(
            "nodewarden_stream_nodes_blind", "Of these, nodes that nobody hears", labels=["shard"]
        )
        sending = GaugeMetricFamily(
            "nodewarden_stream_source_nodes", "Nodes in service that ever sent this source",
            labels=["shard", "source"],
        )  # fmt: skip
        missing = GaugeMetricFamily(
            "nodewarden_stream_source_nodes_blind", "Of these, nodes that do not send it now",
            labels=["shard", "source"],
        )  # fmt: skip
        for shard in list(self._worker.shards.values()):
            if shard.kind != "live" or not shard.fold.ready:
                continue
            found = blindness(shard.fold)
            expected.add_metric([shard.name], found.expected)
            blind.add_metric([shard.name], found.blind)
            for source, (nodes, silent) in found.sources.items():
                sending.add_metric([shard.name, source], nodes)
                missing.add_metric([shard.name, source], silent)
        yield from (expected, blind, sending, missing)

    def _snapshot_age(self, now_s: float) -> Metric:
        age = GaugeMetricFamily(
            "nodewarden_stream_snapshot_age_seconds",
            "Time since the last snapshot; 0 where nothing was folded since",
            labels=["shard"],
        )
        for partition, shard in list(self._worker.shards.items()):
            age.add_metric([shard.name], self._worker.unsaved_s(partition, now_s))
        return age
