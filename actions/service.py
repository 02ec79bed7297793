"""The action service as a state machine: incidents, requests and time in, records out.

It changes nothing itself: who drives it writes the records to the log and lets the ledger take
them. Nothing is done and nobody is told before they are acknowledged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from actions.access import Person
from actions.ledger import Ledger
from actions.rails import may_change
from actions.recovery.machine import recovers
from actions.versions import asked as wished
from actions.versions import rolled_back, told
from telemetry.actions import (
    Command,
    Decision,
    DecisionState,
    Outcome,
    OutcomeStatus,
    Preconditions,
    RailContext,
    Request,
    Update,
    Verb,
    command_id,
    decision_id,
)
from telemetry.attempts import Attempt
from telemetry.findings import Incident, Verdict, stable_id
from telemetry.settings import ActSettings, RailSettings

RELEASE_RUNG = "person_release"
PERSON_RUNG = "person_isolate"
TOLD = frozenset({"release", "false_alarm", "tried"})  # the engine hears of it
FALSE_ALARM = "a person called the incident a false alarm"
TEXT_MAX = 1_000  # characters of what a person writes
GROUP_MAX = 253  # of the name of a parallel group
# Of any scheduler; no option, no list, no blank. What carries it out is stricter.
_NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/+\-]{0,252}")
BOOT_TOLERANCE_S = 60.0  # nodes work their boot time out anew, a second more or less
Decide = Callable[[Verdict, Incident, RailContext, RailSettings, float], Decision]
Recheck = Callable[[Decision, Incident | None, RailContext, RailSettings, float], Decision]
ContextOf = Callable[[float], RailContext]
IncidentOf = Callable[[str], Incident | None]
Place = tuple[int, int]  # partition and offset in the log of incidents
PlaceOf = Callable[[str], Place | None]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it came in, its token already looked up.

    person  None where the token is nobody's; `problem` then says so
    until   of a snooze, Unix seconds
    attempt of "tried"
    versions of "update": what is to run, `urgent` by a restart of its own; or is `running` already
    """

    verb: Verb
    target: str
    person: Person | None
    note: str = ""
    until: float | None = None
    attempt: Attempt | None = None
    versions: dict[str, str] = {}
    urgent: bool = False
    running: bool = False
    problem: str = ""


Said = list[Decision | Update]
Answer = tuple[list[Decision | Request | Update], Request]


class ActionService:
    """See above.

    decide   the rails: F(verdict, incident, context, settings, now) -> Decision
    context  what the rails read, at a time
    place_of where the newest known revision of an incident stands
    recheck  the rails once more before something is done: F(decision, incident, context, settings,
             now) -> the decision, or what it has become
    """

    def __init__(
        self, ledger: Ledger, settings: ActSettings, decide: Decide, context: ContextOf,
        recheck: Recheck | None = None,
    ) -> None:  # fmt: skip
        self.ledger = ledger
        self.settings = settings
        self._decide, self._recheck = decide, recheck
        self._context = context
        self.place_of: PlaceOf = lambda _incident: None

    # -- incidents and time

    def incident(self, incident: Incident, source: Place | None, now_s: float) -> list[Decision]:
        """A decision for each verdict that has none yet, or that may be decided otherwise by now;
        what waits for a story that is over ends.

        source  partition and offset in the log of incidents
        """
        said = [
            decided
            for verdict in incident.verdicts or [incident.verdict]
            if (decided := self._news(verdict, incident, source, now_s)) is not None
        ]
        if incident.closed_at is None and not incident.merged_into:
            return said
        why = f"merged into {incident.merged_into}" if incident.merged_into else "closed"
        over = [
            msgspec.structs.replace(
                _next(one, "refused", f"the incident was {why} before anything was done", now_s),
                source=source,
            )
            for one in self.ledger.of_incident(incident.id)
            if self._is_pending(one)
        ]
        return said + over

    def due(self, now_s: float) -> list[Decision]:
        """Decisions whose time has passed: nobody answered, or nothing could be done in time."""
        return [
            _next(one, "expired", f"{_STILL[one.state]} at {_clock(one.expires_at)}", now_s)
            for one in self.ledger.decisions.values()
            if self._is_pending(one) and one.expires_at is not None and now_s >= one.expires_at
        ]

    # -- commands

    def intents(
        self, incident_of: IncidentOf, now_s: float, epoch: int
    ) -> Iterator[Command | Decision]:  # fmt: skip
        """A command for each approved decision that has none; the decision itself where it takes
        several, and its refusal where the rails now say so. None while paused.

        Each is asked for when its turn comes: what was taken before it counts already.
        """
        for one in self.ledger.approved():
            if self.ledger.paused or not self._is_pending(one):
                continue
            if one.expires_at is not None and now_s >= one.expires_at:
                continue
            checked = self.checked(one, incident_of, now_s)
            if checked is not one or recovers(one):
                yield checked
            else:
                yield self._command(one, now_s, epoch)

    def objection(
        self, command: Command, found: Preconditions, incident_of: IncidentOf, now_s: float
    ) -> str:
        """Why the command must not be carried out now; "" where nothing speaks against it."""
        if self.ledger.paused:
            return "paused"
        if now_s >= command.expires_at:
            return f"expired at {_clock(command.expires_at)}"
        decision = self.ledger.decisions.get(command.decision)
        if decision is None:
            return "its decision is no longer known"
        recovery = self.ledger.recoveries.get(decision.id)
        if recovery is not None:
            why = "" if recovery.stopped else self.against(decision, incident_of, now_s)
        else:
            checked = self.checked(decision, incident_of, now_s)
            why = "" if checked is decision else checked.reason
        # Work that comes and goes on a node changes nothing about what is to be done.
        wanted = msgspec.structs.replace(command.preconditions, states={})
        return why or difference(wanted, found)

    def against(self, decision: Decision, incident_of: IncidentOf, now_s: float) -> str:
        """What the rails say against going on with what was begun in time; "" nothing."""
        begun = msgspec.structs.replace(decision, expires_at=None)
        checked = self.checked(begun, incident_of, now_s)
        return "" if checked is begun else checked.reason

    def checked(self, decision: Decision, incident_of: IncidentOf, now_s: float) -> Decision:
        """The same decision right before something is done, or what it has become.

        A person's own isolation or release has no incident, and no rails.
        """
        if decision.state == "approved" and self.ledger.is_false_alarm(decision):
            refused = _next(decision, "refused", FALSE_ALARM, now_s)
            return msgspec.structs.replace(refused, source=self.place_of(decision.incident))
        if self._recheck is None or not decision.incident:
            return decision
        checked = self._recheck(
            decision, incident_of(decision.incident), self._context(now_s), self.settings.rails,
            now_s,
        )  # fmt: skip
        if checked is decision:
            return decision
        return msgspec.structs.replace(checked, source=self.place_of(decision.incident))

    # -- people

    def request(self, asked: Asked, now_s: float) -> Answer:
        """What a person asked for: the records that follow, and the request as it is audited."""
        why = asked.problem
        said: Said = []
        if not why:
            said, why = self._asked(asked, now_s)
        request = Request(
            id=self._request_id(asked, now_s), at=now_s,
            by=asked.person.name if asked.person is not None else "",
            role=asked.person.role if asked.person is not None else None,
            verb=asked.verb, target=asked.target[:TEXT_MAX], accepted=not why,
            reason=why or "taken", note=asked.note[:TEXT_MAX], until=asked.until,
            attempt=None if asked.attempt is None else msgspec.structs.replace(
                asked.attempt, at=now_s, incident=asked.target[:TEXT_MAX], told=True
            ),
            control=None if why else self._control(asked.verb), versions=asked.versions,
        )  # fmt: skip
        return [request, *said], request

    def _asked(self, asked: Asked, now_s: float) -> tuple[Said, str]:
        assert asked.person is not None, "who is nobody has a problem"
        by = asked.person.name
        match asked.verb:
            case "approve" | "deny":
                return self._answered(asked, by, now_s)
            case "snooze" if asked.until is None or asked.until <= now_s:
                return [], "a snooze needs an end that is still to come"
            case "isolate" | "release":
                if _NODE.fullmatch(asked.target) is None:
                    return [], f"{asked.target[:40]!r} is no node's name; ask for each node"
                return [self._by_hand(asked, by, now_s)], ""
            case "tried" if asked.attempt is None:
                return [], "no step is named"
            case "tried" if asked.attempt is not None and len(asked.attempt.group) > GROUP_MAX:
                return [], f"the group's name has more than {GROUP_MAX} characters"
            case "resume" if not self.ledger.paused:
                return [], "not paused"
            case "update" if asked.urgent and asked.running:
                return [], "urgent and running: it is one of them"
            case "update" | "rollback":
                return self._other_versions(asked, by, now_s)
            case _:
                return [], ""

    def _other_versions(self, asked: Asked, by: str, now_s: float) -> tuple[Said, str]:
        """The update, which joins a restart, or gets one of its own in the next round."""
        register, job, note = self.ledger.versions, asked.target, asked.note[:TEXT_MAX]
        forced_s = self.settings.versions.forced_s
        found: list[Update] | str
        if asked.verb == "rollback":
            found = rolled_back(register, job, urgent=asked.urgent, by=by, note=note,
                                now_s=now_s, forced_s=forced_s)  # fmt: skip
        elif asked.running:
            found = told(register, job, asked.versions, by=by, note=note, now_s=now_s)
        else:
            found = wished(register, job, asked.versions, urgent=asked.urgent, by=by, note=note,
                           now_s=now_s, forced_s=forced_s)  # fmt: skip
        return ([], found) if isinstance(found, str) else (list(found), "")

    def _answered(self, asked: Asked, by: str, now_s: float) -> tuple[Said, str]:
        found = self.ledger.find(asked.target)
        if found is None:
            return [], "no decision and no incident with a decision has this id"
        if found.state != "waiting":
            return [], f"decision {found.id} does not wait for anybody: {found.state}"
        if found.expires_at is not None and now_s >= found.expires_at:
            return [], f"decision {found.id} expired at {_clock(found.expires_at)}"
        note = f": {asked.note[:TEXT_MAX]}" if asked.note else ""
        if asked.verb == "deny":
            return [_next(found, "denied", f"denied by {by}{note}", now_s, by)], ""
        approved = _next(found, "approved", f"approved by {by}{note}", now_s, by)
        until_s = now_s + self.settings.command_s
        return [msgspec.structs.replace(approved, expires_at=until_s)], ""

    def _by_hand(self, asked: Asked, by: str, now_s: float) -> Decision:
        """A person's own isolation or release: budgets do not bind a person, the audit does."""
        does = "released" if asked.verb == "release" else "isolated"
        verdict = Verdict(
            action="none" if asked.verb == "release" else "isolate",
            reason=f"{does} by {by}" + (f": {asked.note[:TEXT_MAX]}" if asked.note else ""),
            targets=[asked.target], when="now", at=now_s,
            rung=RELEASE_RUNG if asked.verb == "release" else PERSON_RUNG,
        )  # fmt: skip
        return Decision(
            id=decision_id("", verdict), incident="", rev=0, at=now_s, verdict=verdict,
            mode="approve", rails=[], state="approved", reason=verdict.reason, by=by,
            expires_at=now_s + self.settings.command_s,
        )  # fmt: skip

    # -- parts

    def _news(
        self, verdict: Verdict, incident: Incident, source: Place | None, now_s: float
    ) -> Decision | None:
        """The first decision; another one where only what passes by itself had refused it."""
        known = self.ledger.decisions.get(decision_id(incident.id, verdict))
        if known is None:
            return self._decided(verdict, incident, source, now_s)
        if not may_change(known):
            return None
        fresh = self._decided(verdict, incident, source, now_s)
        if fresh.state == known.state and may_change(fresh):
            return None
        return msgspec.structs.replace(fresh, revision=known.revision + 1)

    def _decided(
        self, verdict: Verdict, incident: Incident, source: Place | None, now_s: float
    ) -> Decision:
        made = self._decide(verdict, incident, self._context(now_s), self.settings.rails, now_s)
        made = msgspec.structs.replace(
            made, id=decision_id(incident.id, verdict), source=source, job=incident.job
        )
        if made.state in ("waiting", "approved") and made.expires_at is None:
            waits = made.state == "waiting"
            lasts_s = self.settings.approval_s if waits else self.settings.command_s
            made = msgspec.structs.replace(made, expires_at=now_s + lasts_s)
        return made

    def _command(self, decision: Decision, now_s: float, epoch: int) -> Command:
        release = decision.verdict.rung == RELEASE_RUNG
        expires_at = decision.expires_at
        return Command(
            id=command_id(decision.id), decision=decision.id,
            action="release" if release else decision.verdict.action,
            targets=list(decision.verdict.targets), preconditions=Preconditions(job=decision.job),
            intent_at=now_s, expires_at=expires_at or now_s + self.settings.command_s,
            incident=decision.incident, job=decision.job, epoch=epoch,
            dry_run=self.settings.dry_run,
        )  # fmt: skip

    def _is_pending(self, decision: Decision) -> bool:
        """Whether something is still to become of it."""
        begun = self.ledger.command_of(decision.id) or self.ledger.recoveries.get(decision.id)
        return decision.state in _STILL and begun is None

    def _control(self, verb: Verb) -> tuple[float, int] | None:
        return self.ledger.next_control() if verb in TOLD else None

    def _request_id(self, asked: Asked, now_s: float) -> str:
        by = asked.person.name if asked.person is not None else ""
        return stable_id(
            "request", f"{now_s!r}", by, asked.verb, asked.target, str(len(self.ledger.requests))
        )


def outcome(command: Command, status: OutcomeStatus, reason: str, now_s: float) -> Outcome:
    """What became of the command."""
    return Outcome(command=command.id, at=now_s, status=status, reason=reason)


def difference(wanted: Preconditions, found: Preconditions) -> str:
    """How the world differs from what it was when it was decided; "" where it does not.

    What was not known then is not compared; what was and no longer is, differs.
    """
    for name, state in sorted(wanted.states.items()):
        if found.states.get(name) != state:
            return f"{name} was {state!r} and is {found.states.get(name, 'unknown')!r}"
    for name, owner in sorted(wanted.owners.items()):
        if found.owners.get(name, "") != owner:
            return f"{name} is held by {found.owners.get(name, '')!r} instead of {owner!r}"
    for name, boot_s in sorted(wanted.boots.items()):
        booted_s = found.boots.get(name)
        if booted_s is None or abs(booted_s - boot_s) > BOOT_TOLERANCE_S:
            return f"{name} started at {_clock(booted_s)} instead of {_clock(boot_s)}"
    if wanted.attempt is not None and found.attempt != wanted.attempt:
        return f"job {wanted.job} runs attempt {found.attempt} instead of {wanted.attempt}"
    return ""


def observing(
    verdict: Verdict, incident: Incident, context: RailContext, settings: RailSettings, now_s: float
) -> Decision:
    """The simplest rail: decide and note, do nothing."""
    wants = " ".join([verdict.action, *verdict.targets])
    return Decision(
        id=decision_id(incident.id, verdict), incident=incident.id, rev=incident.rev, at=now_s,
        verdict=verdict, mode="observe", rails=[], state="noted", job=incident.job,
        reason=f"observed only: would {wants}",
    )  # fmt: skip


_STILL = {"waiting": "nobody had answered", "approved": "nothing had been done"}


def _next(
    decision: Decision, state: DecisionState, reason: str, now_s: float, by: str | None = None
) -> Decision:
    """The decision said again, in another state."""
    return msgspec.structs.replace(
        decision, revision=decision.revision + 1, at=now_s, state=state, reason=reason,
        by=decision.by if by is None else by,
    )  # fmt: skip


def _clock(at_s: float | None) -> str:
    return "no time" if at_s is None else f"{at_s:.3f}"
