"""Device states that speak for themselves: throttle bits, row remapping, ports that are down.

Rules are rows: which watched metric, which values, for how many polls in a row, and what it means.
Power brake and hardware thermal slowdown act; the power cap, idle clocks and a user's own limits
are no faults. A state that many nodes share is what they share (cooling, a switch): evidence on the
nodes, one fault of the fleet, nobody is isolated. Missing is no state: it neither begins nor ends
anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from detectors.base import FloatArray, Quiet, Sighting, Tick, View
from telemetry.findings import Cause, Kind
from telemetry.records import Severity
from telemetry.settings import EngineSettings

MASK = "gpu_throttle_reasons_mask"
HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE = 0x8, 0x40, 0x80  # NVML clocks event reasons
# Idle, capped by software and braked by hardware at once: a mask of ones is no reading.
ALL_REASONS = 0x1FF
PORT = "nic_port_state"
ACTIVE = 4.0  # InfiniBand port state as the kernel numbers it


def _bit(bit: int) -> Callable[[FloatArray], NDArray[np.bool_]]:
    def test(values: FloatArray) -> NDArray[np.bool_]:
        whole = np.where(np.isnan(values), 0.0, values).astype(np.int64)
        return np.asarray(((whole & bit) != 0) & ((whole & ALL_REASONS) != ALL_REASONS))

    return test


def _is_one(values: FloatArray) -> NDArray[np.bool_]:
    return np.asarray(values == 1.0)


def _is_critical(values: FloatArray) -> NDArray[np.bool_]:
    return np.asarray(values == 2.0)


def _is_down(values: FloatArray) -> NDArray[np.bool_]:
    return np.asarray(~np.isnan(values) & (values != ACTIVE))


@dataclass(frozen=True, slots=True)
class StateRule:
    """One row.

    polls      so many samples in a row; `hold_s` is the time that must pass besides
    rising     only a state that was not there at first sight is a fault
    certain    one node's state isolates it; shared by many it does not
    """

    name: str
    metric: str
    test: Callable[[FloatArray], NDArray[np.bool_]]
    kind: Kind
    cause: Cause
    severity: Severity
    words: str
    polls: int = 3
    hold_s: float = 0.0
    rising: bool = False
    certain: bool = False
    role: str = "fault"


RULES: tuple[StateRule, ...] = (
    StateRule("power_brake", MASK, _bit(POWER_BRAKE), "gpu_power", "hardware", "critical",
              "hardware power brake is asserted", certain=True),
    StateRule("hw_thermal_slowdown", MASK, _bit(HW_THERMAL), "gpu_thermal", "hardware", "critical",
              "hardware thermal slowdown is active", certain=True),
    StateRule("hw_slowdown", MASK, _bit(HW_SLOWDOWN), "gpu_slow", "hardware", "warning",
              "hardware slowdown is active", role="evidence"),
    StateRule("row_remap_failure", "gpu_row_remap_failure_state", _is_one, "gpu_memory",
              "hardware", "critical", "row remapping has failed", polls=1, rising=True,
              certain=True),
    StateRule("row_remap_pending", "gpu_row_remap_pending_state", _is_one, "gpu_memory",
              "hardware", "info", "a row remap waits for a reset", polls=1, role="evidence"),
    StateRule("fan_failed", "host_fan_state", _is_critical, "gpu_thermal", "hardware", "critical",
              "a fan is beyond its critical limit", rising=True, certain=True),
    StateRule("power_supply_failed", "host_power_supply_state", _is_critical, "gpu_power",
              "hardware", "critical", "a power supply is beyond its critical limit", rising=True,
              certain=True),
    StateRule("port_down", PORT, _is_down, "nic_fault", "network", "critical",
              "the port is down", polls=2, hold_s=240.0, rising=True, certain=True),
)  # fmt: skip

RISING = frozenset(rule.metric for rule in RULES if rule.rising)


class Held(msgspec.Struct):
    """A cell in a bad state: samples in a row, since when, and what was said of it."""

    since_s: float
    polls: int
    first_sight: bool
    said: Sighting | None = None


class States(Quiet):
    """Cells are (rule, node, entity); only those in a bad state take memory."""

    name = "states"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings.states
        self._held: dict[tuple[str, str, str], Held] = {}
        self._known: set[tuple[str, str]] = set()  # (metric, node) that had a sample
        self._shared: dict[tuple[str, str], Sighting] = {}  # (rule, job) said of a fleet

    def on_tick(self, tick: Tick, view: View, now_s: float) -> Sequence[Sighting]:
        """Judge each rule whose metric the source carries."""
        said: list[Sighting] = []
        rows = {metric.name: row for row, metric in enumerate(tick.watched_metrics)}
        for rule in RULES:
            if rule.metric in rows:
                said += self._judge(rule, tick.watched[rows[rule.metric]], tick, view)
        for metric in RISING & rows.keys():
            heard = (~np.isnan(tick.watched[rows[metric]])).any(axis=1)
            self._known.update((metric, tick.nodes[c]) for c in np.flatnonzero(heard).tolist())
        return said

    def _judge(self, rule: StateRule, values: FloatArray, tick: Tick, view: View) -> list[Sighting]:
        bad = rule.test(values)
        said = self._ended(rule, values, bad, tick)
        for column, entity in zip(*(axis.tolist() for axis in np.nonzero(bad)), strict=True):
            self._hold(rule, tick, view, column, entity)
        ripe = self._ripe(rule, tick)
        shared = set() if tick.partial else self._crowd(rule, ripe, tick, view)
        for key in ripe:
            held = self._held[key]
            place = view.place(key[1], tick.at_s)
            sighting = self._sighting(rule, key, held, place.job, key[1] in shared)
            if held.said is None:
                held.said = replace(sighting, onset_resolution_s=tick.interval_s)
                said.append(held.said)
        return said if tick.partial else [*said, *self._fleets(rule, shared, tick, view)]

    def _ended(
        self, rule: StateRule, values: FloatArray, bad: NDArray[np.bool_], tick: Tick
    ) -> list[Sighting]:
        """Cells whose sample of this tick is good again; one without a sample goes on."""
        mine = [(key, held) for key, held in self._held.items() if key[0] == rule.name]
        columns = {node: column for column, node in enumerate(tick.nodes)} if mine else {}
        said: list[Sighting] = []
        for key, held in mine:
            _, node, entity = key
            if node not in columns:
                continue
            place = _slot(tick, node, rule, entity)
            if place is None or np.isnan(values[columns[node], place]):
                continue
            if not bad[columns[node], place]:
                del self._held[key]
                if held.said is not None:
                    said.append(replace(held.said, active=False))
        return said

    def _hold(self, rule: StateRule, tick: Tick, view: View, column: int, entity: int) -> None:
        node = tick.nodes[column]
        name = _entity(tick, node, rule, entity)
        if name is None or not self._counts(rule, node, name, view):
            return
        key = (rule.name, node, name)
        held = self._held.get(key)
        if held is None:
            if len(self._held) >= self._settings.cells_max:
                return
            first = (rule.metric, node) not in self._known
            held = self._held[key] = Held(since_s=tick.at_s, polls=0, first_sight=first)
        held.polls += 1

    def _counts(self, rule: StateRule, node: str, entity: str, view: View) -> bool:
        """A port that nobody means to be up, or that is no fabric port, is never judged."""
        if rule.metric != PORT:
            return True
        port = view.port(node, entity.partition(":")[2])
        return port is None or (port.fabric and port.should_be_up is not False)

    def _ripe(self, rule: StateRule, tick: Tick) -> list[tuple[str, str, str]]:
        """Cells of the rule that lasted long enough, in the order of their names."""
        nodes = set(tick.nodes)
        end_s = tick.at_s + tick.interval_s
        return sorted(
            key
            for key, held in self._held.items()
            if key[0] == rule.name
            and key[1] in nodes
            and held.polls >= rule.polls
            and end_s - held.since_s >= rule.hold_s
        )

    def _crowd(
        self, rule: StateRule, ripe: Sequence[tuple[str, str, str]], tick: Tick, view: View
    ) -> set[str]:
        """Nodes that share the state with too many of their job, or behind their leaf, for it to be
        theirs alone; a mate counts from its first bad sample on.
        """
        places = {node: view.place(node, tick.at_s) for _, node, _ in ripe}
        if not places:
            return set()
        mates = {node for name, node, _ in self._held if name == rule.name}
        at = [view.place(node, tick.at_s) for node in sorted(mates)]
        in_job, behind = Counter(place.job for place in at), Counter(place.leaf for place in at)
        shared = set()
        for node, place in places.items():
            size = len(view.job_nodes(place.job, tick.at_s)) if place.job else len(tick.nodes)
            limit = max(self._least(size), self._settings.shared_share * size)
            leaf = self._least(len(view.leaf_nodes(place.leaf))) if place.leaf else 0
            if in_job[place.job] >= limit or (leaf and behind[place.leaf] >= leaf):
                shared.add(node)
        return shared

    def _least(self, size: int) -> int:
        """How many make it a matter of all: of two nodes both, of one nobody can tell."""
        least = self._settings.shared_nodes_min
        return min(least, size) if size > 1 else least

    def _sighting(
        self, rule: StateRule, key: tuple[str, str, str], held: Held, job: str, shared: bool
    ) -> Sighting:
        _, node, entity = key
        old = rule.rising and held.first_sight
        evidence = shared or old or rule.role == "evidence"
        return Sighting(
            active=True, detector=self.name, node=node, entity=entity, metric=rule.name,
            onset_s=held.since_s, role="evidence" if evidence else "fault", kind=rule.kind,
            cause=rule.cause, severity="info" if old else rule.severity, job=job,
            text=f"{rule.words} ({entity or node})" + (", as it was at first sight" if old else ""),
            certain=rule.certain and not evidence, score=1.0,
        )  # fmt: skip

    def _fleets(self, rule: StateRule, shared: set[str], tick: Tick, view: View) -> list[Sighting]:
        """One fault of the job whose nodes share the state, while they do."""
        jobs = Counter(view.place(node, tick.at_s).job for node in sorted(shared))
        said: list[Sighting] = []
        for key in [key for key in self._shared if key[0] == rule.name and key[1] not in jobs]:
            said.append(replace(self._shared.pop(key), active=False))
        for job, nodes in jobs.items():
            if (rule.name, job) in self._shared:
                continue
            seen = Sighting(
                active=True, detector=self.name, node="", entity="", metric=rule.name,
                onset_s=tick.at_s, role="fault", kind="fleet_shift", cause="common_mode",
                severity="critical", job=job, observed=float(nodes), unit="nodes",
                text=f"{rule.words} on {nodes} nodes at once: a matter of what they share",
            )  # fmt: skip
            self._shared[rule.name, job] = seen
            said.append(seen)
        return said

    def snapshot(self) -> Any:
        """Held cells, what was heard, what is shared."""
        return msgspec.to_builtins(
            {
                "held": [[*key, held] for key, held in self._held.items()],
                "known": sorted(self._known),
                "shared": [[*key, seen] for key, seen in self._shared.items()],
            }
        )

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        self._held = {
            (rule, node, entity): msgspec.convert(held, Held)
            for rule, node, entity, held in state["held"]
        }
        self._known = {(metric, node) for metric, node in state["known"]}
        self._shared = {
            (rule, job): msgspec.convert(seen, Sighting) for rule, job, seen in state["shared"]
        }


def _entity(tick: Tick, node: str, rule: StateRule, slot: int) -> str | None:
    """The subject name of a slot, None where the node names no such entity."""
    metric = next(m for m in tick.watched_metrics if m.name == rule.metric)
    names = tick.entities.get(node, {}).get(metric.device, ())
    return f"{metric.device}:{names[slot]}" if slot < len(names) else None


def _slot(tick: Tick, node: str, rule: StateRule, entity: str) -> int | None:
    metric = next(m for m in tick.watched_metrics if m.name == rule.metric)
    names = list(tick.entities.get(node, {}).get(metric.device, ()))
    name = entity.partition(":")[2]
    return names.index(name) if name in names else None
