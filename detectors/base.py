"""What every detector is: a fold over ticks, events and steps; sightings out.

Same input, same sightings. No clock, no log, no I/O: `now_s` is an argument. The engine owns the
windows; a detector's own state is small, bounded and can be saved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from telemetry.findings import Cause, Finding, Kind, stable_id
from telemetry.metrics import Metric
from telemetry.records import Control, Event, NodeInfo, Port, Severity, Steps

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
FlagArray = NDArray[np.int8]

CLEARED_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Place:
    """What a node belongs to at one moment; "" and None where nobody said."""

    job: str
    stage: int | None
    leaf: str
    rack: str
    pod: str


class View(Protocol):
    """The engine's inventory, read only."""

    def place(self, node: str, at_s: float) -> Place:
        """Where `node` belongs at `at_s`."""
        ...

    def job_nodes(self, job: str, at_s: float) -> Sequence[str]:
        """The job's nodes at `at_s`, sorted by name; empty where the job is unknown."""
        ...

    def running_jobs(self, at_s: float) -> Sequence[tuple[str, float | None, int]]:
        """The jobs that hold nodes at `at_s`: (id, start where known, attempt), by id."""
        ...

    def leaf_nodes(self, leaf: str) -> Sequence[str]:
        """The nodes behind a leaf switch, sorted by name."""
        ...

    def rank_node(self, job: str, rank: int) -> str:
        """The node that runs `rank`, "" where unknown."""
        ...

    def info(self, node: str) -> NodeInfo | None:
        """What the scheduler says of the node."""
        ...

    def port(self, node: str, name: str) -> Port | None:
        """What the node's hardware record says of a NIC port, None where it says nothing."""
        ...

    def named(self, name: str) -> str:
        """The node that goes by this name or alias; the name itself where nobody knows better."""
        ...

    def device(self, node: str, entity: str) -> str:
        """What the part keeps through boots and renames: a GPU's UUID, a port's GUID or address;
        of entity "" the machine's serial number; "" where unknown.
        """
        ...

    def holds(self, node: str, device: str) -> bool:
        """Whether the node's newest hardware record lists this device."""
        ...

    def reporting(self) -> Sequence[str]:
        """The nodes that are expected to report, sorted by name."""
        ...

    def last_heard_s(self, node: str) -> float | None:
        """Arrival of the newest frame or host record of the node; None if never heard."""
        ...

    def patience_s(self, node: str) -> float:
        """How long the node may be quiet before silence proves something, from its intervals.

        0 while nothing it sends comes at intervals.
        """
        ...


@dataclass(frozen=True, slots=True)
class Tick:
    """One closed tick of one source.

    index      k of [k * interval_s, (k + 1) * interval_s)
    at_s       event time of the tick's start
    nodes      node names, sorted; the column order of every array here
    group      shape (nodes,), the peer group of each node at this tick, -1 for none
    metrics    the judged metrics that the site's frames carry, the row order; may grow between
               ticks, as `nodes` may, so state over ticks is kept by name
    worst      shape (ticks, metrics, nodes) of the last `keep` ticks, oldest first, this tick last:
               the worst entity in the bad direction, counters as rates per second, NaN missing
    flags      shape (ticks, metrics, nodes) beside it: 0 missing, 1 normal, 2 abnormal;
               already filled by the engine's published rule for every tick of the window
    mean, sd   shape (metrics, nodes): λ and δ of the node's group at this tick, NaN below
               the minimum group
    entity     shape (metrics, nodes), index of the worst entity, -1 where missing
    entities   node -> device class -> entity names
    partial    a late frame judged alone, `nodes` is that one node and the window ends at its own
               tick: nothing may be concluded about nodes that are not in it
    watched_metrics  the source's other metrics (states, masks, context), the row order of
    watched    shape (watched, nodes, entities), this tick's values, counters as rates per second,
               NaN missing; entity columns as in `entities`, wider than most nodes need
    """

    source: str
    index: int
    at_s: float
    interval_s: float
    nodes: tuple[str, ...]
    group: IntArray
    metrics: tuple[Metric, ...]
    worst: FloatArray
    flags: FlagArray
    mean: FloatArray
    sd: FloatArray
    entity: IntArray
    entities: Mapping[str, Mapping[str, Sequence[str]]]
    partial: bool = False
    watched_metrics: tuple[Metric, ...] = ()
    watched: FloatArray = field(default_factory=lambda: np.empty((0, 0, 0)))

    def entity_name(self, row: int, column: int) -> str:
        """The worst entity's subject name, "" for whole-node metrics."""
        metric, place = self.metrics[row], int(self.entity[row, column])
        if metric.device == "node" or place < 0:
            return ""
        names = self.entities.get(self.nodes[column], {}).get(metric.device, ())
        return f"{metric.device}:{names[place]}" if place < len(names) else ""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a detector holds true of a subject right now; the book makes findings of it.

    active   whether the condition holds; False clears what is open
    onset_resolution_s   how far from `onset_s` it may really have begun, 0 where nobody knows
    events   separate occurrences so far; a rise is worth an update
    """

    active: bool
    detector: str
    node: str
    entity: str
    metric: str
    onset_s: float
    role: str = "fault"
    kind: Kind = "host"
    cause: Cause = "unknown"
    severity: Severity = "warning"
    job: str = ""
    text: str = ""
    certain: bool = False
    observed: float | None = None
    expected: float | None = None
    unit: str = ""
    score: float = 0.0
    events: int = 1
    onset_resolution_s: float = 0.0


class Detector(Protocol):
    """One family. Every method returns sightings, most return none."""

    name: str

    def on_tick(self, tick: Tick, view: View, now_s: float) -> Sequence[Sighting]:
        """A tick of a source closed."""
        ...

    def on_event(self, event: Event, view: View, now_s: float) -> Sequence[Sighting]:
        """Something happened; `event.at` is already corrected for skew."""
        ...

    def on_steps(self, steps: Steps, view: View, now_s: float) -> Sequence[Sighting]:
        """Training steps ended."""
        ...

    def on_control(
        self, control: Control, nodes: Sequence[str], now_s: float
    ) -> Sequence[Sighting]:  # fmt: skip
        """A human spoke of `nodes`; what is said to be well is well."""
        ...

    def advance(self, now_s: float, view: View) -> Sequence[Sighting]:
        """Time passed; say what silence proves. Called at each beat of the log's clock."""
        ...

    def snapshot(self) -> Any:
        """State as plain msgspec-encodable data."""
        ...

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`; the configuration is not part of it."""
        ...

    def reset(self, source: str) -> None:
        """The source's interval changed: its windows start anew."""
        ...


class Quiet:
    """A detector that says nothing; families override what they read."""

    name = "quiet"

    def on_tick(self, tick: Tick, view: View, now_s: float) -> Sequence[Sighting]:
        return ()

    def on_event(self, event: Event, view: View, now_s: float) -> Sequence[Sighting]:
        return ()

    def on_steps(self, steps: Steps, view: View, now_s: float) -> Sequence[Sighting]:
        return ()

    def on_control(
        self, control: Control, nodes: Sequence[str], now_s: float
    ) -> Sequence[Sighting]:  # fmt: skip
        return ()

    def advance(self, now_s: float, view: View) -> Sequence[Sighting]:
        return ()

    def snapshot(self) -> Any:
        return None

    def restore(self, state: Any) -> None:
        assert state is None

    def reset(self, source: str) -> None:
        return None


class FindingBook:
    """Turns sightings into findings: ids, revisions, open, update, clear. Bounded.

    An id is made of the onset. Where a condition that was cleared holds again with the onset that
    it had (a silent node that was drained for a while), it begins anew, and so does its id.
    """

    def __init__(self, cluster: str, findings_max: int = 50_000) -> None:
        self._cluster = cluster
        self._findings_max = findings_max
        self._open: dict[tuple[str, str, str, str, str], Finding] = {}
        self._cleared: dict[str, None] = {}  # ids, the oldest first
        self.dropped = 0

    def say(self, seen: Sighting, now_s: float) -> Finding | None:
        """The finding that this sighting makes, or None where it says nothing new."""
        key = (seen.detector, seen.node, seen.entity, seen.metric, seen.job)
        known = self._open.get(key)
        if not seen.active:
            if known is None:
                return None
            return self._clear(key, now_s)
        if known is None:
            if len(self._open) >= self._findings_max:
                self.dropped += 1
                return None
            fresh = self._fresh(seen, now_s)
            self._open[key] = fresh
            return fresh
        if seen.events == known.events and seen.severity == known.severity:
            return None
        revised = _revised(
            known, state="update", rev=known.rev + 1, at=now_s, events=seen.events,
            severity=seen.severity, text=seen.text, certain=seen.certain or known.certain,
            observed=seen.observed, score=seen.score,
        )  # fmt: skip
        self._open[key] = revised
        return revised

    def retire(self, speakers: frozenset[str], now_s: float) -> list[Finding]:
        """Clear what nobody will clear any more: findings of other detectors than `speakers`."""
        over = [key for key, known in self._open.items() if known.detector not in speakers]
        return [self._clear(key, now_s) for key in over]

    def _clear(self, key: tuple[str, str, str, str, str], now_s: float) -> Finding:
        known = self._open.pop(key)
        self._cleared[known.id] = None
        if len(self._cleared) > CLEARED_MAX:
            del self._cleared[next(iter(self._cleared))]
        return _revised(known, state="clear", rev=known.rev + 1, at=now_s)

    def open_findings(self) -> Sequence[Finding]:
        """What is open, in the order in which it was first said."""
        return tuple(self._open.values())

    def snapshot(self) -> list[Finding]:
        """Open findings, to be handed to `restore`."""
        return list(self._open.values())

    def cleared(self) -> list[str]:
        """Ids that were used up lately, the oldest first."""
        return list(self._cleared)

    def restore(self, findings: Sequence[Finding], cleared: Sequence[str] = ()) -> None:
        """Resume from `snapshot()` and `cleared()`."""
        self._cleared = dict.fromkeys(cleared)
        self._open = {(f.detector, f.node, f.entity, f.metric, f.job): f for f in findings}

    def _fresh(self, seen: Sighting, now_s: float) -> Finding:
        subject = f"{seen.node}|{seen.entity}|{seen.job}"
        onset_s, next_s = seen.onset_s, now_s
        while True:
            id_ = stable_id(self._cluster, seen.detector, subject, seen.metric, onset_s)
            if id_ not in self._cleared:
                break
            onset_s, next_s = next_s, next_s + 0.001
        return Finding(
            id=id_,
            rev=0, state="open", role="evidence" if seen.role == "evidence" else "fault",
            detector=seen.detector, kind=seen.kind, cause=seen.cause, severity=seen.severity,
            node=seen.node, entity=seen.entity, job=seen.job, metric=seen.metric,
            onset=onset_s, at=now_s, text=seen.text, certain=seen.certain,
            observed=seen.observed, expected=seen.expected, unit=seen.unit, score=seen.score,
            events=seen.events, onset_resolution_s=seen.onset_resolution_s,
        )  # fmt: skip


def _revised(finding: Finding, **changes: object) -> Finding:
    values = {name: getattr(finding, name) for name in finding.__struct_fields__}
    return Finding(**{**values, **changes})
