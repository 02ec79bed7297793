"""What the action service wrote: decisions, commands, outcomes, requests, within bounds."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Any, assert_never

import msgspec

from telemetry.actions import (
    ActionRecord,
    ActRules,
    Command,
    Decision,
    Lease,
    LedgerPart,
    Outcome,
    Recovery,
    Request,
    SiteFacts,
    Update,
)

DECISIONS_MAX = 20_000
COMMANDS_MAX = 50_000
PER_DECISION_MAX = 200
REQUESTS_MAX = 20_000


class Course(msgspec.Struct):
    """One decision over time; `newest` is its last word, with the rails that did not let it pass.

    first_at     it was first said
    waited_from  it began to wait for a person, None where it never did
    approved_at  None where it never was
    """

    newest: Decision
    first_at: float
    waited_from: float | None = None
    approved_at: float | None = None

    @property
    def decided_at(self) -> float:
        """When it was settled what is to be done."""
        return self.approved_at if self.approved_at is not None else self.first_at


class Deed(msgspec.Struct):
    """One command and what became of it, None while nobody said.

    read_back  its call was never answered, and the job runs again: it was done
    """

    command: Command
    outcome: Outcome | None = None
    read_back: bool = False

    @property
    def is_real(self) -> bool:
        """Whether something happened in the world: done, and no dry run."""
        if self.command.dry_run or self.outcome is None:
            return False
        return self.outcome.status == "done" or (
            self.read_back and self.outcome.status == "unknown"
        )


class Deeds:
    """See above; what is said again replaces what was said before.

    records  how many were taken
    dropped  what was too much, the oldest first, by what it was
    """

    def __init__(self) -> None:
        self.courses: OrderedDict[str, Course] = OrderedDict()
        self.of_incident: dict[str, list[str]] = {}
        self.by_decision: OrderedDict[str, dict[str, Deed]] = OrderedDict()
        self.requests: OrderedDict[str, Request] = OrderedDict()
        self.recoveries: OrderedDict[str, Recovery] = OrderedDict()
        self.updates: OrderedDict[str, Update] = OrderedDict()
        self.records = 0
        self.dropped: Counter[str] = Counter()
        self._decision_of: dict[str, str] = {}  # command -> decision

    def take(self, record: ActionRecord) -> None:
        """One record of the log, in its order."""
        self.records += 1
        match record:
            case Decision():
                self._decision(record)
            case Command():
                self._command(record)
            case Outcome():
                self._outcome(record)
            case Request():
                self._request(record)
            case Recovery():
                self._recovery(record)
            case Update():
                known = self.updates.get(record.id)
                if known is None or record.revision > known.revision:
                    self.updates[record.id] = record
                self._bound("updates", self.updates, REQUESTS_MAX)
            case Lease() | LedgerPart() | SiteFacts() | ActRules():
                pass  # says nothing new of what was done
            case _:
                assert_never(record)

    def deeds_of(self, decision: str) -> list[Deed]:
        """Its commands, oldest first."""
        return list(self.by_decision.get(decision, {}).values())

    def all_deeds(self) -> Iterator[Deed]:
        """All commands, by decision."""
        return (deed for deeds in self.by_decision.values() for deed in deeds.values())

    def courses_of(self, incident: str) -> list[Course]:
        """Its decisions, oldest first."""
        names = self.of_incident.get(incident, ())
        return [self.courses[name] for name in names if name in self.courses]

    def _decision(self, said: Decision) -> None:
        stopping = [rail for rail in said.rails if not rail.passed]
        said = msgspec.structs.replace(said, rails=stopping)
        known = self.courses.get(said.id)
        if known is None:
            known = self.courses[said.id] = Course(said, said.at)
            self.of_incident.setdefault(said.incident, []).append(said.id)
            self._forget()
        elif said.revision <= known.newest.revision:
            return
        known.newest = said
        if said.state == "waiting" and known.waited_from is None:
            known.waited_from = said.at
        if said.state == "approved" and known.approved_at is None:
            known.approved_at = said.at

    def _forget(self) -> None:
        if len(self.courses) <= DECISIONS_MAX:
            return
        name, gone = self.courses.popitem(last=False)
        self.dropped["decisions"] += 1
        others = self.of_incident[gone.newest.incident]
        others.remove(name)
        if not others:
            del self.of_incident[gone.newest.incident]
        for command in self.by_decision.pop(name, {}):
            self._decision_of.pop(command, None)

    def _command(self, said: Command) -> None:
        deeds = self.by_decision.setdefault(said.decision, {})
        if said.id in deeds:
            return
        if len(deeds) >= PER_DECISION_MAX:
            self.dropped["commands"] += 1
            return
        deeds[said.id] = Deed(said)
        self._decision_of[said.id] = said.decision
        while len(self._decision_of) > COMMANDS_MAX:
            _, oldest = self.by_decision.popitem(last=False)
            self.dropped["commands"] += len(oldest)
            for command in oldest:
                self._decision_of.pop(command, None)

    def _outcome(self, said: Outcome) -> None:
        deeds = self.by_decision.get(self._decision_of.get(said.command, ""), {})
        if said.command in deeds:
            deeds[said.command].outcome = said

    def _request(self, said: Request) -> None:
        self.requests[said.id] = said
        self._bound("requests", self.requests, REQUESTS_MAX)

    def _recovery(self, said: Recovery) -> None:
        known = self.recoveries.get(said.id)
        if known is not None and said.revision <= known.revision:
            return
        self.recoveries[said.id] = said
        self._bound("recoveries", self.recoveries, DECISIONS_MAX)
        if said.state == "running" and said.stopped and not said.dry_run:
            for deed in self.deeds_of(said.id):
                deed.read_back = True

    def _bound(self, what: str, kept: OrderedDict[str, Any], most: int) -> None:
        if len(kept) > most:
            kept.popitem(last=False)
            self.dropped[what] += 1
