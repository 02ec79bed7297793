"""A group of incidents for one receiver: what it should know, what it was told, what is due.

Nothing is queued as an event: of each group both states are kept, and the difference is what waits
to be told. So the queue is bounded by the groups, news that nobody heard yet replace one another,
and a repeated call, with its key, changes nothing.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from actions.notify.text import clean, cut
from telemetry.actions import Decision
from telemetry.findings import Incident
from telemetry.records import Severity

Due = Literal["trigger", "acknowledge", "resolve", "forget"]
Told = Literal["", "triggered", "resolved", "refused"]

RANK: dict[Severity, int] = {"critical": 0, "warning": 1, "info": 2}
FLAPPING_FIRES = 3
EVIDENCE_MAX, SUSPECTS_MAX, TARGETS_MAX, LINE_MAX = 8, 8, 64, 300
MEMBERS_MAX = 5_000


class Member(msgspec.Struct, kw_only=True):
    """An incident as far as it is told."""

    incident: str
    rev: int
    severity: Severity
    labels: dict[str, str]
    summary: str
    opened_at: float
    closed_at: float | None
    action: str
    reason: str
    targets: list[str]
    suspects: list[str]
    evidence: list[str]
    state: str = ""
    mode: str = ""


class Group(msgspec.Struct, kw_only=True):
    """One page, as long as it lasts.

    labels     of the group; with the storm page those of nobody
    since      when it began
    told_*     of the last call that was taken
    fires      how often it went from closed to open
    closed_at  since when nothing in it is open, on our clock
    address, routing_key   where it was triggered, for its resolve; "" where not yet
    old_labels alertmanager: label sets under which it stands there and is no more
    more       members that there was no room for
    held       it was open, due and inhibited
    owed       it was open, due and not inhibited: people have to hear of it
    """

    receiver: str
    key: str
    labels: dict[str, str]
    wait_s: float
    interval_s: float
    repeat_s: float
    keep_open_s: float
    since: float
    members: dict[str, Member] = {}
    storm: bool = False
    told: Told = ""
    told_at: float = 0.0
    told_digest: str = ""
    told_labels: dict[str, str] = {}
    old_labels: list[dict[str, str]] = []
    fires: int = 0
    closed_at: float | None = None
    acked_by: str = ""
    ack_told: bool = False
    address: str = ""
    routing_key: str = ""
    minimal: bool = False
    backed_up: bool = False
    more: int = 0
    held: bool = False
    owed: bool = False
    facts: tuple[Severity, str] | None = None  # `severity` and `digest`; None: to be worked out

    @property
    def severity(self) -> Severity:
        """The gravest of what is open; of everything, where nothing is."""
        return self._facts()[0]

    @property
    def digest(self) -> str:
        """Changes with what is worth saying again: severity, verdict, who joins, what became."""
        return self._facts()[1]

    @property
    def is_open(self) -> bool:
        """Whether any incident in it is."""
        return any(member.closed_at is None for member in self.members.values())

    @property
    def is_flapping(self) -> bool:
        """Whether it came back again and again while it was kept open."""
        return self.fires >= FLAPPING_FIRES

    def _facts(self) -> tuple[Severity, str]:
        if self.facts is None:
            severity = _severity(self)
            self.facts = severity, _digest(self, severity)
        return self.facts


def member_of(
    incident: Incident, decision: Decision | None, labels: dict[str, str], now_s: float
) -> Member:
    """What is told of it; texts are one line each."""
    verdict = decision.verdict if decision is not None else incident.verdict
    gone = incident.closed_at is not None or bool(incident.merged_into)
    return Member(
        incident=incident.id, rev=incident.rev, severity=incident.severity, labels=labels,
        summary=summary_of(incident), opened_at=incident.opened_at,
        closed_at=(incident.closed_at or now_s) if gone else None,
        action=verdict.action, reason=cut(clean(verdict.reason), SUMMARY_LONG),
        targets=verdict.targets[:TARGETS_MAX],
        suspects=[f"{s.node} {s.entity} {s.score:.2f}" for s in incident.suspects[:SUSPECTS_MAX]],
        evidence=[cut(clean(line.text), LINE_MAX) for line in incident.evidence[:EVIDENCE_MAX]],
        state=decision.state if decision is not None else "",
        mode=decision.mode if decision is not None else "",
    )  # fmt: skip


SUMMARY_LONG = 4_096


def summary_of(incident: Incident) -> str:
    """Kind, place, job, and the first evidence: what a person reads on a telephone."""
    place = incident.scope.partition(":")[2] or incident.scope
    nodes = sorted({s.node for s in incident.suspects if s.node} - {place})
    named = ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
    job = f", job {incident.job}" if incident.job and incident.job != place else ""
    first = incident.evidence[0].text if incident.evidence else incident.verdict.reason
    about = f"{place} ({named})" if named else place
    return cut(clean(f"{incident.kind} on {about}{job}: {first}"), SUMMARY_LONG)


def due(group: Group, now_s: float, inhibited: bool) -> Due | None:
    """What the receiver has to be told now. `inhibited` holds only what was not told yet."""
    if group.told in ("", "refused"):
        return _untold(group, now_s, inhibited)
    if group.told == "resolved":
        return "forget"
    if not group.is_open:
        over = group.closed_at is not None and _past(now_s, group.closed_at, group.keep_open_s)
        return "resolve" if over else None
    if group.acked_by and not group.ack_told:
        return "acknowledge"
    news = _past(now_s, group.told_at, group.interval_s) and group.digest != group.told_digest
    again = group.repeat_s > 0.0 and _past(now_s, group.told_at, group.repeat_s)
    return "trigger" if news or (again and not group.acked_by) else None


def _untold(group: Group, now_s: float, inhibited: bool) -> Due | None:
    if not group.is_open:
        # A critical one that came and went while nobody could be told is told all the same.
        if group.severity != "critical" or group.told == "refused":
            return "forget"
        if group.owed:
            return "trigger"
        if not _past(now_s, group.since, group.wait_s):
            return None
        return "forget" if inhibited or group.held else "trigger"
    if inhibited or not _past(now_s, group.since, group.wait_s):
        return None
    return "trigger" if group.told == "" or group.digest != group.told_digest else None


def asks_inhibition(group: Group, now_s: float) -> bool:
    """Whether it matters now that something else keeps it from being told."""
    return group.told != "triggered" and not group.storm and _past(now_s, group.since, group.wait_s)


def mark(group: Group, now_s: float, inhibited: bool) -> bool:
    """Remember what became due while it was open; whether that is new."""
    if group.told != "" or not group.is_open or not _past(now_s, group.since, group.wait_s):
        return False
    new = not (group.held if inhibited else group.owed)
    group.held, group.owed = group.held or inhibited, group.owed or not inhibited
    return new


def _past(now_s: float, since_s: float, wait_s: float) -> bool:
    """Whether the wait is over; also where the wall clock was set back, so that nothing hangs."""
    return now_s >= since_s + wait_s or now_s < since_s


def _severity(group: Group) -> Severity:
    still = [m for m in group.members.values() if m.closed_at is None]
    found = still or group.members.values()
    return min((m.severity for m in found), key=RANK.__getitem__, default="info")


def _digest(group: Group, severity: Severity) -> str:
    said: list[str] = [severity, "flapping" if group.is_flapping else "", str(group.more)]
    for member in group.members.values():
        if member.closed_at is None:
            said += [member.incident, member.severity, member.action, member.state]
            said += member.targets
    return hashlib.sha256("\x1f".join(said).encode("utf-8", "replace")).hexdigest()[:16]


def put(group: Group, member: Member, now_s: float) -> None:
    """A newer revision of an incident in it."""
    was_open, group.facts = group.is_open, None
    if member.incident not in group.members and len(group.members) >= MEMBERS_MAX:
        group.more += 1
        return
    group.members[member.incident] = member
    if group.is_open:
        group.closed_at = None
        group.fires += 0 if was_open else 1
    elif group.closed_at is None:
        group.closed_at = now_s


def take_out(group: Group, incident: str, now_s: float) -> None:
    """It has another group now."""
    group.members.pop(incident, None)
    group.facts = None
    if not group.is_open and group.closed_at is None:
        group.closed_at = now_s
