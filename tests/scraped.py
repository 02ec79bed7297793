"""A simulated run as `collect --prometheus` tells it: scraped, stored, read in pages. Pure.

Every exporter of a node is scraped at a moment of its own in the interval, as Prometheus does; what
was scraped is seen once it is `delay_s` old, and then all of a page at once.
"""

from __future__ import annotations

import json
import random
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import msgspec

from collectors.central.pages import Pages, Samples
from collectors.names import NodeNames
from collectors.prometheus_runs import RunReader
from evaluation.capture import write_capture
from evaluation.cluster import JOB
from evaluation.simulator import Simulation
from telemetry.records import Allocation, Beat, Record, Settings, Steps
from telemetry.settings import settings_digest
from tests.prometheus.fleet import Sample, capture_samples, training_samples

SAY_S = 0.0005  # from one record of a page to the next, as they come in
_SERIES = re.compile(r"(?P<name>\w+)\{(?P<labels>.*)\}")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_OTHERS = (Settings, Allocation, Beat)  # who else speaks on a site without agents
Arrival = tuple[float, Record]
Kept = Callable[[str, float], bool]
Stored = tuple[float, str, str]  # time, labels as JSON, value


@dataclass(frozen=True, slots=True)
class Reading:
    """How the collector reads.

    took_s   from a question to its records, by which the next page begins later
    """

    delay_s: float = 10.0
    poll_s: float = 5.0
    took_s: float = 0.06


def missing(share: float, seed: int = 5) -> Kept:
    """Whether a scrape of a node succeeded: all but a share did."""

    def kept(node: str, at_s: float) -> bool:
        return random.Random(f"{seed} {node} {at_s:.3f}").random() >= share

    return kept


def scraped(run: Simulation, directory: Path, interval_s: float) -> dict[str, list[Sample]]:
    """Node -> what is scraped of it, each sample as its own series says it."""
    write_capture(run, directory)
    found = dict(capture_samples(directory / "metrics"))
    found["training"] = _at_scrapes(training_samples(run), run, interval_s, 0.4)
    for number, (node, samples) in enumerate(_rank_samples(run).items()):
        place = (0.1 + 0.618 * number) % 1.0
        found[node] = found[node] + _at_scrapes(samples, run, interval_s, place)
    return found


def told(
    run: Simulation, stored: Sequence[Stored], interval_s: float, reading: Reading
) -> list[Arrival]:
    """(arrival, record) of the whole log: the collector's, and the inventory's and the worker's."""
    log: list[Arrival] = [
        (arrival_s, _set(record, interval_s) if isinstance(record, Settings) else record)
        for arrival_s, record in run.records()
        if isinstance(record, _OTHERS)
    ]
    log += _read(run, sorted(stored, key=itemgetter(0)), reading)
    log.sort(key=itemgetter(0))
    return log


def _set(record: Settings, interval_s: float) -> Settings:
    """The engine's settings as its operator makes them: of intervals they know what is scraped."""
    every = dict.fromkeys(record.settings.ticks.interval_s, interval_s)
    ticks = msgspec.structs.replace(record.settings.ticks, interval_s=every)
    settings = msgspec.structs.replace(record.settings, ticks=ticks)
    return msgspec.structs.replace(record, settings=settings, digest=settings_digest(settings))


def _read(run: Simulation, stored: Sequence[Stored], reading: Reading) -> Iterator[Arrival]:
    """The collector's loop: pages until all is told."""
    pages, reader = Pages(), RunReader("test")
    pages.rename(NodeNames(run.cluster.names, ()), [JOB])
    numbers: dict[tuple[str, str], int] = defaultdict(int)
    now_s, first = run.start_s + reading.delay_s, 0
    start_s = run.start_s
    while start_s < run.end_s:
        end_s = now_s - reading.delay_s
        last = bisect_right(stored, end_s, key=itemgetter(0))
        page = Samples()
        page.take(reader.read(_answer(stored[first:last])))
        assert not page.rejected, page.rejected
        came_s = now_s + reading.took_s
        for record in pages.page(page, end_s, start_s):
            stream = (record.node, record.source)
            sent = {"started_at": run.start_s, "seq": numbers[stream], "sent_at": came_s}
            yield came_s, msgspec.structs.replace(record, **sent)
            numbers[stream] += 1
            came_s += SAY_S
        start_s, first = end_s, last
        now_s = came_s + reading.poll_s


def stored(
    samples: Mapping[str, Sequence[Sample]], kept: Kept = lambda node, at_s: True, replica: str = ""
) -> list[Stored]:
    """What a Prometheus has of them; with its name as a label where it is one of a pair."""
    labels: dict[tuple[str, str], str] = {}
    found: list[Stored] = []
    for node, said in samples.items():
        for at_s, series, value in said:
            if kept(node, at_s):
                if (node, series) not in labels:
                    labels[node, series] = _labels(node, series, replica)
                found.append((at_s, labels[node, series], value))
    return found


def _labels(node: str, series: str, replica: str) -> str:
    match = _SERIES.fullmatch(series)
    assert match is not None, series
    labels = dict(_LABEL.findall(match["labels"]))
    labels |= {"instance": f"{node}:9100"} | ({"prometheus_replica": replica} if replica else {})
    return json.dumps({"__name__": match["name"], **labels})


def _answer(page: Sequence[Stored]) -> bytes:
    values: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for at_s, labels, value in page:
        values[labels].append((at_s, value))
    series = ",".join(
        f'{{"metric":{labels},"values":{json.dumps(said)}}}' for labels, said in values.items()
    )
    data = f'{{"resultType":"matrix","result":[{series}]}}'
    return f'{{"status":"success","data":{data}}}'.encode()


def _rank_samples(run: Simulation) -> dict[str, list[Sample]]:
    """Node -> the gauges of its ranks, at the moments at which they change."""
    found: dict[str, list[Sample]] = defaultdict(list)
    for _, record in run.records():
        if not isinstance(record, Steps) or not record.node:
            continue
        for rank, time_s in zip(record.ranks, record.compute_time_s, strict=True):
            labels = f'{{job_id="{JOB}",rank="{rank}"}}'
            said = [("training_step", record.step[0]), ("training_compute_time_seconds", time_s)]
            found[record.node] += [
                (record.at, f"{name}{labels}", repr(value)) for name, value in said
            ]
    return found


def _at_scrapes(
    samples: Sequence[Sample], run: Simulation, interval_s: float, place: float
) -> list[Sample]:
    """The gauges as they stand when they are scraped, `place` of the interval after its start."""
    series: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        series[sample[1]].append(sample)
    found: list[Sample] = []
    for name, said in series.items():
        at_s = run.start_s + place * interval_s
        while at_s < run.end_s:
            stands = bisect_right(said, at_s, key=itemgetter(0))
            if stands:
                found.append((round(at_s, 3), name, said[stands - 1][2]))
            at_s += interval_s
    return found
