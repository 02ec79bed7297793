"""An audit of an archive: are all decisions in it what the log before them makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from actions.audit import Auditor, Checked
from actions.ledger_log import decode
from nodewarden.audited_incidents import Incidents, incidents
from nodewarden.audited_verdicts import Claim, Ladder, audit_ladder, claim_of
from nodewarden.progress import Bar
from telemetry.actions import ActRules, Decision, Request
from telemetry.archive import Torn, archive_files, read_archive
from telemetry.archive_line import ArchiveLine
from telemetry.errors import InputError
from telemetry.settings import ActSettings, Configuration
from telemetry.topics import ACTIONS

SHOWN_MAX = 1_000  # decisions that are told one by one, of each kind
REFUSALS_MAX = 1_000  # kinds of refusals
OTHERS = ("", "", "refusals of more kinds than are counted one by one")


class Refusal(msgspec.Struct, frozen=True):
    """Requests that were refused alike."""

    verb: str
    by: str
    reason: str
    count: int


class Audited(msgspec.Struct):
    """What came of it.

    records, rejected  of the log of actions, and how many of them are none of ours
    differing, unchecked   the first of them
    snapshots  those that say otherwise than the log before them
    settings   how often the settings in force were said, and by which versions
    ladder     None where nobody asked, or the archive has no telemetry
    torn       parts of the archive that could not be read
    """

    decisions: dict[str, int] = msgspec.field(
        default_factory=lambda: {"equal": 0, "differs": 0, "unchecked": 0}
    )
    differing: list[Checked] = []
    unchecked: list[Checked] = []
    snapshots: list[str] = []
    ladder: Ladder | None = None
    requests_taken: int = 0
    requests_refused: int = 0
    refusals: list[Refusal] = []
    settings: int = 0
    versions: list[str] = []
    records: int = 0
    rejected: int = 0
    torn: list[str] = []

    @property
    def is_clean(self) -> bool:
        """Whether nothing differs."""
        unlike = self.ladder is not None and self.ladder.verdicts["differs"] > 0
        return not (self.decisions["differs"] or self.snapshots or unlike)


def audit(
    path: Path, configuration: Configuration, settings: ActSettings | None, *, ladder: bool,
    progress: Bar,
) -> Audited:  # fmt: skip
    """Make every decision of an archive again.

    settings  decide by these instead of those that stand in the log
    ladder    replay the telemetry too, and look for each decision's verdict
    raises    InputError where the archive has no actions
    """
    files = archive_files(path, ACTIONS, 0)
    if not files:
        raise InputError(f"{path}: no archive with {ACTIONS}; nodewarden archive writes one")
    audited = Audited()
    claims: list[Claim] = []
    with incidents() as places:
        progress.doing("reading actions")
        for line in _lines(path, audited):
            if isinstance(decision := decode(line.value), Decision):
                _wanted(decision, places)
                if ladder and decision.revision == 0 and decision.incident:
                    claims.append(claim_of(decision, line.offset))
        progress.doing("reading incidents")
        audited.torn += places.read(path)
        first = next((line.offset for line in _lines(path, Audited())), 0)
        auditor = Auditor(places.at, whole=first == 0, settings=settings)
        progress.doing("deciding again")
        _audited(path, auditor, audited)
        if ladder:
            audited.ladder = audit_ladder(path, configuration, claims, places.at, progress.folded)
    return audited


def _lines(path: Path, audited: Audited) -> Iterator[ArchiveLine]:
    for found in read_archive(path, ACTIONS, 0):
        if isinstance(found, Torn):
            audited.torn.append(f"{found.path}: {found.reason}")
        else:
            yield found


def _wanted(decision: Decision, places: Incidents) -> None:
    if decision.source is not None:
        places.want(decision.source)


def _audited(path: Path, auditor: Auditor, audited: Audited) -> None:
    refusals: Counter[tuple[str, str, str]] = Counter()
    for line in _lines(path, Audited()):
        audited.records += 1
        record = decode(line.value)
        audited.rejected += record is None
        if isinstance(record, ActRules):
            audited.settings += 1
            audited.versions = sorted({*audited.versions, record.version})
        if isinstance(record, Request):
            _request(record, audited, refusals)
        checked = auditor.take(line.offset, line.value)
        if checked is not None:
            _take(checked, audited)
    audited.snapshots = auditor.faults
    audited.refusals = [Refusal(*kind, count) for kind, count in refusals.most_common()]


def _request(request: Request, audited: Audited, refusals: Counter[tuple[str, str, str]]) -> None:
    audited.requests_taken += request.accepted
    audited.requests_refused += not request.accepted
    if request.accepted:
        return
    kind = (request.verb, request.by, request.reason)
    refusals[kind if kind in refusals or len(refusals) < REFUSALS_MAX else OTHERS] += 1


def _take(checked: Checked, audited: Audited) -> None:
    audited.decisions[checked.result] += 1
    kept = {"differs": audited.differing, "unchecked": audited.unchecked}.get(checked.result)
    if kept is not None and len(kept) < SHOWN_MAX:
        kept.append(checked)
