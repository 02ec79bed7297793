"""Events that need no statistics: Xids, lost devices, kernel alarms, dead processes, link flaps.

A condition ends when nothing was heard of it for `correlation.clear_s`; that is its only way out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from detectors.base import Quiet, Sighting, Tick, View
from telemetry.findings import Cause, Kind
from telemetry.records import Event, Severity
from telemetry.settings import EngineSettings
from telemetry.xids import XidRow, lookup

# Application errors: NVIDIA's device plugin, GPUd and Meta agree that one never evicts a node.
APPLICATION_XIDS = frozenset({13, 31, 43, 45})
INJECTED = "injected"  # class of a fault that somebody put there for a test: it never acts
TIMES_MAX = 16  # link-down times kept of one port
LINE_MAX = 512  # characters of the original line in a finding's text
KERNEL = "kernel"
SAME_EVENT_S = 60.0  # an exporter that tells a kernel's event within this tells nothing new

_CAUSE_OF_CLASS: dict[str, Cause] = {
    "app": "user_code", "app_driver": "unknown", "driver": "site_software",
    "firmware": "hardware", "gpu": "hardware", "memory": "hardware", "memory_hint": "hardware",
    "bus": "hardware", "link": "hardware", "link5": "hardware", "power": "hardware",
}  # fmt: skip
_OF_TYPE: dict[str, tuple[Kind, Cause]] = {
    "sxid": ("nvlink_fault", "hardware"),
    "gpu_lost": ("gpu_lost", "hardware"),
    "gpu": ("gpu_fault", "hardware"),
    "nic": ("nic_fault", "network"),
    "storage": ("storage", "hardware"),
    "pcie": ("pcie_degraded", "hardware"),
    "machine_check": ("host", "hardware"),
    "thermal": ("gpu_thermal", "hardware"),
    "os": ("host", "site_software"),
    "oom": ("host", "user_code"),
}


class Condition(msgspec.Struct):
    """What was last said of one subject, and the log's `now` when it was last heard."""

    seen: Sighting
    heard_s: float
    times: list[float] = []


class CriticalState(msgspec.Struct):
    """What a snapshot keeps, oldest heard first."""

    conditions: list[Condition]
    repeats: list[tuple[str, str, int, list[float]]]
    logged: list[tuple[str, str, int | None, float]] = []


class Critical(Quiet):
    """One sighting a condition; repeats raise its `events`."""

    name = "critical"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings.critical
        self._clear_s = settings.correlation.clear_s
        self._flap_window_s = settings.policy.network_window_s
        self._conditions: dict[tuple[str, str, str, str], Condition] = {}
        self._repeats: dict[tuple[str, str, int], list[float]] = {}
        self._logged: dict[tuple[str, str, int | None], float] = {}  # what a kernel said, and when

    def on_event(self, event: Event, view: View, now_s: float) -> Sequence[Sighting]:
        """Classify one event; lines that are only news say nothing."""
        job = event.job or view.place(event.node, event.at).job
        if event.class_ == INJECTED:
            return ()
        if event.type == "process" or event.class_ == "segfault":
            return self._heard(_process(event, job), now_s)
        if event.type == "nic" and event.class_ == "link_down":
            return self._flap(event.node, event.entity, "link_down_event", event.at, job, now_s)
        if event.source != KERNEL:
            return self._second_hand(event, job, now_s)
        self._log(event)
        if event.type == "xid" and event.code is not None:
            row = lookup(event.code)
            said = self._heard(_xid(event, event.code, row, job), now_s)
            return [*said, *self._repeated(event, event.code, row, job, now_s)]
        if event.severity == "info":
            return ()
        return self._heard(_kernel(event, job), now_s)

    def _second_hand(self, event: Event, job: str, now_s: float) -> list[Sighting]:
        """What only an exporter says is a warning: its gauges are late, stick and overwrite.

        Where the kernel said the same, its line has the whole effect and this has none.
        """
        logged_s = self._logged.get((event.node, event.type, event.code))
        if logged_s is not None and abs(event.at - logged_s) <= SAME_EVENT_S:
            return []
        if event.type == "xid" and event.code is not None:
            seen = _xid(event, event.code, lookup(event.code), job)
        else:
            seen = _kernel(event, job)
        severity: Severity = "info" if event.severity == "info" else "warning"
        return self._heard(
            replace(seen, role="evidence", severity=severity, certain=False), now_s
        )  # fmt: skip

    def _log(self, event: Event) -> None:
        key = (event.node, event.type, event.code)
        self._logged.pop(key, None)
        self._logged[key] = event.at
        if len(self._logged) > self._settings.conditions_max:
            del self._logged[next(iter(self._logged))]

    def on_tick(self, tick: Tick, view: View, now_s: float) -> Sequence[Sighting]:
        """Each tick in which a port's link-down counter rose is one flap."""
        row = next((i for i, m in enumerate(tick.metrics) if m.name == "nic_link_downed_total"), -1)
        if row < 0 or tick.worst.shape[0] == 0:
            return ()
        said: list[Sighting] = []
        with np.errstate(invalid="ignore"):
            fell = np.flatnonzero(tick.worst[-1, row] > 0.0)
        for column in fell.tolist():
            node, port = tick.nodes[column], tick.entity_name(row, column)
            job = view.place(node, tick.at_s).job
            said += self._flap(node, port, "nic_link_downed_total", tick.at_s, job, now_s)
        return said

    def advance(self, now_s: float, view: View) -> Sequence[Sighting]:
        """Clear what was not heard of for `clear_s`; the dict is in the order of last hearing."""
        said: list[Sighting] = []
        for key, condition in list(self._conditions.items()):
            if now_s - condition.heard_s <= self._clear_s:
                break
            del self._conditions[key]
            said.append(replace(condition.seen, active=False))
        return said

    def _heard(self, seen: Sighting, now_s: float) -> list[Sighting]:
        """Count `seen` with what is already known of the same subject."""
        key = (seen.node, seen.entity, seen.metric, seen.job)
        known = self._conditions.pop(key, None)
        if known is not None:
            seen = replace(seen, onset_s=known.seen.onset_s, events=known.seen.events + 1)
        self._conditions[key] = Condition(seen, now_s)
        return [*self._make_room(), seen]

    def _flap(
        self, node: str, port: str, metric: str, at_s: float, job: str, now_s: float
    ) -> list[Sighting]:
        """A link went down; `events` counts those of the window that ends with the newest."""
        key = (node, port, metric, job)
        known = self._conditions.pop(key, None)
        times = [] if known is None else known.times
        if at_s not in times:
            times = sorted([*times, at_s])[-TIMES_MAX:]
        events = sum(1 for time_s in times if times[-1] - time_s <= self._flap_window_s)
        seen = Sighting(
            active=True, detector=self.name, node=node, entity=port, metric=metric,
            onset_s=times[0] if known is None else known.seen.onset_s, kind="nic_flap",
            cause="network", job=job, events=events, observed=float(events), expected=0.0,
            unit="events",
            text=f"the link of {port or node} went down {events} times "
            f"in {self._flap_window_s:g} s",
        )  # fmt: skip
        self._conditions[key] = Condition(seen, now_s, times)
        return [*self._make_room(), seen]

    def _make_room(self) -> list[Sighting]:
        if len(self._conditions) <= self._settings.conditions_max:
            return []
        oldest = self._conditions.pop(next(iter(self._conditions)))
        return [replace(oldest.seen, active=False)]

    def _repeated(
        self, event: Event, code: int, row: XidRow | None, job: str, now_s: float
    ) -> list[Sighting]:
        """NVSentinel's rule: the same hardware Xid 5 times a day on one GPU is a fault."""
        if row is None or row.isolate_on_one or _cause(code, row) != "hardware":
            return []
        key = (event.node, event.entity, code)
        kept = [t for t in self._repeats.pop(key, []) if event.at - t <= self._window_s]
        self._repeats[key] = kept = sorted([*kept, event.at])[-self._settings.repeat_count :]
        if len(self._repeats) > self._settings.conditions_max:
            del self._repeats[next(iter(self._repeats))]
        if len(kept) < self._settings.repeat_count or row.severity == "info":
            return []
        hours = self._window_s / 3_600.0
        text = f"Xid {code} ({row.meaning}) came {len(kept)} times within {hours:g} h"
        seen = _base(event, f"xid_{code}_repeated", job, text)
        return self._heard(replace(seen, kind=row.kind, cause="hardware"), now_s)

    @property
    def _window_s(self) -> float:
        return self._settings.repeat_window_s

    def snapshot(self) -> Any:
        """Open conditions and the times of repeated Xids."""
        repeats = [(*key, times) for key, times in self._repeats.items()]
        logged = [(*key, at_s) for key, at_s in self._logged.items()]
        return msgspec.to_builtins(CriticalState(list(self._conditions.values()), repeats, logged))

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        kept = msgspec.convert(state, CriticalState)
        self._conditions = {
            (c.seen.node, c.seen.entity, c.seen.metric, c.seen.job): c for c in kept.conditions
        }
        self._repeats = {(node, entity, code): t for node, entity, code, t in kept.repeats}
        self._logged = {(node, type_, code): at_s for node, type_, code, at_s in kept.logged}


def _base(event: Event, metric: str, job: str, text: str) -> Sighting:
    return Sighting(
        active=True, detector=Critical.name, node=event.node, entity=event.entity, metric=metric,
        onset_s=event.at, job=job, text=text, score=1.0,
    )  # fmt: skip


def _xid(event: Event, code: int, row: XidRow | None, job: str) -> Sighting:
    line = event.text[:LINE_MAX]
    if row is None:
        text = f"Xid {code}, which no catalogue knows: {line}"
        return replace(_base(event, f"xid_{code}", job, text), role="evidence", kind="gpu_fault")
    seen = _base(event, f"xid_{code}", job, f"Xid {code} ({row.meaning}): {line}")
    waits = event.details.get("remap") == "pending"  # a reset repairs it; jobs are safe till then
    if row.isolate_on_one and code not in APPLICATION_XIDS and not waits:
        return replace(
            seen, kind=row.kind, cause="hardware", severity="critical", certain=True
        )  # fmt: skip
    cause = _cause(code, row)
    return replace(seen, role="evidence", kind=row.kind, cause=cause, severity=row.severity)


def _cause(code: int, row: XidRow) -> Cause:
    if code == 45:  # the echo of something else: it accuses nobody
        return "unknown"
    return "user_code" if code in APPLICATION_XIDS else _CAUSE_OF_CLASS.get(row.class_, "unknown")


def _process(event: Event, job: str) -> Sighting:
    """Only an exception in the user's own code is a first cause; the rest are symptoms."""
    failure = event.class_ or "unknown"
    seen = _base(event, f"process_{failure}", job, event.text[:LINE_MAX])
    if failure == "user_code":
        return replace(seen, kind="user_error", cause="user_code", severity="critical")
    return replace(seen, role="evidence", kind="job_hang", cause="unknown")


def _kernel(event: Event, job: str) -> Sighting:
    """A kernel line that is no Xid: critical ones open an incident, a lost GPU is certain."""
    kind, cause = _OF_TYPE.get(event.type, ("host", "unknown"))
    seen = _base(event, f"{event.type}_event", job, event.text[:LINE_MAX])
    lost = event.type == "gpu_lost"
    fault = lost or event.severity == "critical"
    severity: Severity = "critical" if lost else event.severity
    if event.code is not None:
        seen = replace(seen, metric=f"{event.type}_{event.code}")
    return replace(
        seen, kind=kind, cause=cause, severity=severity, certain=lost,
        role="fault" if fault else "evidence",
    )  # fmt: skip
