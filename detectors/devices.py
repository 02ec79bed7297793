"""GPUs and NICs that vanish from their node's telemetry, and drivers that answer nobody any more.

Some drivers never report Xid 79, 119 or 120 to an exporter: the device is just not there any more.
Alone that is a page (an exporter may lose a device that works), with a second sign of the same node
(an Xid, a lost-device or PCIe line, a task that hangs in the driver) it is certain. All devices of
a class gone while the node is heard otherwise is a silent source, a fault only with such a sign.
Sources: NVSentinel (gone after three misses), ByteRobust (GPU lost and driver hang at 10 s).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from detectors.base import IntArray, Quiet, Sighting, Tick, View
from detectors.boots import Boots
from detectors.critical_rules import APPLICATION_XIDS, INJECTED, KERNEL, is_stale
from telemetry.records import Control, Event
from telemetry.settings import EngineSettings

CLASSES = ("gpu", "nic")
# Words of a hung task that mean the GPU driver, wherever the task itself comes from.
DRIVER_WORDS = ("nv_queue", "nvidia", "nv-", "uvm", "irq/nvidia")


class Shown(msgspec.Struct):
    """What one node showed of one class.

    most     devices that it ever showed at once since the last boot or word of an operator
    missed   ticks in a row with fewer; `since_s` is the first of them
    """

    most: int = 0
    missed: int = 0
    since_s: float = 0.0
    said: Sighting | None = None


class Devices(Quiet):
    """One sighting a node and class, however many devices are gone."""

    name = "devices"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings.devices
        self._stale_s = settings.critical.stale_s
        self._nodes: dict[str, dict[str, Shown]] = {}
        self._signs: dict[str, tuple[float, str, str]] = {}  # node -> when, class, line
        self._logs: dict[str, None] = {}  # nodes whose kernel was ever heard
        self._boots = Boots()
        # source -> nodes and devices of a tick after which nothing was missed. A cache, no state.
        self._calm: dict[str, tuple[tuple[str, ...], IntArray]] = {}

    def on_event(self, event: Event, view: View, now_s: float) -> Sequence[Sighting]:
        """Remember signs that a device of the node is ill; they may prove an absence."""
        if is_stale(event, now_s, self._stale_s):
            return ()
        said = self.forget(event.node) if self._boots.of_event(event) else []
        if event.source == KERNEL and len(self._logs) < self._settings.nodes_max:
            self._logs[event.node] = None
        class_ = _sign_of(event)
        if class_:
            self._signs.pop(event.node, None)
            self._signs[event.node] = (event.at, class_, event.text[:200])
            if len(self._signs) > self._settings.nodes_max:
                del self._signs[next(iter(self._signs))]
            known = self._nodes.get(event.node, {}).get(class_)
            if known is not None and known.missed > 0:
                said += self._judge(event.node, class_, known, view, event.at)
        return said

    def on_tick(self, tick: Tick, view: View, now_s: float) -> Sequence[Sighting]:
        """Compare the devices with a value in this tick with those that the node had."""
        said = [seen for node in self._boots.of_tick(tick) for seen in self.forget(node)]
        if tick.partial or tick.source not in CLASSES:
            return said
        rows = [i for i, m in enumerate(tick.watched_metrics) if m.device == tick.source]
        if not rows:
            return said
        shown = (~np.isnan(tick.watched[rows])).any(axis=0).sum(axis=1)
        calm = self._calm.get(tick.source)
        if calm is not None and calm[0] == tick.nodes and np.array_equal(calm[1], shown):
            return said
        for column, node in enumerate(tick.nodes):
            said += self._count(node, int(shown[column]), tick, view)
        columns = set(tick.nodes)
        for node in [n for n, known in self._nodes.items() if tick.source in known]:
            if node not in columns:
                said += self._count(node, 0, tick, view)
        self._calm.pop(tick.source, None)
        if all(k[tick.source].missed == 0 for k in self._nodes.values() if tick.source in k):
            self._calm[tick.source] = (tick.nodes, shown)
        return said

    def _count(self, node: str, shown: int, tick: Tick, view: View) -> list[Sighting]:
        classes = self._nodes.get(node)
        if classes is None:
            if shown == 0 or len(self._nodes) >= self._settings.nodes_max:
                return []
            classes = self._nodes[node] = {}
        known = classes.setdefault(tick.source, Shown())
        if shown >= known.most:
            known.most, known.missed = shown, 0
            gone, known.said = known.said, None
            return [] if gone is None else [replace(gone, active=False)]
        if self._boots.settling(node, tick.at_s, self._settings.boot_grace_s):
            return []
        known.since_s = known.since_s if known.missed else tick.at_s
        known.missed = min(known.missed + 1, self._settings.missed_ticks)
        return self._judge(node, tick.source, known, view, tick.at_s, shown)

    def _judge(
        self, node: str, class_: str, known: Shown, view: View, at_s: float, shown: int = -1
    ) -> list[Sighting]:
        """Say that devices are gone; with a sign at once and for certain."""
        sign = self._signs.get(node)
        proven = (
            sign is not None
            and sign[1] == class_
            and abs(sign[0] - known.since_s) <= self._settings.witness_s
        )
        if known.said is not None:
            if not proven or known.said.certain or known.said.role != "fault":
                return []
            known.said = replace(known.said, certain=True, severity="critical", events=2)
            return [known.said]
        if shown < 0 or (not proven and (shown == 0 or known.missed < self._settings.missed_ticks)):
            return []
        if shown == 0 and known.missed < self._settings.missed_ticks:
            return []
        known.said = self._sighting(
            node, class_, known, shown, sign if proven else None, view, at_s
        )
        return [known.said]

    def _sighting(
        self, node: str, class_: str, known: Shown, shown: int,
        sign: tuple[float, str, str] | None, view: View, at_s: float,
    ) -> Sighting:  # fmt: skip
        gpu, all_gone = class_ == "gpu", shown == 0
        text = f"{shown} of {known.most} {class_.upper()}s are left in the telemetry"
        if all_gone:
            text = f"no {class_.upper()} of {known.most} answers while the node is heard"
        if sign is None and node not in self._logs:
            text += "; its kernel log was never heard, so the coverage is partial"
        return Sighting(
            active=True, detector=self.name, node=node, entity="", metric=f"{class_}_count",
            onset_s=known.since_s, cause="hardware" if gpu else "network",
            kind=("gpu_fault" if all_gone else "gpu_lost") if gpu else "nic_fault",
            severity="critical", job=view.place(node, at_s).job, certain=sign is not None,
            observed=float(shown), expected=float(known.most), unit="devices", score=1.0,
            text=text if sign is None else f"{text}, and its kernel says: {sign[2]}",
        )  # fmt: skip

    def on_control(self, control: Control, nodes: Sequence[str], now_s: float) -> list[Sighting]:
        """An operator says that the nodes are well: what they show now is what they have."""
        return [seen for node in nodes for seen in self.forget(node)]

    def forget(self, node: str) -> list[Sighting]:
        """Clear what is open; a device that is still gone after a boot is counted anew."""
        self._signs.pop(node, None)
        classes = self._nodes.get(node, {})
        said = [replace(k.said, active=False) for k in classes.values() if k.said is not None]
        for known in classes.values():
            known.missed, known.said = 0, None
        return said

    def reset(self, source: str) -> None:
        """Ticks in a row of another length are no run."""
        for classes in self._nodes.values():
            if source in classes:
                classes[source].missed = 0

    def snapshot(self) -> Any:
        """Plain data."""
        return msgspec.to_builtins(
            [self._nodes, self._signs, list(self._logs), self._boots.snapshot()]
        )

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        nodes, signs, logs, boots = state
        self._logs = dict.fromkeys(logs)
        self._nodes = msgspec.convert(nodes, dict[str, dict[str, Shown]])
        self._signs = {node: (at_s, class_, text) for node, (at_s, class_, text) in signs.items()}
        self._boots.restore(boots)
        self._calm = {}


def _sign_of(event: Event) -> str:
    """The class of device that a line speaks ill of, "" for none; any source may say it."""
    if event.class_ == INJECTED or event.severity == "info":
        return ""
    if event.type == "xid":
        return "" if event.code in APPLICATION_XIDS else "gpu"
    if event.type in ("gpu_lost", "gpu", "sxid"):
        return "gpu"
    if event.type == "pcie" and event.class_ in ("inaccessible", "link_down", "cannot_recover"):
        return "gpu"
    words = f"{event.process or ''} {event.text}".lower()
    if event.type == "os" and event.class_ == "hung_task" and any(w in words for w in DRIVER_WORDS):
        return "gpu"
    return "nic" if event.type == "nic" and event.class_ in ("health", "probe_failed") else ""
