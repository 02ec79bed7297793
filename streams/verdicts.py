"""Incidents get their verdicts: said once, kept, asked again when their time comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from streams.attempts import Attempts, asked_for, settle, told
from streams.attempts import merged as merged_attempts
from telemetry.attempts import Attempt
from telemetry.findings import ACTING, ISOLATING, Context, Incident, Isolation, Verdict
from telemetry.settings import PolicySettings

Decide = Callable[[Incident, Context, PolicySettings, float], Verdict]
ContextOf = Callable[[Incident, list[Isolation]], Context]

REPEAT_S = 600.0
LEDGER_MAX = 10_000
VERDICTS_MAX = 100


class Docket(msgspec.Struct):
    """What a snapshot keeps: incidents as last said, the ledger of isolations, what was tried."""

    incidents: dict[str, Incident] = {}
    said_at: dict[str, float] = {}
    ledger: list[Isolation] = []
    inherited: dict[str, list[Verdict]] = {}  # by a story that is not told yet
    attempts: Attempts = {}


class Judge:
    """Runs the ladder on each new revision and when a verdict asked to be asked again."""

    def __init__(self, decide: Decide, context_of: ContextOf) -> None:
        self._decide = decide
        self._context_of = context_of
        self.docket = Docket(incidents={}, said_at={}, ledger=[], inherited={}, attempts={})

    def take(
        self, incidents: Sequence[Incident], policy: PolicySettings, now: float
    ) -> list[Incident]:
        """The incidents with their verdicts, in their next revisions."""
        heirs = self._inherit(incidents)
        said = [self._say(incident, policy, now) for incident in incidents]
        told = {incident.id for incident in incidents}
        return [*said, *(self._say(heir, policy, now) for heir in heirs if heir.id not in told)]

    def _inherit(self, incidents: Sequence[Incident]) -> list[Incident]:
        """What acted in a story that was merged acts on in the elder; the elders known so far."""
        heirs: dict[str, None] = {}
        for merged in incidents:
            elder, known = merged.merged_into, self.docket.incidents.get(merged.id)
            if not elder or known is None or known.merged_into:
                continue
            acted = [verdict for verdict in known.verdicts if verdict.action in ACTING]
            if acted:
                self.docket.inherited[elder] = [*self.docket.inherited.get(elder, ()), *acted]
                heirs[elder] = None
            self.docket.ledger = [
                msgspec.structs.replace(line, incident=elder)
                if line.incident == merged.id
                else line
                for line in self.docket.ledger
            ]
            merged_attempts(self.docket.attempts, known.job, merged.id, elder)
        return [self.docket.incidents[elder] for elder in heirs if elder in self.docket.incidents]

    def close_all(self, now: float) -> list[Incident]:
        """Everything that is open ends now: it can never be told again under its ids."""
        closed = [
            msgspec.structs.replace(known, rev=known.rev + 1, closed_at=now)
            for known in self.docket.incidents.values()
            if known.closed_at is None
        ]
        self.docket.incidents.update((incident.id, incident) for incident in closed)
        return closed

    def tried(
        self, incident: str, attempt: Attempt, policy: PolicySettings, now: float
    ) -> list[Incident]:
        """A step was made for the incident, or is known to have worked: what the ladder says now.

        An incident that closed meanwhile still learns what worked.
        """
        known = self.docket.incidents.get(incident)
        if known is None or not known.job or known.merged_into:
            return []
        told(self.docket.attempts, known.job, incident, attempt, now)
        fresh = self._decide(known, self._context_of(known, self.docket.ledger), policy, now)
        if _same(_last(known), fresh) or (known.closed_at is not None and not fresh.final_cause):
            return []
        return [self._add_fresh(known, fresh, now)]

    def failed(self, job: str) -> bool:
        """Whether an open incident says that the job's own code failed."""
        return any(
            known.kind == "user_error" and known.job == job and known.closed_at is None
            for known in self.docket.incidents.values()
        )

    def reconsider(self, policy: PolicySettings, now: float) -> list[Incident]:
        """The rules changed: the open incidents of which the ladder says something else now."""
        said: list[Incident] = []
        for known in list(self.docket.incidents.values()):
            if known.closed_at is not None:
                continue
            fresh = self._decide(known, self._context_of(known, self.docket.ledger), policy, now)
            if not _same(_last(known), fresh):
                said.append(self._say(known, policy, now))
        return said

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
                said.append(self._repeat(known, policy, now))
        return said

    def _repeat(self, known: Incident, policy: PolicySettings, now: float) -> Incident:
        """As it was said; where a verdict isolated somebody, with what the ladder says of that."""
        self.docket.said_at[known.id] = now
        if known.job in self.docket.attempts and _acting(known.verdicts).action in ISOLATING:
            fresh = self._decide(known, self._context_of(known, self.docket.ledger), policy, now)
            if fresh.final_cause and not _same(_last(known), fresh):
                return self._add_fresh(known, fresh, now)
        return known

    def _add_fresh(self, known: Incident, fresh: Verdict, now: float) -> Incident:
        self._note(known, fresh)
        return self._add(known, [*known.verdicts, fresh], now)

    def _say(self, incident: Incident, policy: PolicySettings, now: float) -> Incident:
        known = self.docket.incidents.get(incident.id)
        verdicts = list(known.verdicts) if known is not None else []
        if (inherited := self.docket.inherited.pop(incident.id, None)) is not None:
            verdicts = sorted([*inherited, *verdicts], key=lambda verdict: verdict.at)
        if incident.closed_at is None and not incident.merged_into:
            if verdicts:  # the ladder repeats what it gave, and so must see it
                incident = msgspec.structs.replace(
                    incident, verdict=_acting(verdicts), verdicts=list(verdicts)
                )
            context = self._context_of(incident, self.docket.ledger)
            fresh = self._decide(incident, context, policy, now)
            if not verdicts or not _same(verdicts[-1], fresh):
                verdicts.append(fresh)
                self._note(incident, fresh)
            elif verdicts[-1].recheck_at != fresh.recheck_at:
                verdicts[-1] = msgspec.structs.replace(verdicts[-1], recheck_at=fresh.recheck_at)
        return self._add(incident, verdicts, now)

    def _add(self, incident: Incident, verdicts: list[Verdict], now: float) -> Incident:
        """The incident's next revision, with these verdicts."""
        known = self.docket.incidents.get(incident.id)
        verdicts = _kept(verdicts)
        said = msgspec.structs.replace(
            incident,
            rev=0 if known is None else known.rev + 1,
            verdict=_acting(verdicts),
            verdicts=verdicts,
        )
        self.docket.incidents[said.id] = said
        self.docket.said_at[said.id] = now
        return said

    def _note(self, incident: Incident, verdict: Verdict) -> None:
        asked_for(self.docket.attempts, incident.job, incident.id, verdict)
        if verdict.final_cause:
            settle(self.docket.attempts, incident.job, incident.id)
        if verdict.action in ISOLATING:
            self.docket.ledger += [Isolation(n, verdict.at, incident.id) for n in verdict.targets]
            del self.docket.ledger[:-LEDGER_MAX]


def _last(incident: Incident) -> Verdict:
    return incident.verdicts[-1] if incident.verdicts else incident.verdict


def _acting(verdicts: Sequence[Verdict]) -> Verdict:
    """The first that acts, else the last."""
    return next((verdict for verdict in verdicts if verdict.action in ACTING), verdicts[-1])


def _kept(verdicts: list[Verdict]) -> list[Verdict]:
    """All of them up to the limit, then the first ones, what acts, and the newest."""
    if len(verdicts) <= VERDICTS_MAX:
        return verdicts
    first = verdicts[: VERDICTS_MAX - 2]
    acting, newest = _acting(verdicts), verdicts[-1]
    return [*first, *([] if acting in first or acting is newest else [acting]), newest]


def _same(one: Verdict, other: Verdict) -> bool:
    return (one.action, one.targets, one.when, one.rung) == (
        other.action,
        other.targets,
        other.when,
        other.rung,
    )
