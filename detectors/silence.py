"""Nodes that were heard and are not any more: a third state, neither healthy nor proven broken."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec

from detectors.base import Quiet, Sighting, View
from telemetry.records import Steps
from telemetry.settings import EngineSettings

JOBS_MAX = 1_000  # whose newest step is remembered
ENDED_S = 900.0  # and not for longer: by then silence has been said
# Scheduler states in which a node may be quiet. "down" is not among them: it is Slurm's word for
# exactly the silence that is to be reported.
NOT_JUDGED = frozenset(
    {"drain", "drained", "draining", "gone", "removed", "maint", "future", "powered_down",
     "powering_down", "power_down"}
)  # fmt: skip


class SilenceState(msgspec.Struct):
    """What a snapshot keeps.

    heard         nodes that ever spoke at intervals
    quiet         node -> what is open of it
    gap           our own blind spot, while it lasts
    next_scan_s   nothing can have expired before
    spare_s       after a blind spot nobody is judged before
    beat_s        when time was last known to pass, None before the first time
    ended         job -> event time at which its newest step ended
    """

    heard: list[str] = []
    quiet: dict[str, Sighting] = {}
    gap: Sighting | None = None
    next_scan_s: float = 0.0
    spare_s: float = 0.0
    beat_s: float | None = None
    ended: dict[str, float] = {}


class Silence(Quiet):
    """Quiet nodes one by one; where most go quiet together, the blind spot is ours."""

    name = "silence"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings.silence
        self._nodes_max = settings.ticks.nodes_max
        self._heard: set[str] = set()
        self._quiet: dict[str, Sighting] = {}
        self._gap: Sighting | None = None
        self._next_scan_s = 0.0
        self._spare_s = 0.0
        self._beat_s: float | None = None
        self._ended: dict[str, float] = {}

    def on_steps(self, steps: Steps, view: View, now_s: float) -> Sequence[Sighting]:
        """A synchronous job that ends steps proves that all its nodes work."""
        if steps.step:
            newest_s = max(steps.at, self._ended.pop(steps.job, steps.at))
            self._ended[steps.job] = newest_s
            oldest = next(iter(self._ended))
            while len(self._ended) > JOBS_MAX or self._ended[oldest] < newest_s - ENDED_S:
                del self._ended[oldest]
                oldest = next(iter(self._ended))
        return ()

    def advance(self, now_s: float, view: View) -> Sequence[Sighting]:
        """Nodes that speak again are cleared at once, the others are only looked at when due."""
        said = self._back(now_s, view)
        leap_s = 0.0 if self._beat_s is None else now_s - self._beat_s
        self._beat_s = now_s
        if self._gap is None and now_s < self._next_scan_s:
            return said
        ages = self._ages(now_s, view)
        hushed = sum(1 for age_s, patience_s in ages.values() if age_s > patience_s / 2.0)
        overdue = [node for node, (age_s, patience_s) in ages.items() if age_s > patience_s]
        if any(leap_s > ages[node][1] for node in overdue):
            # The log itself stood still: nobody could be heard, and that proves nothing.
            self._spare_s = max(self._spare_s, now_s + self._settings.patience_s)
        blind = bool(ages) and hushed > self._settings.everybody_share * len(ages)
        if self._gap is not None:
            return [*said, *self._gap_over(now_s, blind)]
        if now_s < self._spare_s:
            self._next_scan_s = self._spare_s
            return said
        if overdue and blind:
            return [*said, self._blind(now_s, ages, hushed)]
        said += [self._say(node, ages[node][0], now_s, view) for node in overdue]
        self._next_scan_s = self._due_s(now_s, ages)
        return said

    def _patience_s(self, node: str, view: View) -> float:
        return max(self._settings.patience_s, view.patience_s(node))

    def _ages(self, now_s: float, view: View) -> dict[str, tuple[float, float]]:
        """node -> (seconds since it was heard, its patience); already silent ones left out."""
        ages: dict[str, tuple[float, float]] = {}
        for node in sorted(self._heard.union(view.reporting())):
            last_s = view.last_heard_s(node)
            if last_s is None or not _judged(node, view):
                self._heard.discard(node)
                continue
            if node not in self._heard and view.patience_s(node) == 0.0:
                continue  # only events so far: they come when they come
            if len(self._heard) < self._nodes_max:
                self._heard.add(node)
            if node not in self._quiet:
                ages[node] = (now_s - last_s, self._patience_s(node, view))
        return ages

    def _due_s(self, now_s: float, ages: dict[str, tuple[float, float]]) -> float:
        """When the first of them can be overdue; new nodes need at least `patience_s`."""
        left = [patience_s - age_s for age_s, patience_s in ages.values() if age_s <= patience_s]
        return now_s + min([*left, self._settings.patience_s])

    def _say(self, node: str, age_s: float, now_s: float, view: View) -> Sighting:
        last_s, patience_s = now_s - age_s, self._patience_s(node, view)
        job = view.place(node, last_s).job
        went_on_s = self._ended.get(job, last_s) - last_s
        works = went_on_s > patience_s / 2.0
        text = f"{node} is silent for {age_s:.0f} s, beyond its patience of {patience_s:.0f} s"
        if works:
            text += f"; its job {job} ended steps for {went_on_s:.0f} s after it: the node worked"
        seen = Sighting(
            active=True, detector=self.name, node=node, entity="", metric="last_heard_s",
            onset_s=last_s, kind="telemetry_gap" if works else "node_silent",
            cause="telemetry" if works else "unknown", severity="warning", job=job,
            observed=round(age_s, 3), expected=patience_s, unit="s", score=0.5, text=text,
        )  # fmt: skip
        self._quiet[node] = seen
        return seen

    def _back(self, now_s: float, view: View) -> list[Sighting]:
        """What is open and over: the node speaks again, or is out of service on purpose."""
        said = []
        for node, seen in sorted(self._quiet.items()):
            last_s = view.last_heard_s(node)
            again = last_s is not None and now_s - last_s <= self._patience_s(node, view)
            if again or last_s is None or not _judged(node, view):
                del self._quiet[node]
                said.append(replace(seen, active=False))
        return said

    def _blind(self, now_s: float, ages: dict[str, tuple[float, float]], hushed: int) -> Sighting:
        onset_s = now_s - max(age_s for age_s, _ in ages.values())
        self._gap = Sighting(
            active=True, detector=self.name, node="", entity="", metric="reporting_nodes",
            onset_s=onset_s, kind="telemetry_gap", cause="telemetry", severity="critical",
            observed=float(len(ages) - hushed), expected=float(len(ages)), unit="nodes", score=1.0,
            text=f"{hushed} of {len(ages)} nodes went quiet together: the blind spot is ours",
        )  # fmt: skip
        return self._gap

    def _gap_over(self, now_s: float, blind: bool) -> list[Sighting]:
        if self._gap is None or blind:
            return []
        seen, self._gap = self._gap, None
        self._spare_s = now_s + self._settings.patience_s  # the rest may be late, not lost
        self._next_scan_s = self._spare_s
        return [replace(seen, active=False)]

    def snapshot(self) -> Any:
        """Who spoke, who is silent, and when to look again."""
        return msgspec.to_builtins(
            SilenceState(
                sorted(self._heard),
                self._quiet,
                self._gap,
                self._next_scan_s,
                self._spare_s,
                self._beat_s,
                self._ended,
            )
        )

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        kept = msgspec.convert(state, SilenceState)
        self._heard, self._quiet, self._gap = set(kept.heard), kept.quiet, kept.gap
        self._next_scan_s, self._spare_s = kept.next_scan_s, kept.spare_s
        self._beat_s, self._ended = kept.beat_s, kept.ended


def _judged(node: str, view: View) -> bool:
    info = view.info(node)
    return info is None or _is_judged(info.state)


@lru_cache(maxsize=1_024)
def _is_judged(state: str) -> bool:
    """Whether silence proves something in this state; a cluster has few of them."""
    return NOT_JUDGED.isdisjoint(re.split(r"[^a-z_]+", state.lower()))
