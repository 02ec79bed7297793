"""Exporters' /metrics into cells and Xid events: each asked in turn, never two at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from collectors.agent.cells import Cells
from collectors.agent.fetch import Endpoint
from collectors.agent.patience import Patience
from collectors.exposition import Sample, ScrapeParser
from collectors.gauge_events import FORM_OF, GaugeEvents, Reading, xid_label
from collectors.gpu_names import GpuNames
from telemetry.errors import SourceUnavailable
from telemetry.ports import Clock
from telemetry.records import Event, Gpu, Rejected

SAMPLES_MAX = 65_536  # of one scrape
REJECTED_MAX = 20  # kept of one scrape; all are counted
FORGET_SCRAPES = 360  # labels change with every job: what is remembered is dropped now and then


@dataclass(slots=True)
class Scraped:
    """One round over all exporters.

    failures   what did not answer and why
    rejected   the first broken lines; `broken` counts all
    """

    events: list[Event] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    broken: int = 0
    scrapes: int = 0
    skipped: int = 0


class Exporters:
    """The exporters of one node; their labels never decide whose values they are."""

    def __init__(self, endpoints: Sequence[Endpoint], node: str, clock: Clock) -> None:
        self._node, self._clock = node, clock
        self._exporters = [_Exporter(endpoint) for endpoint in endpoints]
        self._gauges = GaugeEvents()
        self._gpus = GpuNames()

    def read(self, cells: Cells, at_s: float) -> Scraped:
        """Ask every exporter that is not left alone for a while; `at_s` is the moment's time."""
        scraped = Scraped()
        gpus = GpuNames()
        for exporter in self._exporters:
            if not exporter.patience.is_over(self._clock.monotonic_s()):
                scraped.skipped += 1
                continue
            scraped.scrapes += 1
            try:
                samples = exporter.samples(scraped)
            except SourceUnavailable as error:
                exporter.patience.failed(self._clock.monotonic_s())
                scraped.failures.append(str(error))
                continue
            exporter.patience.worked()
            for sample in samples:
                self._take(sample, cells, gpus)
            scraped.events += self._events(samples, at_s, first=exporter.first)
            exporter.first = False
        if gpus.gpus(self._node):
            self._gpus = gpus
        return scraped

    def gpus(self) -> list[Gpu]:
        """The GPUs that the labels of the newest scrape name, by index."""
        return self._gpus.gpus(self._node)

    def _take(self, sample: Sample, cells: Cells, gpus: GpuNames) -> None:
        series = sample.series
        if series.metric is None:
            return
        if series.metric.device == "gpu":
            gpus.add(self._node, series.labels)
        # A count of Xids has one series a code: it is no column of a frame.
        if series.owner.entity and FORM_OF.get(series.metric.name, "last") == "last":
            cells.add(series.metric, series.owner.entity, sample.value)

    def _events(self, samples: Sequence[Sample], at_s: float, *, first: bool) -> list[Event]:
        readings = [
            Reading(self._node, one.series.owner.entity, FORM_OF[one.series.metric.name], at_s,
                    one.value, xid_label(one.series.labels), first)
            for one in samples
            if one.series.metric is not None and one.series.metric.name in FORM_OF
        ]  # fmt: skip
        readings.sort(key=lambda reading: (reading.form, reading.instance, reading.code))
        return [event for reading in readings for event in self._gauges.read(reading)]


class _Exporter:
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.patience = Patience()
        self.first = True
        self._parser = ScrapeParser(endpoint.url)
        self._scrapes = 0

    def samples(self, scraped: Scraped) -> list[Sample]:
        """A whole scrape; half of one would look like metrics that vanished."""
        if self._scrapes % FORGET_SCRAPES == 0:
            self._parser = ScrapeParser(self._endpoint.url)
        self._scrapes += 1
        samples: list[Sample] = []
        for found in self._parser.read(self._endpoint.pieces()):
            if isinstance(found, Rejected):
                scraped.broken += 1
                if len(scraped.rejected) < REJECTED_MAX:
                    scraped.rejected.append(found)
            elif len(samples) < SAMPLES_MAX:
                samples.append(found)
            else:
                raise SourceUnavailable(
                    f"{self._endpoint.url}: more than {SAMPLES_MAX} samples that we know"
                )
        return samples
