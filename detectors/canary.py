"""Canaries that came through: said, and over in the same moment.

Evidence about no node, no job and no part: it can open no incident and support none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from detectors.base import Quiet, Sighting, View
from telemetry.canary import CANARY, is_canary
from telemetry.records import Event


class Canary(Quiet):
    """Answers each canary with one finding, opened and cleared at once. It remembers nothing."""

    name = CANARY

    def on_event(self, event: Event, view: View, now_s: float) -> Sequence[Sighting]:
        """Only a record of the closed shape counts."""
        if not is_canary(event):
            return ()
        seen = Sighting(
            active=True, detector=self.name, node="", entity=event.entity, metric=CANARY,
            onset_s=event.at, role="evidence", kind="telemetry_gap", cause="telemetry",
            severity="info", text=f"{event.text} came through the engine",
        )  # fmt: skip
        return seen, replace(seen, active=False)
