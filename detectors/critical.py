"""Events that need no statistics: Xids, lost devices, kernel alarms, dead processes.

One condition a subject, with a count that is said again at each doubling: a storm of one code costs
as little as ten of it. A condition ends when nothing was heard of it for `correlation.clear_s`,
when its node boots anew, when a line takes it back, or when an operator says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from detectors.base import Quiet, Sighting, Tick, View
from detectors.boots import Boots
from detectors.critical_bursts import Bursts
from detectors.critical_rules import (
    CONTAINED,
    ENDS,
    HOST_RULES,
    INJECTED,
    KERNEL,
    LINK5,
    RECOVERY,
    device_of,
    is_stale,
    kernel,
    process,
    switch,
    xid,
    xid_cause,
)  # fmt: skip
from telemetry.canary import is_canary
from telemetry.records import SWITCH, Control, Event, Severity
from telemetry.settings import EngineSettings
from telemetry.xids import XidRow, lookup

Key = tuple[str, str, str, str]
EACH = 5  # occurrences that are said one by one; after them only each doubling
RENEWED_S = 60.0  # and a count that rose otherwise, so often


class Condition(msgspec.Struct):
    """What was last said of one subject, how often it was heard, and the log's now of the last."""

    seen: Sighting
    heard_s: float
    events: int = 1
    said_s: float = 0.0
    line: str = ""  # of the newest occurrence


class CriticalState(msgspec.Struct):
    """What a snapshot keeps, oldest heard first."""

    conditions: list[Condition]
    repeats: list[tuple[str, str, str, list[float]]]
    logged: list[tuple[str, str, int | None, float]]
    bursts: Any
    boots: Any


class Critical(Quiet):
    """One sighting a condition; repeats raise its `events`."""

    name = "critical"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings.critical
        self._cancels = [tuple(map(int, two.split(":"))) for two in settings.critical.cancels]
        self._clear_s = settings.correlation.clear_s
        self._conditions: dict[Key, Condition] = {}
        self._repeats: dict[tuple[str, str, str], list[float]] = {}
        self._logged: dict[tuple[str, str, int | None], float] = {}  # what a kernel said, and when
        self._bursts = Bursts(settings.critical)
        self._boots = Boots()

    def on_event(self, event: Event, view: View, now_s: float) -> Sequence[Sighting]:
        """Classify one event; lines that are only news say nothing."""
        if is_canary(event):
            return ()
        if is_stale(event, now_s, self._settings.stale_s):
            return self._stale(event, now_s)
        said = self.forget(event.node) if self._boots.of_event(event) else []
        job = event.job or view.place(event.node, event.at).job
        if event.class_ == INJECTED or (event.type == "nic" and event.class_ == "link_down"):
            return said
        if event.type == "process" or event.class_ == "segfault":
            return [*said, *self._heard(process(event, job), now_s)]
        if event.source == SWITCH:
            return [*said, *self._switch(event, job, now_s)]
        if event.source != KERNEL:
            return [*said, *self._second_hand(event, job, now_s)]
        self._log(event)
        if event.type == "xid" and event.code is not None:
            return [*said, *self._xid(event, event.code, job, now_s)]
        if (event.type, event.class_) in ENDS:
            metric = ENDS[event.type, event.class_]
            return [*said, *self._end(event.node, event.entity, metric, event.at)]
        if event.severity == "info":
            return said
        return [*said, *self._host(event, job, now_s)]

    def on_tick(self, tick: Tick, view: View, now_s: float) -> Sequence[Sighting]:
        """Only whether nodes booted anew."""
        return [seen for node in self._boots.of_tick(tick) for seen in self.forget(node)]

    # -- Xids

    def _xid(self, event: Event, code: int, job: str, now_s: float) -> list[Sighting]:
        row = lookup(code)
        seen = xid(event, code, job)
        cancelled = [other for one, other in self._cancels if one == code]
        said = [
            one
            for other in cancelled
            for one in self._end(event.node, event.entity, f"xid_{other}", event.at)
        ]
        for proven in self._bursts.take(event, code, job, now_s):
            said += self._heard(proven, now_s)
        echo = self._bursts.echo_of(event, code)
        if echo:
            seen = replace(seen, text=f"{seen.text} ({echo})")
        heard = self._heard(seen, now_s)
        said += heard
        if heard:  # a storm brings no new witness
            said += self._witnessed(event.node, now_s)
        return [*said, *self._repeated(event, code, row, job, now_s)]

    def _witnessed(self, node: str, now_s: float) -> list[Sighting]:
        """A fatal NVLink error or a repair that the driver asks for is certain once its burst has
        a second sign: channels that were torn down, or a fault that the repair is for.
        """
        said: list[Sighting] = []
        bursts = self._bursts
        for key, known in list(self._conditions.items()):
            metric, seen = key[2], known.seen
            if key[0] != node or seen.certain or seen.role != "fault" or not known.line:
                continue
            if metric in _LINK5_METRICS:
                sure = bursts.holds(node, [*LINK5], seen.entity) and bursts.holds(node, [45, 154])
            elif metric == f"xid_{RECOVERY}":
                sure = bursts.holds(node, _REPAIRED, seen.entity)
            else:
                continue
            if sure:
                known.seen = replace(seen, certain=True, severity="critical")
                known.events += 1
                said.append(self._say(known, now_s))
        return said

    def _repeated(
        self, event: Event, code: int, row: XidRow | None, job: str, now_s: float
    ) -> list[Sighting]:
        """The same hardware Xid 5 times a day on one GPU is a fault (NVSentinel); a contained
        memory error 5 times an hour is a proven one.
        """
        if row is None or row.isolate_on_one or xid_cause(code, row) != "hardware":
            return []
        rules = self._settings
        most = max(rules.repeat_count, rules.contained_count)
        key, window_s = (event.node, event.entity, f"xid_{code}"), rules.repeat_window_s
        times = self._times(key, event.at, window_s, most)
        hour = [t for t in times if times[-1] - t <= rules.contained_window_s]
        proven = code == CONTAINED and len(hour) >= rules.contained_count
        if proven:
            times, window_s = hour, rules.contained_window_s
        if (len(times) < rules.repeat_count and not proven) or row.severity == "info":
            return []
        text = f"Xid {code} ({row.meaning}) came {len(times)} times within {window_s / 3600:g} h"
        seen = Sighting(
            active=True, detector=self.name, node=event.node, entity=event.entity,
            metric=f"xid_{code}_repeated", onset_s=event.at, kind=row.kind, cause="hardware",
            severity="critical" if proven else "warning", job=job, text=text, score=1.0,
            certain=proven,
        )  # fmt: skip
        return self._heard(seen, now_s)

    def _times(
        self, key: tuple[str, str, str], at_s: float, window_s: float, most: int
    ) -> list[float]:
        """Occurrences of `key` in the window, lines that are close to the one before left out."""
        kept = [t for t in self._repeats.pop(key, []) if at_s - t <= window_s]
        if not any(abs(at_s - t) < self._settings.repeat_apart_s for t in kept):
            kept = sorted([*kept, at_s])[-most:]
        self._repeats[key] = kept
        if len(self._repeats) > self._settings.conditions_max:
            del self._repeats[next(iter(self._repeats))]
        return kept

    # -- the host, and what an exporter says

    def _host(self, event: Event, job: str, now_s: float) -> list[Sighting]:
        """A kernel line that is no Xid; some rows need a second sign or a third repeat."""
        seen = kernel(event, job)
        rule = HOST_RULES.get((event.type, event.class_))
        if rule is None or not (rule.witnessed or rule.repeats):
            return self._heard(seen, now_s)
        if rule.witnessed and event.entity and self._other_sign(seen, event.at):
            seen = replace(seen, role="fault", severity="critical", certain=True,
                           metric=f"{event.type}_failed")  # fmt: skip
        if rule.repeats:
            key = (event.node, event.entity, seen.metric)
            most = self._settings.host_repeat_count
            if len(self._times(key, event.at, self._settings.witness_s, most)) >= most:
                seen = replace(seen, role="fault", metric=f"{seen.metric}_repeated")
        return self._heard(seen, now_s)

    def _other_sign(self, seen: Sighting, at_s: float) -> bool:
        """Whether another kind of line spoke of the same device lately."""
        return any(
            key[0] == seen.node
            and device_of(key[1]) == device_of(seen.entity)
            and key[2] != seen.metric
            and known.seen.kind == seen.kind
            and at_s - known.seen.onset_s <= self._settings.witness_s
            for key, known in self._conditions.items()
        )

    def _second_hand(self, event: Event, job: str, now_s: float) -> list[Sighting]:
        """What only an exporter says is a warning: its gauges are late, stick and overwrite.

        Where the kernel said the same, its line has the whole effect and this has none.
        """
        logged_s = self._logged.get((event.node, event.type, event.code))
        if logged_s is not None and abs(event.at - logged_s) <= self._settings.same_event_s:
            return []
        if event.type == "xid" and event.code is not None:
            seen = xid(event, event.code, job)
        else:
            seen = kernel(event, job)
        severity: Severity = "info" if event.severity == "info" else "warning"
        return self._heard(
            replace(seen, role="evidence", severity=severity, certain=False), now_s
        )  # fmt: skip

    def _stale(self, event: Event, now_s: float) -> list[Sighting]:
        """A kernel line that was read long after it was written, as all that a boot left are when
        an agent is installed or reads anew: the device may have been reset or replaced since.

        What would prove a fault if it were news opens an incident, and people look; nothing is
        counted with it, and it says nothing of the job of now.
        """
        if event.class_ == INJECTED or event.severity == "info" or event.source != KERNEL:
            return []
        if event.type == "xid" and event.code is not None:
            seen = xid(event, event.code, "")
        else:
            seen = kernel(event, "")
        if not seen.certain:
            return []
        since_s = (now_s if event.sent_at is None else event.sent_at) - event.at
        text = f"read {since_s:.0f} s after it was written: {seen.text}"
        seen = replace(seen, certain=False, severity="warning", metric=f"{seen.metric}_stale",
                       text=text)  # fmt: skip
        return self._heard(seen, now_s)

    def _switch(self, event: Event, job: str, now_s: float) -> list[Sighting]:
        """What a switch says of itself or of a node's port."""
        if event.severity == "info":
            metric = f"switch_{event.class_.removesuffix('_normal')}"
            return self._end(event.node, event.entity, metric, event.at)
        return self._heard(switch(event, job), now_s)

    def _log(self, event: Event) -> None:
        key = (event.node, event.type, event.code)
        self._logged.pop(key, None)
        self._logged[key] = event.at
        if len(self._logged) > self._settings.conditions_max:
            del self._logged[next(iter(self._logged))]

    # -- conditions

    def advance(self, now_s: float, view: View) -> Sequence[Sighting]:
        """Judge the bursts that ended, say counts that rose, clear what was not heard of."""
        said: list[Sighting] = []
        for proven in self._bursts.close(now_s, view):
            said += self._heard(proven, now_s)
        for key, condition in list(self._conditions.items()):
            over = now_s - condition.heard_s > self._clear_s
            behind = condition.events > condition.seen.events
            if behind and (over or now_s - condition.said_s >= RENEWED_S):
                said.append(self._say(condition, now_s))
            if over:
                del self._conditions[key]
                said.append(replace(condition.seen, active=False))
        return said

    def _heard(self, seen: Sighting, now_s: float) -> list[Sighting]:
        """Count `seen` with what is already known of the same subject."""
        key = (seen.node, seen.entity, seen.metric, seen.job)
        known = self._conditions.pop(key, None)
        if known is None:
            self._conditions[key] = Condition(seen, now_s, seen.events, now_s, seen.text)
            return [*self._make_room(), seen]
        self._conditions[key] = known
        known.heard_s, known.line = now_s, seen.text
        known.events = max(known.events + 1, seen.events)
        graver = seen.certain > known.seen.certain or seen.severity != known.seen.severity
        if known.events <= EACH or known.events >= 2 * known.seen.events or graver:
            known.seen = replace(
                seen, onset_s=known.seen.onset_s, events=known.seen.events,
                certain=seen.certain or known.seen.certain,
                severity="critical" if known.seen.certain else seen.severity,
            )  # fmt: skip
            return [self._say(known, now_s)]
        return []

    def _say(self, condition: Condition, now_s: float) -> Sighting:
        """The condition as it stands now, with its count."""
        times = f"{condition.events} times: " if condition.events > EACH else ""
        condition.seen = replace(
            condition.seen, events=condition.events, text=f"{times}{condition.line}"
        )
        condition.said_s = now_s
        return condition.seen

    def _end(self, node: str, entity: str, metric: str, at_s: float) -> list[Sighting]:
        """A line takes back what an earlier one began."""
        said: list[Sighting] = []
        for key, condition in list(self._conditions.items()):
            if key[:3] == (node, entity, metric) and condition.seen.onset_s <= at_s:
                del self._conditions[key]
                said.append(replace(condition.seen, active=False))
        return said

    def on_control(self, control: Control, nodes: Sequence[str], now_s: float) -> list[Sighting]:
        """An operator says that the nodes are well."""
        return [seen for node in nodes for seen in self.forget(node)]

    def forget(self, node: str) -> list[Sighting]:
        """Drop all that is known of a node; clears what was open."""
        self._bursts.forget(node)
        for counts in [key for key in self._repeats if key[0] == node]:
            del self._repeats[counts]
        gone = [key for key in self._conditions if key[0] == node]
        return [replace(self._conditions.pop(key).seen, active=False) for key in gone]

    def _make_room(self) -> list[Sighting]:
        if len(self._conditions) <= self._settings.conditions_max:
            return []
        oldest = self._conditions.pop(next(iter(self._conditions)))
        return [replace(oldest.seen, active=False)]

    def snapshot(self) -> Any:
        """Open conditions, the times of repeats, bursts and boots."""
        repeats = [(*key, times) for key, times in self._repeats.items()]
        logged = [(*key, at_s) for key, at_s in self._logged.items()]
        conditions = list(self._conditions.values())
        return msgspec.to_builtins(
            CriticalState(
                conditions, repeats, logged, self._bursts.snapshot(), self._boots.snapshot()
            )
        )

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        kept = msgspec.convert(state, CriticalState)
        self._conditions = {
            (c.seen.node, c.seen.entity, c.seen.metric, c.seen.job): c for c in kept.conditions
        }
        self._repeats = {(node, entity, what): t for node, entity, what, t in kept.repeats}
        self._logged = {(node, type_, code): at_s for node, type_, code, at_s in kept.logged}
        self._bursts.restore(kept.bursts)
        self._boots.restore(kept.boots)


_LINK5_METRICS = frozenset(f"xid_{code}" for code in LINK5)
_REPAIRED = (48, 63, 64, 74, 94, 95, 109, 136, 140, 155, *LINK5)  # faults that a reset is for
