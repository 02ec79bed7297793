"""Incidents get their verdicts: said once, kept, asked again when their time comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from telemetry.findings import ACTING, ISOLATING, Context, Incident, Isolation, Verdict
from telemetry.settings import PolicySettings

Decide = Callable[[Incident, Context, PolicySettings, float], Verdict]
ContextOf = Callable[[Incident, list[Isolation]], Context]

REPEAT_S = 600.0
LEDGER_MAX = 10_000
VERDICTS_MAX = 100


class Docket(msgspec.Struct):
    """What a snapshot keeps: incidents as last said, and the ledger of isolations."""

    incidents: dict[str, Incident] = {}
    said_at: dict[str, float] = {}
    ledger: list[Isolation] = []


class Judge:
    """Runs the ladder on each new revision and when a verdict asked to be asked again."""

    def __init__(self, decide: Decide, context_of: ContextOf) -> None:
        self._decide = decide
        self._context_of = context_of
        self.docket = Docket(incidents={}, said_at={}, ledger=[])

    def take(
        self, incidents: Sequence[Incident], policy: PolicySettings, now: float
    ) -> list[Incident]:
        """The incidents with their verdicts, in their next revisions."""
        return [self._say(incident, policy, now) for incident in incidents]

    def advance(self, policy: PolicySettings, now: float, forget_s: float) -> list[Incident]:
        """Re-judge what is due, say open incidents again, forget what closed long ago."""
        said: list[Incident] = []
        for known in list(self.docket.incidents.values()):
            if known.closed_at is not None:
                if now - known.closed_at > forget_s:
                    del self.docket.incidents[known.id], self.docket.said_at[known.id]
                continue
            recheck = _last(known).recheck_at
            if recheck is not None and now >= recheck:
                said.append(self._say(known, policy, now))
            elif now - self.docket.said_at[known.id] >= REPEAT_S:
                self.docket.said_at[known.id] = now
                said.append(known)
        return said

    def _say(self, incident: Incident, policy: PolicySettings, now: float) -> Incident:
        known = self.docket.incidents.get(incident.id)
        verdicts = list(known.verdicts) if known is not None else []
        if incident.closed_at is None and not incident.merged_into:
            if known is not None:  # the ladder repeats what it gave, and so must see it
                incident = msgspec.structs.replace(
                    incident, verdict=known.verdict, verdicts=list(verdicts)
                )
            context = self._context_of(incident, self.docket.ledger)
            fresh = self._decide(incident, context, policy, now)
            if not verdicts or not _same(verdicts[-1], fresh):
                verdicts.append(fresh)
                self._note(incident.id, fresh)
            elif verdicts[-1].recheck_at != fresh.recheck_at:
                verdicts[-1] = msgspec.structs.replace(verdicts[-1], recheck_at=fresh.recheck_at)
        verdicts = [*verdicts[:VERDICTS_MAX], *verdicts[VERDICTS_MAX:][-1:]]
        said = msgspec.structs.replace(
            incident,
            rev=0 if known is None else known.rev + 1,
            verdict=next((v for v in verdicts if v.action in ACTING), verdicts[-1]),
            verdicts=verdicts,
        )
        self.docket.incidents[said.id] = said
        self.docket.said_at[said.id] = now
        return said

    def _note(self, incident: str, verdict: Verdict) -> None:
        if verdict.action in ISOLATING:
            self.docket.ledger += [Isolation(n, verdict.at, incident) for n in verdict.targets]
            del self.docket.ledger[:-LEDGER_MAX]


def _last(incident: Incident) -> Verdict:
    return incident.verdicts[-1] if incident.verdicts else incident.verdict


def _same(one: Verdict, other: Verdict) -> bool:
    return (one.action, one.targets, one.when, one.rung) == (
        other.action,
        other.targets,
        other.when,
        other.rung,
    )
