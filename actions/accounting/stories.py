"""Incidents, cut to what accounting reads, each in its newest revision."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from telemetry.attempts import FinalCause
from telemetry.findings import ACTING, ISOLATING, Cause, Incident, Kind, Verdict

STORIES_MAX = 20_000
NODES_MAX = 64


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """One incident.

    onset      when the first piece of evidence began
    blamed     nodes that are blamed for themselves: not those behind a switch, or of a whole job
    acted_at   when the ladder first wanted something done, None where it never did
    """

    id: str
    rev: int
    job: str
    scope: str
    kind: Kind
    cause: Cause
    onset: float
    opened_at: float
    closed_at: float | None
    merged_into: str
    suspects: tuple[str, ...]
    blamed: tuple[str, ...]
    acted_at: float | None
    final_cause: FinalCause | None


def story_of(incident: Incident) -> Story:
    """What accounting reads of it."""
    suspects = tuple(dict.fromkeys(one.node for one in incident.suspects if one.node))[:NODES_MAX]
    verdicts = incident.verdicts or [incident.verdict]
    acting = [one.at for one in verdicts if one.action in ACTING]
    finals = [one.final_cause for one in (*verdicts, incident.verdict) if one.final_cause]
    return Story(
        id=incident.id, rev=incident.rev, job=incident.job, scope=incident.scope,
        kind=incident.kind, cause=incident.cause,
        onset=min((one.onset for one in incident.evidence), default=incident.opened_at),
        opened_at=incident.opened_at, closed_at=incident.closed_at,
        merged_into=incident.merged_into, suspects=suspects,
        blamed=_blamed(incident, suspects, verdicts),
        acted_at=min(acting, default=None), final_cause=finals[-1] if finals else None,
    )  # fmt: skip


def _blamed(
    incident: Incident, suspects: tuple[str, ...], verdicts: list[Verdict]
) -> tuple[str, ...]:
    """A leaf switch is no fault of the nodes behind it, and a quarantine none of all its nodes."""
    if incident.cause == "telemetry":
        return ()
    targets = [
        node
        for one in verdicts
        if one.action in ISOLATING and one.step != "quarantine"
        for node in one.targets
    ]
    if targets:
        return tuple(dict.fromkeys(targets))[:NODES_MAX]
    if incident.scope.startswith("node:"):
        return (incident.scope.removeprefix("node:"),)
    return suspects if len(suspects) == 1 and not incident.scope.startswith("leaf:") else ()


class Stories:
    """See above; `dropped` counts those that were too many, the oldest first."""

    def __init__(self) -> None:
        self.known: OrderedDict[str, Story] = OrderedDict()
        self.dropped = 0

    def take(self, incident: Incident) -> None:
        """A revision; older ones than what is known change nothing."""
        known = self.known.get(incident.id)
        if known is not None and incident.rev < known.rev:
            return
        self.known[incident.id] = story_of(incident)
        if len(self.known) > STORIES_MAX:
            self.known.popitem(last=False)
            self.dropped += 1

    def told(self) -> list[Story]:
        """Those that were not merged into an elder, by the time at which they opened."""
        whole = [one for one in self.known.values() if not one.merged_into]
        return sorted(whole, key=lambda one: (one.opened_at, one.id))
