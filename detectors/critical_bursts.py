"""Xid bursts: all that one node says until three minutes of silence, classified as a whole.

One burst is one story however many lines it has: state and output grow with the distinct codes and
devices, not with the lines. When it ends, it is known whether a 13 or 31 stood alone or was spread.
Sources: NVIDIA Fleet Intelligence (session gap 180 s, classify the whole set), NVSentinel (13 by
GPC and TPC, 31 by GPU, twice in 24 h; on several GPUs it is the workload), DCGM's own advice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from detectors.base import Sighting, View
from detectors.critical_rules import CONTAINED, JOB_XIDS, LOCATED_XIDS, base, xid_cause
from telemetry.records import Event
from telemetry.settings import CriticalSettings
from telemetry.xids import lookup

DISTINCT_MAX = 256  # (device, code) pairs of one burst; further ones are counted together
UNITS_MAX = 4  # distinct places of a 13 in a burst; more of them change nothing
SPREAD_MAX = 64
_UNIT = re.compile(r"\bGPC (\d{1,3})\b.{0,16}?\bTPC (\d{1,3})\b", re.IGNORECASE)


class Counted(msgspec.Struct):
    """One code on one device within a burst."""

    count: int
    first_s: float
    job: str
    units: list[str] = []


class Burst(msgspec.Struct):
    """One node's burst; `heard_s` is the log's now of its newest line."""

    first_s: float
    heard_s: float
    distinct: dict[str, Counted] = {}
    more: int = 0

    @property
    def root(self) -> str:
        """The (device, code) that explains the others: first the gravest, then the earliest."""
        rank = {key: (not _is_root(key), c.first_s, key) for key, c in self.distinct.items()}
        return min(rank, key=lambda key: rank[key])


class Repeats(msgspec.Struct):
    """What is remembered of one place over a day: when, and in which jobs."""

    times: list[float] = []
    jobs: list[str] = []


class Spread(msgspec.Struct):
    """GPUs of one job that saw one application error, each soon after the one before."""

    at_s: float
    gpus: list[str]


class Bursts:
    """Open bursts by node, and what came back at the same place."""

    def __init__(self, settings: CriticalSettings) -> None:
        self._settings = settings
        self._open: dict[str, Burst] = {}
        self._places: dict[str, Repeats] = {}
        self._spread: dict[str, Spread] = {}  # by job|code

    def take(self, event: Event, code: int, job: str, now_s: float) -> list[Sighting]:
        """Put a line into its node's burst; what the whole now proves at once."""
        burst = self._open.pop(event.node, None) or Burst(event.at, now_s)
        burst.heard_s = now_s
        self._open[event.node] = burst
        key = f"{event.entity}|{code}"
        known = burst.distinct.get(key)
        if known is None and len(burst.distinct) >= min(
            DISTINCT_MAX, self._settings.conditions_max
        ):
            burst.more += 1
            return []
        if known is None:
            known = burst.distinct[key] = Counted(0, event.at, job)
        new = known.count == 0
        moved = new or known.job != job
        known.count += 1
        known.job = job
        known.first_s = min(known.first_s, event.at)
        unit = _unit(event, code)
        if unit and unit not in known.units and len(known.units) < UNITS_MAX:
            known.units = [*known.units, unit]
        said = self._jobs(event, code, job) if moved and code in JOB_XIDS else []
        if new:
            said += self._spread_of(event, code, job)
        self._bound()
        return said

    def close(self, now_s: float, view: View) -> list[Sighting]:
        """Judge the bursts that nothing was added to for `echo_s`."""
        said: list[Sighting] = []
        for node, burst in list(self._open.items()):
            if now_s - burst.heard_s <= self._settings.echo_s:
                break
            del self._open[node]
            said += self._located(node, burst)
        return said

    def echo_of(self, event: Event, code: int) -> str:
        """What a 45 echoes: "xid 149 on pci:... 0.4 s before", "" where it stands alone."""
        burst = self._open.get(event.node)
        if code != 45 or burst is None:
            return ""
        device, _, root = burst.root.rpartition("|")
        if root in ("45", ""):
            return ""
        before_s = event.at - burst.distinct[burst.root].first_s
        return f"echo of Xid {root} on {device or 'the node'}, {max(0.0, before_s):.3g} s before"

    def holds(self, node: str, codes: Sequence[int], entity: str = "") -> bool:
        """Whether the node's open burst has one of the codes, on `entity` where that is given."""
        burst = self._open.get(node)
        return burst is not None and any(
            int(key.rpartition("|")[2]) in codes and entity in ("", key.rpartition("|")[0])
            for key in burst.distinct
        )

    def forget(self, node: str) -> None:
        """Drop the node's burst and what came back on it."""
        self._open.pop(node, None)
        for key in [key for key in self._places if key.startswith(f"{node}|")]:
            del self._places[key]

    # -- rules over a day

    def _jobs(self, event: Event, code: int, job: str) -> list[Sighting]:
        """Application errors on one GPU in several jobs of a day: the GPU is what they share."""
        if not job or not event.entity:
            return []
        place = self._place(f"{event.node}|{event.entity}|{code}|jobs", event.at)
        if job not in place.jobs:
            place.jobs = [*place.jobs, job][-self._settings.jobs_count :]
            place.times = [*place.times, event.at][-self._settings.jobs_count :]
        if len(place.jobs) < self._settings.jobs_count:
            return []
        row = lookup(code)
        hours = self._settings.repeat_window_s / 3_600.0
        text = f"Xid {code} ({row.meaning if row else '?'}) on one GPU in {len(place.jobs)} "
        seen = base(
            event, f"xid_{code}_across_jobs", "", f"{text}different jobs within {hours:g} h"
        )
        return [replace(seen, kind="gpu_fault", cause="hardware", events=len(place.jobs))]

    def _spread_of(self, event: Event, code: int, job: str) -> list[Sighting]:
        """13 or 31 on several GPUs of one job at once: its own code, unless a machine died too."""
        if code not in LOCATED_XIDS or not job:
            return []
        gpu, key = f"{event.node}|{event.entity}", f"{job}|{code}"
        known = self._spread.pop(key, None)
        if known is None or event.at - known.at_s > self._settings.echo_s:
            known = Spread(event.at, [])
        gpus = known.gpus if gpu in known.gpus else [*known.gpus, gpu][:SPREAD_MAX]
        self._spread[key] = Spread(max(known.at_s, event.at), gpus)
        if len(gpus) < self._settings.spread_gpus or self._machine_died(gpus):
            return []
        text = f"Xid {code} on {len(gpus)} GPUs of job {job} at once: its own code"
        seen = base(event, f"xid_{code}_spread", job, text)
        return [
            replace(
                seen, node="", entity="", kind="user_error", cause="user_code",
                severity="critical", events=len(gpus),
            )
        ]  # fmt: skip

    def _machine_died(self, gpus: Sequence[str]) -> bool:
        """Whether a node of these has a machine fault in its burst: then they are its echoes."""
        nodes = {gpu.partition("|")[0] for gpu in gpus}
        return any(_is_root(self._open[node].root) for node in nodes if node in self._open)

    def _located(self, node: str, burst: Burst) -> list[Sighting]:
        """A burst of 13 or 31 at one place of one GPU, again within a day: diagnose the GPU."""
        said: list[Sighting] = []
        if _is_root(burst.root):
            return []
        for code in sorted(LOCATED_XIDS):
            hit = [(k, c) for k, c in burst.distinct.items() if k.endswith(f"|{code}")]
            if len(hit) != 1 or (hit[0][1].job and self._is_spread(hit[0][1].job, code)):
                continue
            device, counted = hit[0][0].rpartition("|")[0], hit[0][1]
            where = counted.units[0] if len(counted.units) == 1 else "" if code == 13 else "gpu"
            if not device or not where:
                continue
            place = self._place(f"{node}|{device}|{code}|{where}", counted.first_s)
            place.times = [*place.times, counted.first_s][-self._settings.location_count :]
            if len(place.times) >= self._settings.location_count:
                said.append(self._diagnose(node, device, code, where, counted, place))
        return said

    def _diagnose(
        self, node: str, device: str, code: int, where: str, counted: Counted, place: Repeats
    ) -> Sighting:
        row, hours = lookup(code), self._settings.repeat_window_s / 3_600.0
        at = "" if where == "gpu" else f" at {where}"
        return Sighting(
            active=True, detector="critical", node=node, entity=device,
            metric=f"xid_{code}_same_place", onset_s=place.times[0], kind="gpu_fault",
            cause="unknown", job=counted.job, score=1.0, events=len(place.times),
            text=f"Xid {code} ({row.meaning if row else '?'}) in {len(place.times)} bursts "
            f"within {hours:g} h{at}, on no other GPU: diagnose this one",
        )  # fmt: skip

    def _is_spread(self, job: str, code: int) -> bool:
        known = self._spread.get(f"{job}|{code}")
        return known is not None and len(known.gpus) >= self._settings.spread_gpus

    def _place(self, key: str, at_s: float) -> Repeats:
        place = self._places.pop(key, None) or Repeats()
        fresh = [t for t in place.times if at_s - t <= self._settings.repeat_window_s]
        if place.jobs:
            place.jobs = place.jobs[len(place.times) - len(fresh) :]
        place.times = fresh
        self._places[key] = place
        return place

    def _bound(self) -> None:
        most = self._settings.conditions_max
        for table in (self._open, self._places, self._spread):
            while len(table) > most:
                del table[next(iter(table))]

    def snapshot(self) -> Any:
        """Plain data."""
        return msgspec.to_builtins([self._open, self._places, self._spread])

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        open_, places, spread = state
        self._spread = msgspec.convert(spread, dict[str, Spread])
        self._open = msgspec.convert(open_, dict[str, Burst])
        self._places = msgspec.convert(places, dict[str, Repeats])


def _is_root(key: str) -> bool:
    """Whether a (device, code) accuses the machine: hardware, and no mere hint."""
    code = int(key.rpartition("|")[2])
    row = lookup(code)
    if row is None or row.severity == "info":
        return False
    return code != CONTAINED and xid_cause(code, row) == "hardware" and row.class_ != "memory_hint"


def _unit(event: Event, code: int) -> str:
    found = _UNIT.search(event.text[:1_024]) if code == 13 else None
    return f"GPC {found[1]} TPC {found[2]}" if found else ""
