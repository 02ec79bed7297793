"""Decisions made again from the log alone: each saying must come out byte for byte.

The log of actions is read from its beginning, or from its first whole snapshot on. What stands
before a decision in it (the ledger, the site, the settings) and the revision of the incident that
it answers go through the same code that made it. Pure: nothing is decided or done here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from actions.access import Person
from actions.context import rail_context
from actions.ledger import Ledger
from actions.ledger_log import decode, encode
from actions.outside import not_compared
from actions.rails import decide, recheck
from actions.rules import settings_of
from actions.service import ActionService, Asked, Decide, Place, Recheck
from actions.updating import UPDATE_RUNG, news, restarts
from telemetry.actions import ActRules, Decision, DecisionState, LedgerPart, RailContext, Request
from telemetry.findings import Incident
from telemetry.settings import ActSettings

ANSWERING = frozenset({"approve", "deny", "isolate", "release"})  # requests that decide
DIFFERENCES_MAX = 20  # shown of one decision
FAULTS_MAX = 100
TEXT_MAX = 300  # characters of a value that differs

Result = Literal["equal", "differs", "unchecked"]
IncidentAt = Callable[[Place], Incident | None]


class Difference(msgspec.Struct, frozen=True):
    """One place in the record, as "rails[3].reason", and the two values as JSON."""

    field: str
    logged: str
    remade: str


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one saying of a decision.

    offset       in the log of actions
    reason       why it differs or could not be made again
    differences  of fields, the first ones
    """

    offset: int
    decision: str
    revision: int
    incident: str
    state: DecisionState
    at: float
    result: Result
    reason: str = ""
    differences: list[Difference] = []


class Auditor:
    """See above. Takes the records of the log of actions in their order.

    incident_at  the revision of an incident that stands at a place; None where nobody has it
    settings     to decide by these instead of those in the log: what differs is what they change
    whole        the log begins with its first record
    decide, recheck   as the service that wrote it had them

    faults  snapshots that say otherwise than what stands before them; the first ones
    """

    def __init__(
        self, incident_at: IncidentAt, *, whole: bool, settings: ActSettings | None = None,
        decide: Decide = decide, recheck: Recheck = recheck,
    ) -> None:  # fmt: skip
        self._incident_at, self._fixed = incident_at, settings
        self._decide, self._recheck = decide, recheck
        self._parts: list[LedgerPart] = []
        self._ledger: Ledger | None = None
        self._service: ActionService | None = None
        self._why_not = "it stands before the first snapshot of an archive that begins later"
        self._made: dict[tuple[object, ...], dict[str, Decision]] = {}
        self._answers: dict[str, Decision] = {}
        self.faults: list[str] = []
        if whole:
            self._begin(Ledger())

    def take(self, offset: int, value: bytes | None) -> Checked | None:
        """The next record as it stands in the log; what came of it where it is a decision."""
        record = decode(value)
        if record is None or value is None:
            return None
        checked = self._checked(offset, record, value) if isinstance(record, Decision) else None
        if not isinstance(record, Decision):
            self._answers = self._answered(record) if isinstance(record, Request) else {}
            self._made = {}
        if isinstance(record, LedgerPart):
            self._snapshot(offset, record)
        elif self._ledger is not None:
            self._ledger.take(record)
        if isinstance(record, ActRules):
            self._set(record)
        return checked

    # -- what the log has said so far

    def _begin(self, ledger: Ledger) -> None:
        self._ledger, self._service = ledger, None
        self._set(ledger.rules)

    def _set(self, rules: ActRules | None) -> None:
        """From here on the service decides by these."""
        ledger = self._ledger
        if ledger is None:
            return
        found = _settings(rules) if self._fixed is None else self._fixed
        if isinstance(found, str):
            self._service, self._why_not = None, found
            return
        settings = found

        def context(now_s: float) -> RailContext:
            return rail_context(ledger, ledger.site, settings, now_s)

        ledger.entries_max = settings.entries_max
        self._service = ActionService(ledger, settings, self._decide, context, self._recheck)

    def _snapshot(self, offset: int, part: LedgerPart) -> None:
        """What a whole one says is what an instance that takes over begins with."""
        if part.part == 0:
            self._parts = []
        elif len(self._parts) != part.part or self._parts[0].id != part.id:
            self._parts = []
            return
        self._parts.append(part)
        if len(self._parts) < part.parts:
            return
        settings = _settings(part.rules)
        ledger = Ledger() if isinstance(settings, str) else Ledger(settings.entries_max)
        ledger.restore(self._parts)
        self._parts = []
        if self._ledger is not None and len(self.faults) < FAULTS_MAX \
                and (unlike := _unlike(self._ledger, ledger)):  # fmt: skip
            self.faults.append(f"the snapshot that ends at {offset}: {unlike}")
        self._begin(ledger)

    # -- one decision

    def _checked(self, offset: int, said: Decision, value: bytes) -> Checked:
        def checked(result: Result, reason: str = "", fields: list[Difference] | None = None) \
                -> Checked:  # fmt: skip
            return Checked(
                offset=offset, decision=said.id, revision=said.revision, incident=said.incident,
                state=said.state, at=said.at, result=result, reason=reason,
                differences=fields or [],
            )  # fmt: skip

        if why := self._unknown(said):
            return checked("unchecked", why)
        remade = list(self._remade(said))
        if any(encode(one) == value for one in remade):
            return checked("equal")
        if said.source is not None and self._incident_at(said.source) is None:
            place = f"{said.source[0]}@{said.source[1]}"
            return checked("unchecked", f"nodewarden.incidents {place} is not in the archive")
        if not remade:
            return checked("differs", "nothing that stands in the log leads to it")
        fields = list(differences(msgspec.json.decode(value), msgspec.to_builtins(remade[0])))
        reason = "it comes out otherwise" if fields else "the same, in other bytes"
        return checked("differs", reason, fields[:DIFFERENCES_MAX])

    def _unknown(self, said: Decision) -> str:
        """Why it cannot be made again; "" where it can, as far as the ledger goes."""
        ledger, service = self._ledger, self._service
        if ledger is None or service is None:
            return self._why_not
        known = ledger.decisions.get(said.id)
        if known is None:
            return "what was said of it before is not in the log" if said.revision > 0 else ""
        if said.revision == 0 and known.at < said.at - service.settings.keep_s:
            ledger.drop(said.id)  # the service had forgotten it, and decided anew
        return ""

    def _remade(self, said: Decision) -> Iterator[Decision]:
        """What the service could have said of it at that time, the likeliest first."""
        service, ledger = self._service, self._ledger
        assert service is not None
        assert ledger is not None
        if said.id in self._answers:
            yield self._answers.pop(said.id)
        incident = None if said.source is None else self._incident_at(said.source)
        if said.verdict.rung == UPDATE_RUNG and said.revision == 0:
            yield from self._of(("news", said.at), said.id, lambda: restarts(
                news(ledger, service.settings, not_compared, said.at)
            ))  # fmt: skip
        if said.state == "expired":
            yield from self._of(("due", said.at), said.id, lambda: service.due(said.at))
        if incident is not None:
            yield from self._of(
                ("incident", said.source, said.at), said.id,
                lambda: service.incident(incident, said.source, said.at),
            )  # fmt: skip
        known = ledger.decisions.get(said.id)
        if known is not None and said.revision > 0:
            service.place_of = lambda _incident: said.source
            again = service.checked(known, lambda _incident: incident, said.at)
            if again is not known:
                yield again

    def _of(
        self, key: tuple[object, ...], name: str, make: Callable[[], list[Decision]]
    ) -> Iterator[Decision]:
        """Of several made at once none knew of the others: they are made at once again."""
        if name not in self._made.get(key, {}):
            self._made = {key: {one.id: one for one in make()}}
        if name in self._made[key]:
            yield self._made[key].pop(name)

    def _answered(self, request: Request) -> dict[str, Decision]:
        """What an accepted request decides, by id."""
        if self._service is None or not request.accepted or request.verb not in ANSWERING \
                or request.role is None:  # fmt: skip
            return {}
        asked = Asked(
            verb=request.verb, target=request.target, note=request.note, until=request.until,
            person=Person(request.by, request.role),
        )  # fmt: skip
        said, _ = self._service.request(asked, request.at)
        return {one.id: one for one in said if isinstance(one, Decision)}


def _settings(rules: ActRules | None) -> ActSettings | str:
    return "no settings stand in the log before it" if rules is None else settings_of(rules)


def _unlike(log: Ledger, snapshot: Ledger) -> str:
    """How a snapshot differs from what the log had said; "" where it does not.

    What is over may be forgotten by it, and so is not asked for.
    """
    for name, said in snapshot.decisions.items():
        if log.decisions.get(name) != said:
            return f"decision {name} is not as it was said"
    for name, command in snapshot.commands.items():
        if log.commands.get(name) != command:
            return f"command {command.id} is not as it was said"
    for name in ("paused", "epoch", "first_at", "lease_at", "positions", "rules", "site"):
        if getattr(log, name) != getattr(snapshot, name):
            return f"{name} is not as it was said"
    return ""


def differences(logged: Any, remade: Any, where: str = "") -> Iterator[Difference]:
    """The places at which two plain values differ."""
    if isinstance(logged, dict) and isinstance(remade, dict):
        for name in [*logged, *(one for one in remade if one not in logged)]:
            inner = f"{where}.{name}" if where else str(name)
            yield from differences(logged.get(name, ...), remade.get(name, ...), inner)
    elif isinstance(logged, list | tuple) and isinstance(remade, list | tuple) \
            and len(logged) == len(remade):  # fmt: skip
        for number, (one, other) in enumerate(zip(logged, remade, strict=True)):
            yield from differences(one, other, f"{where}[{number}]")
    elif logged != remade:
        yield Difference(where, _shown(logged), _shown(remade))


def _shown(value: Any) -> str:
    return "absent" if value is ... else msgspec.json.encode(value).decode()[:TEXT_MAX]
