"""The engine: a pure fold over one shard's log. No I/O, no clock, no logging.

Same records in, same findings and incidents out, whoever drives it: live, replay or embedded.
`now` is the arrival of the newest record and never goes back; timers fire when it passes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, assert_never

import msgspec

from detectors.base import Detector, FindingBook, Quiet, Sighting, Tick
from detectors.correlation import Correlator
from detectors.registry import detectors as build_detectors
from streams.adoption import adopt
from streams.counters import Counters, Coverage
from streams.forgetting import forget_gone, sweep_due
from streams.groups import Groups
from streams.inventory import Inventory
from streams.layout import BadFrame
from streams.outlook import context_of, coverage
from streams.progress import Progress
from streams.speakers import Speakers, Stream
from streams.spool import SpoolWatch
from streams.ticks import AHEAD_S, SourceTicks
from streams.verdicts import Decide, Judge
from telemetry.findings import Context, Finding, Incident, Isolation
from telemetry.records import (
    SWITCH,
    Allocation,
    Arrived,
    Beat,
    Begin,
    Control,
    End,
    Event,
    Frame,
    Hardware,
    Header,
    Record,
    Rejected,
    Settings,
    Steps,
)
from telemetry.settings import EngineSettings

ShardKind = Literal["live", "history", "capture"]
SOURCES_MAX = 256


class Said(msgspec.Struct, frozen=True):
    """What one record made the engine say, in order."""

    findings: list[Finding]
    incidents: list[Incident]


NOTHING = Said([], [])
# Of a piece of history; their times are no measurements. On the way of every record the type itself
# is asked for: `isinstance` is slow where it says no.
_EDGES = frozenset({Begin, End})
OnTick = Callable[[Tick], None]


class Fold:
    """One shard's engine. `step` takes the next record and returns what it made true."""

    def __init__(
        self, decide: Decide, kind: ShardKind = "live", on_tick: OnTick | None = None
    ) -> None:
        self._decide = decide
        self._kind = kind
        self._on_tick = on_tick  # for reports: what closed, read only
        self.counters = Counters(findings={}, reasons={})
        self.offset = -1  # of the newest record taken
        self.settings = EngineSettings()
        self.digest = ""
        self._forget_all()

    def _forget_all(self) -> None:
        """No state but the counters: a new piece of history."""
        self.now = -math.inf
        self.next_beat = -math.inf
        self.beats = False
        self.ready = False
        self.ended = False
        self.piece: tuple[float, str, float | None] | None = None  # the `Begin` it began with
        self.speakers = Speakers(self.settings.ticks)
        self.inventory = Inventory()
        self.groups = Groups(self.inventory)
        self.sources: dict[str, SourceTicks] = {}
        self.due_s, self.due_source = math.inf, ""
        self.spool = SpoolWatch()
        self.progress = Progress()
        self.judge = Judge(self._decide, self._context)
        self.coverage: Coverage | None = None
        self.swept = 0  # number of the last sweep for nodes that are gone
        self.last_at: float | None = None  # newest event time of this piece of history
        self._configure(self.settings)

    def adopt_settings(self, settings: EngineSettings, digest: str) -> None:
        """Run with these from here on; for restoring a fresh fold."""
        self._configure(settings)
        self.digest = digest

    def _configure(self, settings: EngineSettings) -> None:
        self.settings = settings
        self._gap_s = 3 * settings.ticks.beat_s  # a log that is silent for longer stood still
        self.speakers.adopt(settings.ticks)
        self.detectors: Sequence[Detector] = build_detectors(settings)
        self._readers_of_ticks = [d for d in self.detectors if _reads(d, "on_tick")]
        self._readers_of_events = [d for d in self.detectors if _reads(d, "on_event")]
        self._readers_of_steps = [d for d in self.detectors if _reads(d, "on_steps")]
        self.book = FindingBook(settings.cluster)
        self.correlator = Correlator(settings)

    # -- one record

    def step(self, arrived: Arrived) -> Said:
        """Take the next record of the log."""
        record, arrival = arrived.record, arrived.arrival
        self.offset = arrived.offset
        self.counters.records += 1
        refusal = record.reason if type(record) is Rejected else self._refusal(record)
        over = False
        if type(record) in _EDGES and isinstance(record, Begin | End) and not refusal:
            over = isinstance(record, End)
            self._edge(record)
        findings: list[Finding] = []
        incidents: list[Incident] = []
        # What is no part of a piece of history arrived today, and its clock stands in the past.
        if arrival > self.now and not (refusal and self._kind == "history"):
            self._move_time(arrival, over, findings, incidents)
        if refusal or type(record) is Rejected:
            self.counters.reject(refusal)
        else:
            self._dispatch(record, arrival, findings, incidents)
        return Said(findings, incidents) if findings or incidents else NOTHING

    def _edge(self, record: Begin | End) -> None:
        """A piece of history begins and all before it is forgotten, or it ends."""
        if isinstance(record, End):
            self.coverage = self.covered()
        elif self._is_another_piece(record):
            self._forget_all()
            self.piece = (record.at, record.name, record.replayed)

    def _dispatch(
        self, record: Record, arrival: float, findings: list[Finding], incidents: list[Incident]
    ) -> None:
        stream = self.speakers.stream_of(record)
        lost = stream.lost
        fresh = stream.take(record.seq)
        if stream.lost != lost:
            self.counters.lost += stream.lost - lost
        if not fresh or (type(record) is Event and self._was_read_before(record)):
            self.counters.duplicate += 1
            return
        at = self._event_time(record, stream, arrival)
        match record:
            case Frame():
                self._frame(record, at, arrival, findings, incidents)
            case Steps():
                self._steps(record, at, arrival, findings, incidents)
            case Event():
                self._heard(record, arrival)
                event = record if at == record.at else _moved(record, at)
                said = [
                    d.on_event(event, self.inventory, self.now) for d in self._readers_of_events
                ]
                self._hear_all(said, findings, incidents)
            case Hardware():
                self._heard(record, arrival)
                self.inventory.equip(record)
            case Allocation():
                self.counters.used += 1
                self.inventory.allocate(record)
            case Settings():
                self.counters.control += 1
                adopt(self, record, findings, incidents)
            case Beat():
                self.counters.control += 1
                self.beats = True
            case Control():
                self.counters.control += 1
                self._control(record, findings, incidents)
            case Begin() | End():
                self.counters.control += 1
                self.ended = self.ended or isinstance(record, End)
            case _:
                assert_never(record)

    def _control(self, record: Control, findings: list[Finding], incidents: list[Incident]) -> None:
        """A person's word on nodes; or a step of the ladder was made, which says nobody is well."""
        if record.action == "attempted":
            if record.attempt is not None:
                policy = self.settings.policy
                incidents += self.judge.tried(record.target, record.attempt, policy, self.now)
            return
        nodes = self._spoken_of(record.target)
        said = [d.on_control(record, nodes, self.now) for d in self.detectors]
        self._hear_all(said, findings, incidents)

    def _spoken_of(self, target: str) -> list[str]:
        """The nodes that a human's word is about: of an open incident, or the one that it names."""
        for incident in self.correlator.incidents():
            if incident.id == target:
                return sorted({suspect.node for suspect in incident.suspects if suspect.node})
        return [target] if target else []

    def _refusal(self, record: Record) -> str:
        """Why the record cannot be taken here, "" where it can."""
        if self._kind == "live" and record.replayed is not None:
            return "a replayed record in a live shard"
        if self._kind == "history" and record.replayed is None:
            return "a live record in a history shard"
        if not self.ready and not isinstance(record, Settings | Begin):
            return "no Settings record came before it"
        return ""

    def _is_another_piece(self, record: Begin) -> bool:
        """False for the same `Begin` once more, be it sent twice or an import begun anew.

        Every piece may count its records from 0, so the number alone does not tell.
        """
        if self.ended or self.piece != (record.at, record.name, record.replayed):
            return True
        stream = self.speakers.streams.get((record.node, record.source, record.started_at))
        return stream is None or not stream.has(record.seq)

    def _was_read_before(self, event: Event) -> bool:
        """An agent that starts anew reads the kernel's ring once more, in a new stream."""
        if event.kmsg_seq is None or not event.boot_id:
            return False
        ring = self.speakers.stream((event.node, f"kmsg {event.boot_id}", -1.0))
        return not ring.take(event.kmsg_seq)

    def _event_time(self, record: Header, stream: Stream, arrival: float) -> float:
        """Event time on the log's clock: the node's time plus the error of its clock."""
        at = record.at
        if record.sent_at is not None and record.node:
            clock = stream.clock or self.speakers.clock_of(record.node, stream)
            if not record.spooled:
                clock.observe(arrival, record.sent_at, record.boot_id)
            if clock.correction_s != 0.0:
                self.counters.skewed += 1
                at += clock.correction_s
        # A time that lies ahead of the log is no time at which anything was measured.
        if at <= self.now + AHEAD_S and type(record) not in _EDGES:
            counters = self.counters
            if self.last_at is None or at > self.last_at:
                self.last_at = at
                counters.span(at)
            elif counters.first_at is None or at < counters.first_at:
                counters.span(at)
        return at

    def _heard(self, record: Header, arrival: float) -> None:
        self.counters.used += 1
        if record.node and record.source != SWITCH:
            self.inventory.hear(record.node, arrival)

    def _frame(
        self,
        frame: Frame,
        at: float,
        arrival: float,
        findings: list[Finding],
        incidents: list[Incident],
    ) -> None:
        try:
            source = self.sources.get(frame.source) or self._new_source(frame.source)
            nodes = len(source.names)
            in_time, late = source.take(frame, at, self.now)
        except BadFrame as error:
            self.counters.reject(str(error))
            return
        if source.stirred:
            source.stirred = False
            self.look_at_due()
        if frame.spooled:
            self.spool.take(frame.node, frame.source)
        if len(source.names) > nodes:  # the node joined
            self.be_patient(frame.node, source.interval_s)
        self.inventory.hear(frame.node, arrival)
        if in_time:
            self.counters.used += 1
        else:
            self.counters.late += 1
            self._count_junk(source)
            if late is not None:
                self._see(late, findings, incidents)
        if self.due_s <= self.now:
            self._close_due(findings, incidents)

    def _steps(
        self,
        steps: Steps,
        at: float,
        arrival: float,
        findings: list[Finding],
        incidents: list[Incident],
    ) -> None:
        self._heard(steps, arrival)
        if at != steps.at:  # its node's clock is wrong
            steps = msgspec.structs.replace(steps, at=at)
        now, view = self.now, self.inventory
        self.progress.take(steps, at, now)
        said = [seen for d in self._readers_of_steps if (seen := d.on_steps(steps, view, now))]
        if said:
            self._hear_all(said, findings, incidents)

    def _new_source(self, name: str) -> SourceTicks:
        """A source that nobody heard before."""
        if len(self.sources) >= SOURCES_MAX:
            raise BadFrame(f"more than {SOURCES_MAX} sources")
        rules = self.settings.ticks
        interval_s = rules.interval_s.get(name, rules.interval_default_s)
        source = SourceTicks(name, interval_s, self.settings, self.inventory.in_service)
        self.sources[name] = source
        return source

    def be_patient(self, node: str, interval_s: float) -> None:
        """A node is quiet when its most frequent source missed several ticks."""
        quiet_s = self.settings.silence.patience_ticks * interval_s
        known = self.inventory.patience.get(node, math.inf)
        self.inventory.patience[node] = min(known, quiet_s)

    # -- time

    def _move_time(
        self, arrival: float, over: bool, findings: list[Finding], incidents: list[Incident]
    ) -> None:
        """`now` moves to `arrival`; where the history is `over`, its silence proves nothing."""
        gap_s = arrival - self.now
        self.now = arrival
        if gap_s > self._gap_s and self.beats and math.isfinite(gap_s):
            self.spool.gap(self.now, self.sources.values(), self.settings.ticks.keep_s)
            self.look_at_due()
        if self.due_s <= arrival:
            self._close_due(findings, incidents)
        if arrival >= self.next_beat:
            beat_s = self.settings.ticks.beat_s
            self.next_beat = (math.floor(self.now / beat_s) + 1) * beat_s
            self._beat(over, findings, incidents)

    def _beat(self, over: bool, findings: list[Finding], incidents: list[Incident]) -> None:
        if not self.ready:
            return
        self.spool.beat(self.now, self.sources.values())
        self.look_at_due()
        if not over:
            said = [d.advance(self.now, self.inventory) for d in self.detectors]
            self._hear_all(said, findings, incidents)
        if sweep_due(self.now, self.swept):
            forget_gone(self)
        closed = self.correlator.advance(self.now, self.inventory)
        incidents += self.judge.take(closed, self.settings.policy, self.now)
        forget_s = self.settings.correlation.reopen_s
        incidents += self.judge.advance(self.settings.policy, self.now, forget_s)

    def look_at_due(self) -> None:
        """Which source has to close a tick first, and when; names decide a tie."""
        self.due_s, self.due_source = min(
            ((source.due_s(), name) for name, source in self.sources.items()),
            default=(math.inf, ""),
        )

    def _close_due(self, findings: list[Finding], incidents: list[Incident]) -> None:
        """Close every tick whose time has come, in the order of their times."""
        while self.due_s <= self.now and self.due_source:
            source = self.sources[self.due_source]
            tick = source.close(self.groups.of)
            self._count_junk(source)
            self.look_at_due()
            self._see(tick, findings, incidents)

    def _count_junk(self, source: SourceTicks) -> None:
        self.counters.junk += source.junk
        source.junk = 0

    # -- what detectors say

    def _see(self, tick: Tick, findings: list[Finding], incidents: list[Incident]) -> None:
        if self._on_tick is not None:
            self._on_tick(tick)
        said = [d.on_tick(tick, self.inventory, self.now) for d in self._readers_of_ticks]
        self._hear_all(said, findings, incidents)

    def _hear_all(
        self,
        sightings: Sequence[Sequence[Sighting]],
        findings: list[Finding],
        incidents: list[Incident],
    ) -> None:
        if not any(sightings):
            return
        fresh = [
            finding
            for said in sightings
            for seen in said
            if (finding := self.book.say(seen, self.now)) is not None
        ]
        if not fresh:
            return
        for finding in fresh:
            if finding.state == "open":
                count = self.counters.findings
                count[finding.detector] = count.get(finding.detector, 0) + 1
        self.correlate(fresh, findings, incidents)

    def correlate(
        self, fresh: list[Finding], findings: list[Finding], incidents: list[Incident]
    ) -> None:
        """Say these findings, and what they make of incidents."""
        if not fresh:
            return
        findings += fresh
        changed = self.correlator.take(fresh, self.inventory, self.now)
        incidents += self.judge.take(changed, self.settings.policy, self.now)

    def covered(self) -> Coverage:
        """Coverage now; of a piece of history, at its `End`."""
        return coverage(self.inventory, self.settings.silence.patience_s, self.now)

    def _context(self, incident: Incident, ledger: list[Isolation]) -> Context:
        return context_of(self, incident, ledger)


def _moved(event: Event, at: float) -> Event:
    """The event by the log's clock; how old it was when its agent read it stays the same."""
    sent_at = None if event.sent_at is None else event.sent_at + at - event.at
    return msgspec.structs.replace(event, at=at, sent_at=sent_at)


def _reads(detector: Detector, method: str) -> bool:
    """Whether the family does anything with this kind of record."""
    return getattr(type(detector), method) is not getattr(Quiet, method)
