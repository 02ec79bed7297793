"""The text that an exporter answers to a scrape, into samples. Pure.

Reads dcgm-exporter of every generation, nvidia_gpu_exporter, AMD's device-metrics-exporter,
Ascend's npu-exporter, node_exporter and whoever else writes the format. What a line's name and
labels say is worked out once; from then on a line costs a lookup and a number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from collectors import files
from collectors.missing import missing_reason
from collectors.series import (
    SERIES,
    SERIES_BYTES_MAX,
    STEP_COLUMNS,
    Owner,
    Workload,
    clean_one,
    entity_of,
    number,
    owner_of,
    read_labels,
    unattributed,
    workload_of,
)
from telemetry.codec import AT_MAX_S, AT_MIN_S, rejected
from telemetry.metrics import Metric, recognise
from telemetry.records import Rejected

LINE_BYTES_MAX = 65_536
SERIES_MAX = 200_000  # remembered; beyond it they are read anew
LABELS_MAX = 20_000


@dataclass(slots=True, eq=False)
class ScrapeSeries:
    """One series of one exporter.

    name      as the exporter has it
    metric    its row of the catalogue; None where it is not ours, or of another class of device
    column    the column of `Steps` that a training exporter's gauge fills, else ""
    owner     the device and its name; "" where the labels name none
    fault     why its samples cannot be used, "" where they can
    scrape    the newest scrape that had it
    """

    name: str
    metric: Metric | None
    column: str
    owner: Owner
    labels: dict[str, str]
    workload: Workload
    fault: str = ""
    scrape: int = -1


@dataclass(frozen=True, slots=True)
class Sample:
    """One value.

    value     in the catalogue's unit (of names that are not ours: as printed), None missing
    missing   why there is none: "blank", "not supported", "range", "nan", "error", ...
    at_s      the explicit time, Unix seconds, where it is one
    repeated  the same series stood in this scrape before
    """

    series: ScrapeSeries
    value: float | None
    missing: str = ""
    at_s: float | None = None
    repeated: bool = False


@dataclass(slots=True, eq=False)
class _Labels:
    """One label text: forty metrics of one GPU carry the same, so it is worked out once.

    owners   device class of a metric -> whom the labels name for it
    """

    labels: dict[str, str]
    workload: Workload
    owners: dict[str, Owner] = field(default_factory=dict)

    def owner(self, device: str) -> Owner:
        """Whom they name."""
        if device not in self.owners:
            self.owners[device] = owner_of(self.labels, device)
        return self.owners[device]


@dataclass(slots=True)
class ScrapeParser:
    """Scrapes of one exporter in, samples and rejected lines out; `read` as often as it answers.

    place    where it comes from, for the rejected
    every    also of names that the catalogue does not know
    blanked  (metric name, reason) -> samples without a value
    """

    place: str
    every: bool = False
    blanked: Counter[tuple[str, str]] = field(default_factory=Counter)
    _series: dict[bytes, ScrapeSeries | None] = field(default_factory=dict)
    _labels: dict[bytes, _Labels] = field(default_factory=dict)
    _names: dict[bytes, str] = field(default_factory=dict)
    _scrape: int = -1

    def read(self, pieces: Iterable[bytes]) -> Iterator[Sample | Rejected]:
        """One scrape, line by line; a broken line costs only itself."""
        self._scrape += 1
        known, scrape = self._series, self._scrape
        for place, line in enumerate(files.lines(iter(pieces), LINE_BYTES_MAX), 1):
            if not line or line[0] == 35:  # "#": help, type, free comments, the end mark
                continue
            cut = line.rfind(b"}") + 1 or line.find(b" ")
            key = line[:cut]
            series: ScrapeSeries | str | None
            if key in known:
                series = known[key]
            elif line.isspace():
                continue
            else:
                series = self._meet(line, cut)
            if series is None:
                continue
            if isinstance(series, str):
                yield self._reject(series, line, place)
                continue
            if key not in known:  # what stands before the number is more than a series
                yield self._slowly(series, line, place)
                continue
            rest = line[cut:]
            try:
                value = float(rest)
            except ValueError:
                yield self._slowly(series, line, place)
                continue
            if series.fault or b"_" in rest or len(line) > LINE_BYTES_MAX:
                yield self._slowly(series, line, place)
                continue
            repeated, series.scrape = series.scrape == scrape, scrape
            yield self._valued(series, value, rest, None, repeated)

    def _valued(
        self, series: ScrapeSeries, value: float, word: bytes, at_s: float | None, repeated: bool
    ) -> Sample:
        if series.metric is None:
            if not math.isfinite(value):
                return Sample(series, None, "nan" if math.isnan(value) else "range", at_s, repeated)
            return Sample(series, value, "", at_s, repeated)
        cleaned, missing = clean_one(series.metric, value, word)
        if missing:
            self.blanked[series.metric.name, missing] += 1
        return Sample(series, cleaned, missing, at_s, repeated)

    def _meet(self, line: bytes, cut: int) -> ScrapeSeries | str | None:
        """The series of a line that starts like none before, why it is none, or None: not ours.

        Kept under the bytes before `cut` where those are the series whole.
        """
        brace = line.find(b"{")
        name = self._names.get(line[:brace]) if brace > 0 else None
        labels = self._labels.get(line[brace + 1 : cut - 1]) if name is not None else None
        if name is None or labels is None:
            found = SERIES.match(line[: SERIES_BYTES_MAX + 1] + b" ", 0, SERIES_BYTES_MAX)
            if found is None:
                return "no series name"
            if found[0].rstrip() != line[:cut]:
                return self._made(found[1], found[2])
            series = self._made(found[1], found[2])
        else:
            series = self._joined(name, labels)
        if len(self._series) >= SERIES_MAX:
            self._series.clear()
        self._series[line[:cut]] = series
        return series

    def _slowly(self, series: ScrapeSeries, line: bytes, place: int) -> Sample | Rejected:
        """A line with a word, a time or nothing at all where its number should be."""
        found = SERIES.match(line + b" ", 0, SERIES_BYTES_MAX)
        if found is None or len(line) > LINE_BYTES_MAX:
            return self._reject("line too long", line, place)
        if series.fault:
            return self._reject(series.fault, line, place)
        rest = line[found.end() :].split(b" # ", 1)[0].strip()
        words = rest.split()
        if not words:
            return self._reject("no value", line, place)
        value = number(words[0])
        if value is not None:
            stamp = number(words[1]) if len(words) > 1 else None
            if len(words) > 2 or (len(words) > 1 and stamp is None):
                return self._reject("no time behind the value", line, place)
            repeated, series.scrape = series.scrape == self._scrape, self._scrape
            return self._valued(series, value, words[0], stamp_s(stamp), repeated)
        reason = missing_reason(rest.decode("utf-8", "replace"))
        if reason is None:
            return self._reject("the value is no number", line, place)
        if series.metric is not None:
            self.blanked[series.metric.name, reason] += 1
        repeated, series.scrape = series.scrape == self._scrape, self._scrape
        return Sample(series, None, reason, None, repeated)

    def _made(self, name: bytes, text: bytes | None) -> ScrapeSeries | None:
        text = text or b""
        labels = self._labels.get(text)
        if labels is None:
            read = read_labels(text)
            if read is None:
                faulty = "labels cannot be read"
                return ScrapeSeries(name.decode(), None, "", Owner("", ""), {}, Workload(), faulty)
            if len(self._labels) >= LABELS_MAX:
                self._labels.clear()
            labels = self._labels[text] = _Labels(read, workload_of(read))
        if len(self._names) >= LABELS_MAX:
            self._names.clear()
        self._names[name] = name.decode()
        return self._joined(self._names[name], labels)

    def _joined(self, name: str, of: _Labels) -> ScrapeSeries | None:
        """The series of a name with its labels, None where it is not ours."""
        metric = recognise(name)
        if metric is None:
            column = STEP_COLUMNS.get(name, "")
            if not column and not self.every:
                return None
            return ScrapeSeries(name, None, column, of.owner(""), of.labels, of.workload)
        owner = of.owner(metric.device)
        entity = entity_of(metric, name, owner)
        if entity is None:  # the same field of another device
            other = ScrapeSeries(name, None, "", of.owner(""), of.labels, of.workload)
            return other if self.every else None
        fault = unattributed(metric, entity)
        if entity != owner.entity:
            owner = Owner(metric.device, entity)
        return ScrapeSeries(name, metric, "", owner, of.labels, of.workload, fault)

    def _reject(self, reason: str, line: bytes, place: int) -> Rejected:
        return rejected(reason, line, f"{self.place}:{place}")


def stamp_s(stamp: float | None) -> float | None:
    """Unix seconds of an explicit time stamp, None where it is no time of this century.

    The format has milliseconds, OpenMetrics seconds with a fraction. Ascend's exporter writes whole
    seconds, which the format makes January 1970: no time at all, and not guessed at.
    """
    if stamp is None:
        return None
    if AT_MIN_S * 1e3 <= stamp < AT_MAX_S * 1e3:
        return stamp / 1e3
    if AT_MIN_S <= stamp < AT_MAX_S and stamp != int(stamp):
        return stamp
    return None
