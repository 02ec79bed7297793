"""Seeded, labelled telemetry of a synchronous training job: records in order of arrival.

The same arguments give the same bytes on every machine. Memory is bounded: the run is made
window by window and never held.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np

from evaluation.cluster import JOB, Cluster, ExtraPort
from evaluation.devices import Devices, Gpus, Moment, Ports
from evaluation.fault_kinds import Touch
from evaluation.faults import KINDS, Fault, FaultSpec, place_faults
from evaluation.incidentals import fault_events
from evaluation.noise import FloatArray, Noise, milliseconds
from evaluation.ranks import RankSteps
from evaluation.training import Step, Training
from telemetry.errors import SettingsError
from telemetry.records import (
    KIND_ORDER,
    Allocation,
    Beat,
    Frame,
    Hardware,
    Record,
    Settings,
    Steps,
)
from telemetry.settings import EngineSettings, settings_digest

START_S = 1_790_000_000.0
GPU_INTERVAL_S = 15.0
NIC_INTERVAL_S = 60.0
STEP_TIME_S = 5.2
ENGINE_VERSION = "0.1.0"
DRIVER, FIRMWARE = "580.95.05", "28.44.1036"
REQUEUE_S = 2.0  # until the scheduler starts a job anew that ended
LISTING_S = 600.0
BLANK_SHARE, MISSED_SHARE = 0.0005, 0.001
JITTER_S = 0.3
DELAY_MIN_S, DELAY_MAX_S = 0.02, 0.25
_GPU_SCHEDULE, _NIC_SCHEDULE, _DELAYS = 11, 12, 13

_Key = tuple[float, int, str, str, int]
_Item = tuple[_Key, Record]


class Simulation:
    """One run. `records` may be called again and starts anew."""

    def __init__(
        self,
        nodes: int,
        gpus: int = 8,
        *,
        minutes: float,
        seed: int = 0,
        faults: Sequence[FaultSpec] = (),
        start_s: float = START_S,
        gpu_interval_s: float = GPU_INTERVAL_S,
        nic_interval_s: float = NIC_INTERVAL_S,
        step_time_s: float = STEP_TIME_S,
        rank_steps: bool = True,
        settings: EngineSettings | None = None,
    ) -> None:
        for name, value in (("minutes", minutes), ("intervals", gpu_interval_s),
                            ("intervals", nic_interval_s), ("step time", step_time_s)):  # fmt: skip
            if not 0.0 < value < 1e7:
                raise SettingsError(f"{name} must be positive, not {value:g}")
        extra: ExtraPort = ""
        for spec in faults:
            extra = extra or (KINDS[spec.kind].extra_port if spec.kind in KINDS else "")
        self.cluster = Cluster(nodes, gpus, seed, extra)
        self.start_s = start_s
        self.end_s = start_s + minutes * 60.0
        self.faults = place_faults(faults, self.cluster, start_s, self.end_s)
        self.rank_steps = rank_steps
        self.step_time_s = step_time_s
        self.interval_s = {"gpu": gpu_interval_s, "nic": nic_interval_s}
        base = EngineSettings() if settings is None else settings
        ticks = msgspec.structs.replace(base.ticks, interval_s=self.interval_s)
        self.settings = msgspec.structs.replace(base, ticks=ticks)

    def truth(self) -> dict[str, Any]:
        """What was injected, in the form of `truth.json`."""
        return {"faults": [fault.truth(self.cluster) for fault in self.faults]}

    def records(self) -> Iterator[tuple[float, Record]]:
        """(arrival, record) in order of arrival, Unix seconds."""
        window_s = min(self.interval_s.values())
        training = Training(self.start_s, self.step_time_s, self.faults, self.cluster.seed)
        sources = [
            Source(self, "gpu", Gpus(self.cluster, self.faults), training, _GPU_SCHEDULE),
            Source(self, "nic", Ports(self.cluster, self.faults), training, _NIC_SCHEDULE),
        ]
        desk = Desk(self)
        steps: deque[Step] = deque()  # ended in the future, known because GPUs show them before
        pending: list[_Item] = list(desk.opening())
        from_s = self.start_s
        while from_s < self.end_s:
            to_s = min(from_s + window_s, self.end_s)
            horizon_s = to_s + max(self.interval_s.values()) + 1.0
            steps.extend(training.advance(horizon_s))
            while steps and steps[0].end_s < to_s:
                pending += desk.steps(steps.popleft())
            pending += desk.beats(from_s, to_s)
            pending += desk.events(from_s, to_s)
            pending += desk.listings(from_s, to_s)
            for source in sources:
                pending += source.frames(from_s, to_s)
            pending.sort(key=itemgetter(0))
            # Whatever a later window adds has an event time, and so an arrival, past `to_s`.
            cut = bisect_left(pending, to_s, key=lambda item: item[0][0])
            for key, record in pending[:cut]:
                yield key[0], record
            del pending[:cut]
            from_s = to_s
        for key, record in pending:
            yield key[0], record


class Source:
    """One source on all nodes: scrapes with a phase of their own, blanks and gaps."""

    def __init__(
        self,
        run: Simulation,
        name: str,
        devices: Devices,
        training: Training,
        purpose: int,
    ) -> None:
        self._run, self._name, self._devices, self._training = run, name, devices, training
        self._noise = Noise(run.cluster.seed, purpose)
        self._interval_s = run.interval_s[name]
        nodes = run.cluster.nodes
        self._phase = self._noise.rng.random(nodes) * (0.98 * self._interval_s)
        self._tick = 0
        self._before = run.start_s + self._phase - self._interval_s
        self._entities = [self._entity_names(place, False) for place in range(nodes)]
        self._renamed = {
            (p, f): self._entity_names(p, True)
            for f in run.faults
            if f.what.renames
            for p in f.places
        }
        self._lost = [f for f in run.faults if f.what.lost]
        self._mutes = [f for f in run.faults if f.is_quiet]
        self._frozen = [f for f in run.faults if f.what.frozen]
        self._last: dict[int, list[list[float | None]]] = {}
        self._gone = [f for f in run.faults if f.what.gone]
        self._host = [f for f in run.faults if any(_is_host(t) for t in f.what.touches)]
        self._streams = Streams(run)
        self._names = devices.names

    def frames(self, from_s: float, to_s: float) -> Iterator[_Item]:
        """The frames of all ticks that start in [from_s, to_s)."""
        while (start_s := self._run.start_s + self._tick * self._interval_s) < to_s:
            yield from self._one_tick(start_s)
            self._tick += 1

    def _one_tick(self, start_s: float) -> Iterator[_Item]:
        run, nodes = self._run, self._run.cluster.nodes
        jitter = self._noise.uniform(0.0, min(JITTER_S, 0.02 * self._interval_s), nodes)
        at = milliseconds(start_s + self._phase + jitter)
        state, load = self._training.states(at)
        moment = Moment(at, self._before, state, load)
        values = self._devices.read(moment)
        self._before = at
        rows: list[list[list[float | None]]] = values.tolist()
        self._blank(rows, values.shape)
        for fault in self._lost:
            if self._name == "gpu" and fault.active(float(at[fault.place])):
                for row in rows[fault.place]:
                    row[fault.gpu] = None
        self._freeze(rows, at)
        arrival = milliseconds(at + self._noise.uniform(DELAY_MIN_S, DELAY_MAX_S, nodes))
        heard = self._noise.rng.random(nodes) >= MISSED_SHARE
        extra = self._node_metrics(at) if self._name == "nic" else None
        times, arrivals = at.tolist(), arrival.tolist()
        for place in np.flatnonzero(heard).tolist():
            if times[place] >= run.end_s or muted(self._mutes, place, times[place], self._name):
                continue
            more = {} if extra is None else {name: row[place] for name, row in extra.items()}
            yield self._frame(place, times[place], arrivals[place], rows[place], more)

    def _frame(
        self,
        place: int,
        at_s: float,
        arrival_s: float,
        rows: list[list[float | None]],
        more: dict[str, list[float | None]],
    ) -> _Item:
        node = self._run.cluster.names[place]
        started_s, seq = self._streams.next(place, self._name, at_s)
        metrics = dict(zip(self._names, rows, strict=True))
        metrics.update(more)
        for fault in self._gone:
            if fault.active(at_s):
                metrics.pop(fault.what.gone, None)
        entities = self._entities[place]
        for (renamed, fault), names in self._renamed.items():
            if renamed == place and at_s >= fault.back_s:
                entities = names
        frame = Frame(
            at=at_s, node=node, source=self._name, started_at=started_s, seq=seq,
            sent_at=at_s, entities=entities, metrics=metrics,
        )  # fmt: skip
        return (arrival_s, KIND_ORDER[Frame], node, self._name, seq), frame

    def _blank(self, rows: list[list[list[float | None]]], shape: tuple[int, ...]) -> None:
        """Make a small share of the values null, as exporters do."""
        _, metrics, units = shape
        size = shape[0] * metrics * units
        for flat in self._noise.places(size, BLANK_SHARE).tolist():
            place, rest = divmod(flat, metrics * units)
            rows[place][rest // units][rest % units] = None

    def _freeze(self, rows: list[list[list[float | None]]], at: FloatArray) -> None:
        """Where an exporter is frozen, its GPUs say again what they said before."""
        if not self._frozen or self._name != "gpu":
            return
        for fault in self._frozen:
            for place in fault.places:
                if fault.active(float(at[place])) and place in self._last:
                    rows[place] = self._last[place]
                self._last[place] = rows[place]

    def _node_metrics(self, at: FloatArray) -> dict[str, list[list[float | None]]]:
        """Load and free memory of the hosts, which travel with the NIC source."""
        nodes = self._run.cluster.nodes
        values = {
            "host_load1": 22.0 + 2.0 * self._noise.normal(nodes, 1),
            "host_memory_available_bytes": 1.5e12 + 2e10 * self._noise.normal(nodes, 1),
        }
        for fault in self._host:
            for touch in filter(_is_host, fault.what.touches):
                for place in fault.places:
                    if fault.active(float(at[place])):
                        values[touch.metric][place] *= touch.sized(fault.size)
        load = np.rint(values["host_load1"] * 100.0) / 100.0
        free = np.floor(values["host_memory_available_bytes"])
        return {"host_load1": load.tolist(), "host_memory_available_bytes": free.tolist()}

    def _entity_names(self, place: int, renamed: bool) -> dict[str, list[str]]:
        if self._name == "gpu":
            return {"gpu": [gpu.uuid for gpu in self._run.cluster.gpu_list(place)]}
        return {"nic": self._run.cluster.port_names(renamed), "node": ["node"]}


class Streams:
    """When the agent that writes a node's stream started, and the stream's next number."""

    def __init__(self, run: Simulation) -> None:
        self._start_s = run.start_s
        self._backs = {
            place: fault.back_s
            for fault in run.faults
            if fault.what.comeback
            for place in fault.places
        }
        self._seq: dict[tuple[int, str, float], int] = {}

    def next(self, place: int, source: str, at_s: float) -> tuple[float, int]:
        """(start of the agent, number of this record); place -1 is the job's own stream."""
        started_s = self._start_s
        if place in self._backs and at_s >= self._backs[place]:
            started_s = self._backs[place]
        key = (place, source, started_s)
        seq = self._seq.get(key, 0)
        self._seq[key] = seq + 1
        return started_s, seq


class Desk:
    """Everything but frames: settings, hardware, listings, beats, events and steps."""

    def __init__(self, run: Simulation) -> None:
        self._run = run
        self._noise = Noise(run.cluster.seed, _DELAYS)
        self._streams = Streams(run)
        self._mutes = [f for f in run.faults if f.is_quiet]
        self._boots = [f for f in run.faults if f.what.comeback == "boot"]
        self._rank_lists = [run.cluster.ranks(place) for place in range(run.cluster.nodes)]
        self._ranks = RankSteps(run.cluster, run.faults, run.step_time_s)
        self._events = sorted(
            fault_events(run.cluster, run.faults, run.end_s), key=lambda e: (e.at, e.node)
        )
        self._sent_s: dict[str, float] = {}
        self._restarts = sorted(
            fault.onset_s + REQUEUE_S
            for fault in run.faults
            if fault.what.job == "restarts" or fault.what.phase in ("init", "first")
        )
        self._beat = 0
        self._listing = 1

    def opening(self) -> Iterator[_Item]:
        """What stands first in the log."""
        yield from self._inventory(self._run.start_s)

    def listings(self, from_s: float, to_s: float) -> Iterator[_Item]:
        """The inventory again, every ten minutes; a new attempt of the job at once."""
        for at_s in self._restarts:
            if from_s <= at_s < to_s:
                jobs = [self._run.cluster.job(self._run.start_s, self._attempt(at_s))]
                change = Allocation(**self._header("", "inventory", at_s), jobs=jobs)
                yield self._item(change, 0.002)
        while (at_s := self._run.start_s + self._listing * LISTING_S) < to_s:
            yield from self._inventory(at_s)
            self._listing += 1

    def beats(self, from_s: float, to_s: float) -> Iterator[_Item]:
        """A beat every few seconds."""
        period_s = self._run.settings.ticks.beat_s
        while (at_s := self._run.start_s + self._beat * period_s) < to_s:
            self._beat += 1
            yield self._item(Beat(**self._header("", "beat", at_s)), 0.001)

    def events(self, from_s: float, to_s: float) -> Iterator[_Item]:
        """What the kernel and the training log say of the faults, and nodes that come back."""
        first = bisect_left(self._events, from_s, key=lambda e: e.at)
        last = bisect_left(self._events, to_s, key=lambda e: e.at)
        for fault in self._boots:
            if from_s <= fault.back_s < to_s:
                for place in fault.places:
                    yield self._hardware(place, fault.back_s)
        for event in self._events[first:last]:
            place = self._run.cluster.index.get(event.node, -1)
            if muted(self._mutes, place, event.at, event.source):
                continue
            numbered = msgspec.structs.replace(
                event, **self._header(event.node, event.source, event.at)
            )
            # A reader sends the lines of one log in their order.
            least_s = self._sent_s.get(event.node, 0.0)
            delay_s = max(self._delay_s(), least_s - event.at)
            self._sent_s[event.node] = event.at + delay_s
            yield self._item(numbered, delay_s)

    def steps(self, step: Step) -> Iterator[_Item]:
        """The job's line, and the nodes' own columns where they are due."""
        header = self._header("", "training", step.end_s)
        yield self._item(job_steps(step, header), self._delay_s())
        if not self._run.rank_steps:
            return
        for place, times in self._ranks.due(step):
            if muted(self._mutes, place, step.end_s, "training"):
                continue
            node = self._run.cluster.names[place]
            record = Steps(
                **self._header(node, "training", step.end_s),
                job=JOB,
                step_kind=step.kind,
                ranks=self._rank_lists[place],
                step=[step.number],
                step_time_s=[step.time_s],
                compute_time_s=times,
            )
            yield self._item(record, self._delay_s())

    def _inventory(self, at_s: float) -> Iterator[_Item]:
        run, cluster = self._run, self._run.cluster
        settings = Settings(
            **self._header("", "settings", at_s),
            digest=settings_digest(run.settings), engine_version=ENGINE_VERSION,
            settings=run.settings,
        )  # fmt: skip
        yield self._item(settings, 0.0)
        for place in range(cluster.nodes):
            if not muted(self._mutes, place, at_s, "hardware"):
                yield self._hardware(place, at_s)
        listing = Allocation(
            **self._header("", "inventory", at_s), 
            jobs=[cluster.job(run.start_s, self._attempt(at_s))],
            nodes=cluster.node_infos(), listing=f"{at_s:.0f}", last=True, count=1,
        )  # fmt: skip
        yield self._item(listing, 0.002)

    def _attempt(self, at_s: float) -> int:
        """How often the job was started anew until then."""
        return sum(restart_s <= at_s for restart_s in self._restarts)

    def _hardware(self, place: int, at_s: float) -> _Item:
        """What the node is made of, as its agent says it."""
        cluster = self._run.cluster
        boots = [f for f in self._boots if place in f.places and at_s >= f.back_s]
        renamed = any(fault.what.renames for fault in boots)
        hardware = Hardware(
            **self._header(cluster.names[place], "hardware", at_s),
            boot_id=cluster.boot_id(place, len(boots)),
            serial=cluster.serial(place),
            gpus=cluster.gpu_list(place),
            ports=cluster.port_list(renamed),
            driver=DRIVER,
            firmware=FIRMWARE,
        )
        return self._item(hardware, 0.001)

    def _header(self, node: str, source: str, at_s: float) -> dict[str, Any]:
        place = self._run.cluster.index.get(node, -1)
        started_s, seq = self._streams.next(place, source, at_s)
        return {
            "at": at_s, "node": node, "source": source, "started_at": started_s,
            "seq": seq, "sent_at": at_s,
        }  # fmt: skip

    def _delay_s(self) -> float:
        return DELAY_MIN_S + (DELAY_MAX_S - DELAY_MIN_S) * float(self._noise.rng.random())

    def _item(self, record: Record, delay_s: float) -> _Item:
        arrival_s = round(record.at + delay_s, 3)
        return (
            (arrival_s, KIND_ORDER[type(record)], record.node, record.source, record.seq),
            record,
        )


def job_steps(step: Step, header: dict[str, Any]) -> Steps:
    """The step as one log of the whole job says it."""
    missing = [name for name in ("loss", "grad_norm") if getattr(step, name) is None]
    return Steps(
        **header,
        job=JOB,
        step_kind=step.kind,
        step=[step.number],
        step_time_s=[step.time_s],
        loss=[step.loss],
        grad_norm=[step.grad_norm],
        tokens=[float(step.tokens)],
        throughput=[step.throughput],
        nonfinite=[missing] if missing else [],
    )


def muted(faults: Sequence[Fault], place: int, at_s: float, source: str) -> bool:
    """Whether that source of a node's telemetry has stopped."""
    return bool(faults) and any(fault.mutes(place, at_s, source) for fault in faults)


def _is_host(touch: Touch) -> bool:
    return touch.metric.startswith("host_")
