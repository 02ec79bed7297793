"""Peer groups that are too small to compare: said once of each job, as a gap of what we can see."""

from __future__ import annotations

import numpy as np

from detectors.base import Sighting, Tick, View

SAID = -1.0
GROUPS_MAX = 10_000


class SmallGroups:
    """Since when each job's group is too small; a group that grows is forgotten."""

    def __init__(self, detector: str, group_min: int, patience_s: float) -> None:
        self._detector = detector
        self._group_min = group_min
        self._patience_s = patience_s
        self.since: dict[str, float] = {}  # by source, job and stage

    def look(self, tick: Tick, view: View) -> list[Sighting]:
        """Say it of groups that were too small for the whole patience."""
        numbers, first, sizes = np.unique(tick.group, return_index=True, return_counts=True)
        said = []
        for number, column, size in zip(
            numbers.tolist(), first.tolist(), sizes.tolist(), strict=True
        ):
            if number < 0:
                continue
            if size >= self._group_min and not self.since:
                continue
            place = view.place(tick.nodes[column], tick.at_s)
            key = f"{tick.source}|{place.job}|{place.stage}"
            if size >= self._group_min:
                self.since.pop(key, None)
                continue
            if len(self.since) >= GROUPS_MAX:
                del self.since[next(iter(self.since))]
            since_s = self.since.setdefault(key, tick.at_s)
            if since_s == SAID or tick.at_s - since_s < self._patience_s:
                continue
            self.since[key] = SAID
            said.append(self._say(tick.source, key, place.job, size, since_s))
        return said

    def _say(self, source: str, key: str, job: str, size: int, since_s: float) -> Sighting:
        return Sighting(
            active=True, detector=self._detector, node="", entity="", metric=key, onset_s=since_s,
            role="evidence", kind="telemetry_gap", cause="telemetry", severity="info", job=job,
            text=f"group too small: {size} nodes do the same work, "
            f"{self._group_min} are needed to compare {source} metrics",
            observed=float(size), expected=float(self._group_min), unit="nodes",
        )  # fmt: skip
