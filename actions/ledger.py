"""What was decided, ordered and done so far: the memory that rails and the service read.

Changed by records alone, in the order of the log, so that a rebuilt ledger equals the one that
wrote them. What is over is forgotten after a while; the log keeps it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from actions.recovery.table import ENDED
from actions.site import Site, SiteBook, changes
from actions.versions import Register
from actions.wanted import Wanted
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
from telemetry.findings import ISOLATING

STREAMS_MAX = 100  # of Control records, one an instance
PART_ENTRIES = 100  # of a snapshot: some 100 kB


class Ledger:
    """See above.

    decisions  id -> its newest saying; oldest first
    commands   decision's id -> its command, the first where it takes several
    recoveries decision's id -> how far bringing its job back is
    outcomes   command's id -> what became of it
    requests   what people asked for, oldest first, refused ones too
    positions  partition of the incidents -> the next offset to read
    versions   code and configuration of each job
    rules      the settings that decisions follow; None where nobody said them
    entries_max  so many decisions and requests are remembered, each
    """

    def __init__(self, entries_max: int = 20_000) -> None:
        self.entries_max = entries_max
        self.decisions: dict[str, Decision] = {}
        self._by_incident: dict[str, list[str]] = {}
        self._approved: dict[str, None] = {}  # ids of decisions
        self._controls: dict[float, int] = {}  # stream of Control records -> its next number
        self.wanted = Wanted(entries_max)
        self._of_breaker: dict[str, Decision] = {}  # those that asked it, oldest first
        self.commands: dict[str, Command] = {}
        self._further: dict[str, list[Command]] = {}  # decision's id -> its other commands
        self.recoveries: dict[str, Recovery] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.requests: dict[str, Request] = {}
        self.positions: dict[int, int] = {}
        self.paused = False
        self.epoch = 0
        self.first_at: float | None = None
        self.lease_at: float | None = None
        self.snoozed: dict[str, float] = {}  # incident -> until
        self.acked: dict[str, str] = {}  # incident -> by
        self.released: dict[str, float] = {}  # node -> when a person did
        self.false_alarms: dict[str, float] = {}  # incident -> when a person called it one
        self.versions = Register()
        self._site = SiteBook()
        self.rules: ActRules | None = None

    def take(self, record: ActionRecord) -> None:
        """One record of the log; what is said again replaces what was said before."""
        match record:
            case Decision():
                self._decision(record)
            case Command():
                self._command(record)
            case Outcome():
                self.outcomes[record.command] = record
                self._count(record.control)
            case Update():
                self.versions.take(record)
            case Recovery():
                known = self.recoveries.get(record.id)
                if known is None or record.revision > known.revision:
                    self.recoveries[record.id] = record
            case Request():
                self._request(record)
            case Lease():
                if record.epoch > self.epoch:  # else it only says once more that it is there
                    self.epoch, self.lease_at = record.epoch, record.at
                self.first_at = record.at if self.first_at is None else self.first_at
            case SiteFacts():
                self._site.take(record)
            case ActRules():
                self.rules = record
            case LedgerPart():
                pass  # says nothing new

    @property
    def site(self) -> Site:
        """What was last said of the site."""
        return self._site.site

    def command_of(self, decision: str) -> Command | None:
        """The command that the decision led to, the first where it took several."""
        return self.commands.get(decision)

    def commands_of(self, decision: str) -> list[Command]:
        """All of them, oldest first."""
        first = self.commands.get(decision)
        return [] if first is None else [first, *self._further.get(decision, ())]

    def all_commands(self) -> Iterator[Command]:
        """Those of all decisions."""
        for decision in self.commands:
            yield from self.commands_of(decision)

    def live_recoveries(self) -> list[Recovery]:
        """Those that are not at an end, oldest first."""
        return [one for one in self.recoveries.values() if one.state not in ENDED]

    def open_commands(self) -> list[Command]:
        """Intents of which nobody said yet what became of them, oldest first."""
        return [one for one in self.all_commands() if one.id not in self.outcomes]

    def done_commands(self) -> Iterator[tuple[Command, Outcome]]:
        """What was done, or may have been."""
        for command in self.all_commands():
            outcome = self.outcomes.get(command.id)
            if outcome is not None and outcome.status in ("done", "unknown"):
                yield command, outcome

    def escalated(self) -> list[Recovery]:
        """Those that are a person's, oldest first."""
        return [one for one in self.recoveries.values() if one.state == "escalated"]

    def of_incident(self, name: str) -> list[Decision]:
        """Its decisions, oldest first."""
        return [self.decisions[one] for one in self._by_incident.get(name, ())]

    def next_control(self) -> tuple[float, int] | None:
        """The next place in this instance's stream of Control records."""
        started_at = self.lease_at
        return None if started_at is None else (started_at, self._controls.get(started_at, 0))

    def approved(self) -> list[Decision]:
        """Those that may be carried out, are, or were; in the order of the approvals."""
        return [self.decisions[one] for one in self._approved]

    def is_false_alarm(self, decision: Decision) -> bool:
        """Whether a person said that the incident is none, and none approved it after that."""
        said_at = self.false_alarms.get(decision.incident) if decision.incident else None
        return said_at is not None and (decision.by == "rails" or decision.at <= said_at)

    def of_breaker(self) -> Iterator[Decision]:
        """Those that asked the breaker, the newest first."""
        return reversed(self._of_breaker.values())

    def find(self, target: str) -> Decision | None:
        """The decision of that id, or the newest of that incident that still waits."""
        if target in self.decisions:
            return self.decisions[target]
        of_incident = self.of_incident(target)
        found = [one for one in of_incident if one.state == "waiting"] or of_incident
        return found[-1] if found else None

    def forget(
        self, before_s: float, still_open: Collection[str] = (), *,
        in_force: Collection[str] = (), running: Collection[str] | None = None,
        now_s: float | None = None,
    ) -> None:  # fmt: skip
        """Drop what was over before.

        still_open  incidents that are told again: a forgotten decision of theirs would be made anew
        in_force    decisions of which something still stands: a node that is out by them
        running     jobs that run at `now_s`: their versions are kept; None where nobody says which
        now_s       at least `before_s`
        """
        gone = [
            one.id
            for one in self.decisions.values()
            if one.at < before_s and one.state != "waiting" and not self._is_open(one.id)
            and one.incident not in still_open and one.id not in in_force
        ]  # fmt: skip
        for name in gone:
            self.drop(name)
        old = [one.id for one in self.requests.values() if one.at < before_s]
        for name in [*old, *list(self.requests)[len(old) : -self.entries_max]]:
            self.requests.pop(name, None)
        self.snoozed = {name: until for name, until in self.snoozed.items() if until >= before_s}
        self.acked = dict(list(self.acked.items())[-self.entries_max :])
        self.released = {node: at for node, at in self.released.items() if at >= before_s}
        self.wanted.forget(before_s)
        self.false_alarms = {
            name: at for name, at in self.false_alarms.items()
            if at >= before_s or name in still_open
        }  # fmt: skip
        if running is not None:
            running = {*running, *(job for one in self.live_recoveries() for job in one.jobs)}
        self.versions.forget(before_s, running, before_s if now_s is None else now_s)

    def drop(self, name: str) -> None:
        """Forget one decision, and what came of it."""
        decision = self.decisions.pop(name)
        self._approved.pop(name, None)
        self._of_breaker.pop(name, None)
        others = self._by_incident[decision.incident]
        others.remove(name)
        if not others:
            del self._by_incident[decision.incident]
        self.recoveries.pop(name, None)
        for command in self.commands_of(name):
            self.outcomes.pop(command.id, None)
        self.commands.pop(name, None)
        self._further.pop(name, None)

    def parts(self, name: str, at: float) -> list[LedgerPart]:
        """A snapshot in parts of a bounded size."""
        pieces = list(self._pieces(at))
        return [
            LedgerPart(
                id=name, at=at, part=number, parts=len(pieces), paused=self.paused,
                epoch=self.epoch, first_at=self.first_at, lease_at=self.lease_at,
                positions=dict(self.positions), decisions=piece.decisions,
                commands=piece.commands, outcomes=piece.outcomes, requests=piece.requests,
                rules=self.rules, site=piece.site, recoveries=piece.recoveries,
                updates=piece.updates,
            )
            for number, piece in enumerate(pieces)
        ]  # fmt: skip

    def restore(self, parts: Iterable[LedgerPart]) -> None:
        """Become what the parts of one whole snapshot say, in their order."""
        for part in parts:
            records: list[ActionRecord] = [*part.decisions, *part.commands, *part.recoveries]
            for record in (*records, *part.outcomes, *part.requests, *part.site, *part.updates):
                self.take(record)
            self.paused, self.epoch = part.paused, part.epoch
            self.first_at, self.lease_at = part.first_at, part.lease_at
            self.positions = dict(part.positions)
            self.rules = part.rules

    def _pieces(self, at: float) -> Iterator[_Piece]:
        for facts in changes(Site(), self.site, at):
            yield _Piece(site=[facts])
        updates = self.versions.all()
        for first in range(0, len(updates), PART_ENTRIES):
            yield _Piece(updates=updates[first : first + PART_ENTRIES])
        piece = _Piece()
        for decision in self.decisions.values():
            piece.decisions.append(decision)
            piece.commands += (commands := self.commands_of(decision.id))
            piece.outcomes += [self.outcomes[c.id] for c in commands if c.id in self.outcomes]
            if (recovery := self.recoveries.get(decision.id)) is not None:
                piece.recoveries.append(recovery)
            if len(piece.decisions) + len(piece.commands) >= PART_ENTRIES:
                yield piece
                piece = _Piece()
        for request in self.requests.values():
            piece.requests.append(request)
            if len(piece.requests) >= PART_ENTRIES:
                yield piece
                piece = _Piece()
        yield piece

    def _decision(self, said: Decision) -> None:
        known = self.decisions.get(said.id)
        if known is None:
            self._by_incident.setdefault(said.incident, []).append(said.id)
            self._make_room()
        if known is None or said.revision > known.revision:
            self.decisions[said.id] = said
            if any(rail.name == "breaker" for rail in said.rails):
                self._of_breaker[said.id] = said
            self._approved.pop(said.id, None)
            if said.state == "approved":
                self._approved[said.id] = None
        # A quarantine is one decision of a person about many nodes: it opens no breaker.
        wants_out = said.verdict.action in ISOLATING and said.verdict.step != "quarantine"
        if wants_out and said.rails:
            for node in said.verdict.targets:
                self.wanted.take(node, said.verdict.at)
        if said.source is not None:
            partition, offset = said.source
            self.positions[partition] = max(self.positions.get(partition, 0), offset)

    def _make_room(self) -> None:
        """Where there are too many the oldest goes, at once: so it follows from the log alone.

        First one that came to nothing: budgets go by what was done, however much is said since.
        """
        if len(self.decisions) < self.entries_max:
            return
        # Some at once: in a flood the search for them must not be made for each that comes.
        some = max(1, self.entries_max // 100)
        of_nothing = [name for name in self.decisions if self._came_to_nothing(name)]
        rest = [] if of_nothing else [one for one in self.decisions if not self._is_open(one)]
        oldest = of_nothing[:some] or rest[:some]
        for name in oldest:
            self.drop(name)

    def _came_to_nothing(self, name: str) -> bool:
        begun = name in self.commands or name in self.recoveries
        return not begun and self.decisions[name].state != "approved"

    def _request(self, said: Request) -> None:
        self.requests[said.id] = said
        self._count(said.control)
        if not said.accepted:
            return
        match said.verb:
            case "pause" | "resume":
                self.paused = said.verb == "pause"
            case "ack":
                self.acked[said.target] = said.by
            case "snooze" if said.until is not None:
                self.snoozed[said.target] = said.until
            case "false_alarm":
                decision = self.decisions.get(said.target)
                incident = said.target if decision is None else decision.incident
                self.false_alarms[incident] = said.at
            case "release":
                self.released[said.target] = said.at
            case "isolate":
                self.released.pop(said.target, None)

    def _count(self, control: tuple[float, int] | None) -> None:
        if control is not None:
            started_at, seq = control
            self._controls[started_at] = max(self._controls.pop(started_at, 0), seq + 1)
            while len(self._controls) > STREAMS_MAX:
                del self._controls[next(iter(self._controls))]

    def _command(self, said: Command) -> None:
        if said.id in {one.id for one in self.commands_of(said.decision)}:
            return
        if self.commands.setdefault(said.decision, said) is not said:
            self._further.setdefault(said.decision, []).append(said)

    def _is_open(self, decision: str) -> bool:
        recovery = self.recoveries.get(decision)
        if recovery is not None and recovery.state not in ENDED:
            return True
        return any(one.id not in self.outcomes for one in self.commands_of(decision))


class _Piece(msgspec.Struct):
    decisions: list[Decision] = []
    commands: list[Command] = []
    outcomes: list[Outcome] = []
    recoveries: list[Recovery] = []
    requests: list[Request] = []
    updates: list[Update] = []
    site: list[SiteFacts] = []
