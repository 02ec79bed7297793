"""Links that go down and come back: once is free, twice in five minutes or thrice in twelve hours
is a fault that only a long quiet time ends.

Sources: ByteRobust (evict after two network events in 5 min), GPUd (three drops in 12 h), and what
operators asked of GPUd: recovery is measured from the last bad sample, its length is a setting, 0
means that only a reboot or an operator ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from detectors.base import Quiet, Sighting, Tick, View
from detectors.boots import Boots
from detectors.critical_rules import is_stale
from detectors.plugs import Plugs
from telemetry.records import SWITCH, Control, Event, Severity
from telemetry.settings import EngineSettings

DOWNED = "nic_link_downed_total"
PORT_STATE = "nic_port_state"
ACTIVE = 4.0  # InfiniBand port state as the kernel numbers it
DROPS_MAX = 32  # kept of one port
ENDS_APART_S = 5.0  # the clocks of a node and its switch agree so well
QUIET_S = 60.0
LINE_S = 5.0  # how exactly a kernel line dates a drop


class Drop(msgspec.Struct):
    """One time that a link went down: at a moment, or within a tick of the counter.

    tick_s     the tick in which the counter told of it, None where only a line did
    near, far  who told of it: the node, the switch at the other end
    """

    start_s: float
    end_s: float
    tick_s: float | None = None
    near: bool = True
    far: bool = False


class PortRun(msgspec.Struct):
    """One port: its drops of the long window, when it last was bad, what is open of it."""

    drops: list[Drop] = []
    bad_s: float = 0.0
    said: Sighting | None = None


class Flap(Quiet):
    """Ports in the order in which they last fell; a counter and a kernel line of one drop count
    once."""

    name = "flap"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings.flap
        self._stale_s = settings.critical.stale_s
        self._ports: dict[tuple[str, str], PortRun] = {}
        self._boots = Boots()
        self._plugs = Plugs(settings.flap.ports_max)

    def on_event(self, event: Event, view: View, now_s: float) -> Sequence[Sighting]:
        """A link-down line of a kernel; a new boot ends what was."""
        if is_stale(event, now_s, self._stale_s):
            return ()  # windows end at the newest drop: last week's would be two in five minutes
        said = self.forget(event.node) if self._boots.of_event(event) else []
        if event.type != "nic" or event.class_ != "link_down":
            return said
        if event.source == SWITCH:
            return [*said, *self._told_by_switch(event, view, now_s)]
        if self._plugs.is_shared(event.node, event.entity, event.at):
            return said
        drop = Drop(event.at, event.at)
        return [*said, *self._fell(event.node, event.entity, drop, view)]

    def _told_by_switch(self, event: Event, view: View, now_s: float) -> list[Sighting]:
        """The other end of a link; many of one switch at once are the switch."""
        switch = str(event.details.get("switch", ""))
        if event.node and _is_away(event.node, view, now_s):
            return []  # the link of a node that is off, or boots, is not up
        if event.node and self._plugs.fell(switch, event.node, event.entity, event.at):
            return self._switch_fell(switch, event.at)
        drop = Drop(event.at, event.at, near=False, far=True)
        return self._fell(event.node, event.entity, drop, view)

    def _switch_fell(self, switch: str, at_s: float) -> list[Sighting]:
        key = ("", f"switch:{switch}")
        port = self._ports.pop(key, None) or PortRun()
        self._ports[key] = port
        port.bad_s = max(port.bad_s, at_s)
        if port.said is not None:
            return []
        nodes = self._plugs.nodes(switch)
        port.said = Sighting(
            active=True, detector=self.name, node="", entity=key[1], metric=DOWNED,
            onset_s=at_s, role="fault", kind="fabric", cause="network", severity="critical",
            text=f"the links of {nodes} nodes to switch {switch} went down together",
            observed=float(nodes), expected=0.0, unit="nodes", score=1.0,
        )  # fmt: skip
        return [*self._make_room(), port.said]

    def on_tick(self, tick: Tick, view: View, now_s: float) -> Sequence[Sighting]:
        """Each tick in which a port's link-down counter rose is a drop."""
        said = [seen for node in self._boots.of_tick(tick) for seen in self.forget(node)]
        self._note_down(tick)
        row = next((i for i, m in enumerate(tick.metrics) if m.name == DOWNED), -1)
        if row < 0 or tick.worst.shape[0] == 0:
            return said
        with np.errstate(invalid="ignore"):
            fell = np.flatnonzero(tick.worst[-1, row] > 0.0)
        for column in fell.tolist():
            port = tick.entity_name(row, column)
            # The counter is read after the drop, up to an interval later: maybe in the next tick.
            begin_s, end_s = tick.at_s - tick.interval_s, tick.at_s + tick.interval_s
            drop = Drop(begin_s, end_s, tick.at_s)
            if self._plugs.is_shared(tick.nodes[column], port, tick.at_s):
                continue
            said += self._fell(tick.nodes[column], port, drop, view)
        return said

    def _note_down(self, tick: Tick) -> None:
        """A port that is known to flap and is down in this tick is bad in it."""
        names = [metric.name for metric in tick.watched_metrics]
        if PORT_STATE not in names or not self._ports:
            return
        row, columns = names.index(PORT_STATE), {n: c for c, n in enumerate(tick.nodes)}
        for (node, entity), port in self._ports.items():
            column = columns.get(node)
            ports = list(tick.entities.get(node, {}).get("nic", ())) if column is not None else []
            name = entity.partition(":")[2]
            if column is None or name not in ports:
                continue
            state = tick.watched[row, column, ports.index(name)]
            if not np.isnan(state) and state != ACTIVE:
                port.bad_s = max(port.bad_s, tick.at_s + tick.interval_s)

    def _fell(self, node: str, entity: str, drop: Drop, view: View) -> list[Sighting]:
        """One drop of one port; "" is a port that the line did not name."""
        at_s = drop.start_s if drop.tick_s is None else drop.tick_s
        if self._boots.settling(node, at_s, self._settings.boot_grace_s):
            return []
        known = view.port(node, entity.partition(":")[2])
        if known is not None and not (known.fabric and known.should_be_up is not False):
            return []
        key = (node, entity)
        port = self._ports.pop(key, None) or PortRun()
        self._ports[key] = port
        port.drops = _with(port.drops, drop)[-DROPS_MAX:]
        newest_s = port.drops[-1].end_s
        port.drops = [d for d in port.drops if newest_s - d.end_s <= self._settings.slow_window_s]
        port.bad_s = max(port.bad_s, newest_s)
        # A kernel's name of an interface that nobody calls a fabric port is none of the fabric.
        # Of a switch's port that leads to no known node nobody is to blame.
        named = known is not None or not entity.startswith("nic:") or "/" in entity
        fabric = named and bool(node)
        job = view.place(node, at_s).job if port.said is None else port.said.job
        port.said = self._sighting(node, entity, port, job, fabric)
        return [*self._make_room(), port.said]

    def _sighting(
        self, node: str, entity: str, port: PortRun, job: str, fabric: bool
    ) -> Sighting:  # fmt: skip
        rules, newest_s = self._settings, port.drops[-1].end_s
        events = sum(1 for d in port.drops if newest_s - d.end_s <= rules.fast_window_s)
        slow = len(port.drops) >= rules.slow_count
        where = f"the link of {entity or node} went down"
        text = f"{where} {events} times in {rules.fast_window_s:g} s"
        if slow:
            hours = rules.slow_window_s / 3_600.0
            text = f"{where} {len(port.drops)} times in {hours:g} h, {events} of them in the last "
            text += f"{rules.fast_window_s:g} s"
        severity: Severity = "critical" if slow and fabric else "warning" if fabric else "info"
        last = port.drops[-1]
        began_s = last.start_s if last.start_s == last.end_s else last.start_s / 2 + last.end_s / 2
        onset_s = began_s if port.said is None else port.said.onset_s
        return Sighting(
            active=True, detector=self.name, node=node, entity=entity, metric=DOWNED,
            onset_s=onset_s, role="fault" if fabric else "evidence", kind="nic_flap",
            cause="network" if fabric else "unknown", severity=severity, job=job, text=text,
            certain=slow and fabric, events=events, observed=float(events), expected=0.0,
            unit="events", score=1.0,
            onset_resolution_s=max(LINE_S, (last.end_s - last.start_s) / 2.0),
        )  # fmt: skip

    def advance(self, now_s: float, view: View) -> Sequence[Sighting]:
        """End what was quiet long enough, counted from the last bad sample."""
        said: list[Sighting] = []
        for key, port in list(self._ports.items()):
            quiet_s = now_s - port.bad_s
            if port.said is not None:
                flapping = len(port.drops) >= self._settings.slow_count or port.said.events > 1
                stable_s = self._settings.stable_s if flapping else self._settings.once_s
                if stable_s > 0.0 and quiet_s > stable_s:
                    said.append(replace(port.said, active=False))
                    port.said = None
            elif quiet_s > self._settings.slow_window_s:
                del self._ports[key]
        return said

    def on_control(self, control: Control, nodes: Sequence[str], now_s: float) -> list[Sighting]:
        """An operator says that the nodes are well: what was counted is forgotten."""
        return [seen for node in nodes for seen in self.forget(node)]

    def forget(self, node: str) -> list[Sighting]:
        """Drop all that is known of a node's ports; clears what was open."""
        gone = [key for key in self._ports if key[0] == node]
        ports = [self._ports.pop(key) for key in gone]
        return [replace(port.said, active=False) for port in ports if port.said is not None]

    def _make_room(self) -> list[Sighting]:
        if len(self._ports) <= self._settings.ports_max:
            return []
        oldest = self._ports.pop(next(iter(self._ports)))
        return [] if oldest.said is None else [replace(oldest.said, active=False)]

    def snapshot(self) -> Any:
        """Ports and boots."""
        ports = [[*key, msgspec.to_builtins(port)] for key, port in self._ports.items()]
        return {"ports": ports, "boots": self._boots.snapshot(), "plugs": self._plugs.snapshot()}

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        self._ports = {
            (node, entity): msgspec.convert(port, PortRun) for node, entity, port in state["ports"]
        }
        self._boots.restore(state["boots"])
        self._plugs.restore(state["plugs"])


def _is_away(node: str, view: View, now_s: float) -> bool:
    """Whether a node that used to speak is quiet."""
    heard_s = view.last_heard_s(node)
    return heard_s is not None and now_s - heard_s > max(QUIET_S, view.patience_s(node))


def _both_ends(drops: list[Drop], new: Drop) -> list[Drop] | None:
    """The drops with the one that the other end of the link told of as well; None without one."""
    for place, old in enumerate(drops):
        apart_s = max(new.start_s - old.end_s, old.start_s - new.end_s)
        if (old.near, old.far) == (new.far, new.near) and apart_s <= ENDS_APART_S:
            node = new if new.near else old
            both = Drop(node.start_s, node.end_s, node.tick_s, near=True, far=True)
            return [*drops[:place], both, *drops[place + 1 :]]
    return None


def _with(drops: list[Drop], new: Drop) -> list[Drop]:
    """The drops and a new one by time; a line and a tick that may tell of one drop do."""
    same = any(
        (d.start_s, d.end_s, d.tick_s) == (new.start_s, new.end_s, new.tick_s)
        and (d.far if new.far else d.near)
        for d in drops
    )
    if same or (new.tick_s is not None and any(d.tick_s == new.tick_s for d in drops)):
        return drops
    if (told_twice := _both_ends(drops, new)) is not None:
        return told_twice
    for place, old in enumerate(drops):
        tick, line = (old, new) if new.tick_s is None else (new, old)
        alone = tick.start_s < tick.end_s and line.start_s == line.end_s and line.tick_s is None
        if alone and tick.start_s <= line.start_s <= tick.end_s:
            both = Drop(line.start_s, line.end_s, tick.tick_s, far=tick.far or line.far)
            return [*drops[:place], both, *drops[place + 1 :]]
    return sorted([*drops, new], key=lambda drop: (drop.end_s, drop.start_s))
