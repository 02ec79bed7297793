"""Reads every file of a capture once and puts what it says aside: nothing is handed out yet."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path

import msgspec

from collectors import files, layout
from collectors.absence import absence
from collectors.frames import TRAINING
from collectors.gauge_runs import GaugeRuns
from collectors.gpu_names import GpuNames
from collectors.jobs import Wiring
from collectors.kernel.times import Clock
from collectors.kernel_log import NO_DATE, KernelLog, records
from collectors.names import NodeNames
from collectors.openmetrics import SERIES_MAX, OpenMetricsParser, Run
from collectors.placing import place_of
from collectors.prometheus_api import metric_lines
from collectors.series import XID_METRICS, Series
from collectors.spill import COLUMNS_MAX, TARGETS_MAX, Column, Spill, Target
from collectors.store import RecordStore
from collectors.switch import log as switch_log
from collectors.training import stamps
from collectors.training.records import LogRecords, Told
from telemetry.codec import AT_MAX_S, AT_MIN_S
from telemetry.errors import InputError
from telemetry.metrics import BY_NAME
from telemetry.records import Allocation, Event, Rejected

NOTES_MAX = 200
BLANKED_SAID = 5
UNLISTED_SAID = 5
LAST_XID = "gpu_last_xid_code"

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Put:
    """What was put aside.

    gpus      the GPUs that series' labels name
    ports     node -> its NICs that the topology puts behind a switch: they are of the fabric
    blanked   (metric, reason) -> samples that became null
    notes     what was assumed or left out, in sentences for the report
    torn      files cut or damaged, and why; they are read to their last whole line
    """

    spill: Spill = field(default_factory=Spill)
    gpus: GpuNames = field(default_factory=GpuNames)
    store: RecordStore = field(default_factory=RecordStore)
    ports: dict[str, set[str]] = field(default_factory=dict)
    blanked: Counter[tuple[str, str]] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Say it once."""
        if text not in self.notes and len(self.notes) < NOTES_MAX:
            self.notes.append(text)

    def close(self) -> None:
        """Give the disk back."""
        self.spill.close()
        self.store.close()


class _Clock(msgspec.Struct):
    """`training/<job>/clock.json`."""

    start: float


class FirstPass:
    """Over one capture; `run` once."""

    def __init__(
        self, path: Path, listing: Allocation | None, zone: tzinfo, put: Put,
        on_progress: Progress | None, aliases: Mapping[str, str] | None = None,
        year: int | None = None, wiring: Wiring | None = None,
    ) -> None:  # fmt: skip
        self._path = path
        self._zone = zone
        self._year = year
        self._wiring = wiring or {}
        for plugs in self._wiring.values():
            for node, nic in plugs.values():
                put.ports.setdefault(node, set()).add(nic)
        self._put = put
        self._on_progress = on_progress
        self._done = 0
        self._total = layout.capture_size(path)
        self._names = NodeNames(
            [node.name for node in listing.nodes] if listing is not None else [],
            [layout.stem(file) for file in layout.kernel_files(path)],
            aliases,
        )
        self._jobs = [job.id for job in listing.jobs] if listing is not None else []
        starts = [job.start for job in listing.jobs if job.start] if listing is not None else []
        self._start_s = min(starts, default=None)
        self._places: dict[Series, tuple[Target, Column] | None] = {}
        self._told = Told()
        self._xids = GaugeRuns()

    def run(self) -> None:
        """Read all files, in the order of their names.

        Metrics first, they are always dated. Without them the training logs go before the kernel
        logs, which may print no year.
        """
        for file in layout.metric_files(self._path):
            self._metrics(file)
        self._put.spill.flush()
        no_metrics = self._put.spill.span() is None
        if no_metrics:
            self._trainings()
        near_s = self._near_s()
        for file in layout.kernel_files(self._path):
            self._kernel(file, near_s)
        for file in layout.switch_files(self._path):
            self._switch(file, near_s)
        if not no_metrics:
            self._trainings()
        for event in self._xids.events():
            self._put.store.add(event)
        self._put.store.flush()
        self._put.store.sort()
        self._say_what_is_missing()

    def _say_what_is_missing(self) -> None:
        put = self._put
        if put.store.dropped:
            put.note(f"{put.store.dropped} events and steps too many were left out")
        for target in put.spill.targets():
            metrics = {column.metric for column in put.spill.columns(target)}
            if target.source == TRAINING and "step" not in metrics:
                put.note(f"training gauges of job {target.job!r} without a training_step were"
                         " left out: they cannot be joined to a step")  # fmt: skip
        self._say_who_is_unlisted()
        self._say_what_is_off()
        if put.blanked:
            said = ", ".join(
                f"{metric} {count} {reason}"
                for (metric, reason), count in put.blanked.most_common(BLANKED_SAID)
            )
            put.note(f"{put.blanked.total()} samples held no usable value and are null: {said}")

    def _say_who_is_unlisted(self) -> None:
        """Nodes with telemetry in a capture whose jobs have others: mostly names that differ."""
        if not self._jobs:
            return
        sending = {target.node for target in self._put.spill.targets() if target.node}
        sending |= {self._names.of_file(layout.stem(f)) for f in layout.kernel_files(self._path)}
        unlisted = sorted(node for node in sending if not self._names.knows(node))
        if unlisted:
            said = ", ".join(unlisted[:UNLISTED_SAID])
            more = ", ..." if len(unlisted) > UNLISTED_SAID else ""
            self._put.note(f"{len(unlisted)} of {len(sending)} nodes with telemetry stand neither"
                           f" in a job nor in the topology: {said}{more}")  # fmt: skip

    def _say_what_is_off(self) -> None:
        """Of the kinds of devices that somebody measures: what cannot be seen all the same."""
        targets = self._put.spill.targets()
        columns = [column for target in targets for column in self._put.spill.columns(target)]
        devices = {column.device for column in columns}
        seen = {column.metric for column in columns} | self._xids.metrics
        off = absence(seen, logged=bool(layout.kernel_files(self._path))).off
        blind = [need.off for need in off if BY_NAME[need.metrics[0]].device in devices]
        if blind:
            self._put.note(f"nobody sends the metrics that would show: {', '.join(blind)}")

    def _near_s(self) -> float | None:
        """A time near which the capture lies: of metrics, of training logs, of a job's start."""
        self._put.store.sort()
        span = self._put.spill.span() or self._put.store.span()
        return span[0] if span is not None else self._start_s

    def _kernel(self, file: Path, near_s: float | None) -> None:
        node, name = self._names.of_file(layout.stem(file)), self._name(file)
        clock = Clock(
            tz=self._zone, year=self._year, near_s=near_s, boot_s=_boot(layout.boot_file(file))
        )
        for said in records(KernelLog(name, clock), self._pieces(file, []), node):
            if isinstance(said, Rejected) and said.reason == NO_DATE:
                self._put.note(f"{name}: lines without a date were left out; kernel/<node>.boot"
                               " names the boot time in Unix seconds, capture.json the year"
                               )  # fmt: skip
            self._put.store.add(said)

    def _switch(self, file: Path, near_s: float | None) -> None:
        switch, name = layout.stem(file), self._name(file)
        log = switch_log.SwitchLog(name, Clock(tz=self._zone, year=self._year, near_s=near_s))
        ports, strange = self._wiring.get(switch, {}), set()
        lines = files.lines(self._pieces(file, []), switch_log.LINE_BYTES_MAX)
        for said in switch_log.records(log, lines, switch, ports):
            if isinstance(said, Event) and not said.node and "port" in said.details:
                strange.add(said.details["port"])
            if isinstance(said, Rejected) and said.reason == switch_log.NO_DATE:
                self._put.note(f"{name}: lines without a date were left out")
            self._put.store.add(said)
        if strange:
            self._put.note(f"switch {switch}: {len(strange)} ports that it speaks of lead to no"
                           " node of jobs.json (topology, ports): they accuse nobody"
                           )  # fmt: skip

    def _trainings(self) -> None:
        for file in layout.training_files(self._path):
            job = layout.job_of(file)
            if self._jobs and job not in self._jobs:
                self._put.note(f"job {job}: has a training log, and no listing names it, so it has"
                               " no nodes; name the log's directory as the job's id"
                               )  # fmt: skip
            self._training(file)

    def _training(self, file: Path) -> None:
        rank = re.fullmatch(r"rank-(\d{1,7})", layout.stem(file))
        log = LogRecords(
            self._name(file), layout.job_of(file), self._zone,
            int(rank[1]) if rank is not None else None, _clock(file.parent / "clock.json"),
            self._told, self._year_s(),
        )  # fmt: skip
        for piece in self._pieces(file, []):
            for record in log.feed(piece):
                self._put.store.add(record)
        for record in log.finish():
            self._put.store.add(record)
        for note in log.notes():
            self._put.note(note)

    def _year_s(self) -> float | None:
        """A time near which a training log lies that tells no year."""
        if self._year is not None:
            return stamps.middle_of(self._year, self._zone)
        span = self._put.spill.span()
        return span[0] if span is not None else self._start_s

    def _metrics(self, file: Path) -> None:
        parser = OpenMetricsParser(self._name(file))
        cut: list[str] = []
        for piece in metric_lines(self._pieces(file, cut), self._name(file)):
            if isinstance(piece, Rejected):
                self._sample(piece)
                continue
            for found in parser.feed(piece):
                self._sample(found)
        for found in parser.finish(whole=not cut):
            self._sample(found)
        self._put.blanked += parser.blanked
        if parser.samples == 0:
            self._put.note(f"{self._name(file)}: no metric in it is in the catalogue")

    def _sample(self, found: Run | Rejected) -> None:
        if isinstance(found, Rejected):
            self._put.store.add(found)
            return
        if found.series not in self._places:
            if len(self._places) >= SERIES_MAX:
                self._places.clear()
            self._places[found.series] = self._place(found.series)
        place = self._places[found.series]
        if place is not None and found.series.metric is not None:
            node = place[0].node
            if found.series.metric.name in XID_METRICS:
                self._xids.add(node, found.series, found.times, found.values)
                if not found.series.entity or found.series.metric.name != LAST_XID:
                    return  # a count has one series a code: no column of a frame
            elif found.series.metric.device == "gpu":
                self._xids.heard(node, float(found.times[0]))
        if place is not None and not self._put.spill.add(*place, found.times, found.values):
            self._put.note(f"series beyond {TARGETS_MAX} sources of nodes, or {COLUMNS_MAX} of one"
                           " source, were left out")  # fmt: skip

    def _place(self, series: Series) -> tuple[Target, Column] | None:
        place = place_of(series, self._names, self._jobs)
        if place is None:
            self._put.note("series without a node's name were left out; they need one of the"
                           " labels Hostname, node, nodename, instance")  # fmt: skip
        elif series.metric is not None and series.metric.device == "gpu":
            self._put.gpus.add(place[0].node, series.labels)
        return place

    def _pieces(self, file: Path, cut: list[str]) -> Iterator[bytes]:
        def on_cut(why: str) -> None:
            cut.append(why)
            if len(self._put.torn) < NOTES_MAX:
                self._put.torn.append(f"{self._name(file)}: {why}")

        return files.pieces(file, on_cut, self._progress)

    def _progress(self, count: int) -> None:
        self._done += count
        if self._on_progress is not None:
            self._on_progress(self._done, self._total)

    def _name(self, file: Path) -> str:
        return file.name if file == self._path else file.relative_to(self._path).as_posix()


def _clock(path: Path) -> float | None:
    if not path.is_file():
        return None
    remedy = 'it holds {"start": Unix seconds}'
    try:
        start_s = msgspec.json.decode(path.read_bytes(), type=_Clock).start
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: {error}; {remedy}") from error
    if not AT_MIN_S <= start_s < AT_MAX_S:
        raise InputError(f"{path}: {start_s} is no time; {remedy}")
    return start_s


def _boot(path: Path) -> float | None:
    if not path.is_file():
        return None
    remedy = "it holds the boot time in Unix seconds"
    try:
        boot_s = float(path.read_text("ascii"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}; {remedy}") from error
    if not AT_MIN_S <= boot_s < AT_MAX_S:
        raise InputError(f"{path}: {boot_s} is no time; {remedy}")
    return boot_s
