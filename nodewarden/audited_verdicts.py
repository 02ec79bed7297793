"""The ladder's part of an audit: verdicts, and what they are of, as `replay` gives them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from actions.audit import IncidentAt
from actions.policy import verdict
from actions.service import Place
from nodewarden.logs import open_logs
from streams.fold import Fold, Said
from streams.replay import Outcome, drive
from telemetry.actions import Decision
from telemetry.archive import archive_files
from telemetry.findings import Incident, Verdict
from telemetry.records import Arrived
from telemetry.settings import Configuration
from telemetry.topics import TELEMETRY

SHOWN_MAX = 1_000
EVERY = 2_000  # records between two looks at the progress bar


class Claim(msgspec.Struct, frozen=True):
    """One decision's word on what the ladder said; many of them are in memory.

    offset   in the log of actions
    verdict  a digest
    source   where the revision of the incident stands that it answers
    """

    offset: int
    decision: str
    incident: str
    at: float
    verdict: bytes
    source: Place | None


def claim_of(decision: Decision, offset: int) -> Claim:
    """What it claims."""
    verdict = decision.verdict
    return Claim(
        offset, decision.id, decision.incident, verdict.at, _digest(verdict), decision.source
    )


class Unlike(msgspec.Struct, frozen=True):
    """One decision whose verdict replay does not give, or of which it cannot tell."""

    offset: int
    decision: str
    incident: str
    reason: str


class Ladder(msgspec.Struct):
    """What came of it; `differing` and `unchecked` are the first ones."""

    verdicts: dict[str, int] = msgspec.field(
        default_factory=lambda: {"equal": 0, "differs": 0, "unchecked": 0}
    )
    differing: list[Unlike] = []
    unchecked: list[Unlike] = []


def audit_ladder(
    path: Path, configuration: Configuration, claims: Sequence[Claim], incident_at: IncidentAt,
    tick: Callable[[float], None],
) -> Ladder | None:  # fmt: skip
    """Replay the archive's telemetry, actions off, and compare; None where it has none.

    incident_at  the archived revision of an incident; None where the archive lacks it
    tick         is told the log's time
    """
    if not archive_files(path, TELEMETRY):
        return None
    given: dict[str, set[bytes]] = {claim.incident: set() for claim in claims}
    now_s, cold = _replayed(path, configuration, given, tick)
    ladder = Ladder()
    for claim in claims:
        archived = None if claim.source is None else incident_at(claim.source)
        result, reason = _compared(claim, archived, given[claim.incident], now_s, cold)
        ladder.verdicts[result] += 1
        kept = {"differs": ladder.differing, "unchecked": ladder.unchecked}.get(result)
        if kept is not None and len(kept) < SHOWN_MAX:
            kept.append(Unlike(claim.offset, claim.decision, claim.incident, reason))
    return ladder


def _replayed(
    path: Path, configuration: Configuration, given: dict[str, set[bytes]],
    tick: Callable[[float], None],
) -> tuple[float, bool]:  # fmt: skip
    """Fill in verdicts and revisions that replay gives; where it ended, and if it began cold."""

    def watch(_arrived: Arrived, said: Said, fold: Fold) -> None:
        if fold.counters.records % EVERY == 0:
            tick(fold.now)
        for incident in said.incidents:
            known = given.get(incident.id)
            if known is not None:
                known.update(_digest(one) for one in (incident.verdict, *incident.verdicts))
                known.add(_digest(incident))

    now_s, cold = 0.0, False
    for log in open_logs(path, configuration, None):
        fold = Fold(verdict, log.kind)
        drive(log.records, fold, Outcome(), (watch,))
        now_s, cold = max(now_s, fold.now), cold or log.cold
    return now_s, cold


def _compared(
    claim: Claim, archived: Incident | None, given: set[bytes], now_s: float, cold: bool
) -> tuple[str, str]:
    is_given = claim.verdict in given
    if is_given and (archived is None or _digest(archived) in given):
        return "equal", ""
    if claim.at > now_s:
        return "unchecked", "the archived telemetry ends before it"
    if cold:
        return "unchecked", "the archived telemetry does not begin at its beginning"
    if not given:
        return "differs", f"replay tells of no incident {claim.incident}"
    if is_given:
        return "differs", "replay tells this revision of the incident otherwise"
    return "differs", "replay gives this incident no such verdict"


def _digest(one: Verdict | Incident) -> bytes:
    return hashlib.blake2b(msgspec.json.encode(one), digest_size=16).digest()
