"""One incident in the making: its faults, what is shown beside them, the last revision said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from telemetry.findings import Cause, Evidence, Finding, Incident, Kind, Suspect, Verdict
from telemetry.records import Severity
from telemetry.settings import CorrelationSettings

# Faults that a job has as a whole; all others belong to a node.
JOB_KINDS: frozenset[Kind] = frozenset(
    {"job_slow", "job_hang", "loss_anomaly", "user_error", "fleet_shift"}
)
PEER = "peer:"  # begins the entity of a finding in which one node tells of another
UNDECIDED = Verdict(action="none", reason="", targets=[], when="now", at=0.0)


class Placed(msgspec.Struct, frozen=True):
    """A finding in its newest revision, with the job and leaf of its node at its onset.

    device, machine   what its part and its node keep through boots and renames, "" where unknown
    """

    finding: Finding
    job: str
    leaf: str
    device: str = ""
    machine: str = ""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What an incident says at one moment; `holding` are the findings that name its suspects."""

    kind: Kind
    cause: Cause
    severity: Severity
    confidence: float
    suspects: list[Suspect]
    certain: bool = False
    holding: list[str] = []


class Story(msgspec.Struct, kw_only=True):
    """One incident's state.

    root_kind     kind at opening, part of the id
    faults        finding id -> newest revision, cleared ones included
    quiet_since_s the log's `now` at which the last open finding cleared, None while one is open
    shown         finding id -> what the evidence list shows
    holding       evidence that names the suspects: it keeps the incident open while it lasts
    reopened      it was closed and must say that it no longer is
    incident      the newest revision said
    """

    root_kind: Kind
    faults: dict[str, Placed] = {}
    shown: dict[str, Finding] = {}
    holding: list[str] = []
    quiet_since_s: float | None = None
    reopened: bool = False
    incident: Incident

    @property
    def id(self) -> str:
        """The incident's id."""
        return self.incident.id

    @property
    def is_open(self) -> bool:
        """Whether it was not closed yet."""
        return self.incident.closed_at is None

    @property
    def merged(self) -> bool:
        """Whether another story tells this one from now on."""
        return bool(self.incident.merged_into)

    @property
    def leaves(self) -> set[str]:
        """The leaves of the nodes that it shows."""
        return {fault.leaf for fault in self.faults.values() if fault.leaf}

    @property
    def jobs(self) -> set[str]:
        """The jobs that its faults hit."""
        return {fault.job for fault in self.faults.values() if fault.job}

    def of_kind(self, kind: Kind) -> list[Placed]:
        """Its faults of one kind, by onset."""
        return ordered(f for f in self.faults.values() if f.finding.kind == kind)

    def machine_faults(self) -> list[Placed]:
        """Its faults that are a node's, silence left out unless it is certain, by onset."""
        return ordered(f for f in self.faults.values() if is_machine_fault(f.finding))


def is_hearsay(finding: Finding) -> bool:
    """Whether one node tells of another: a fault of whichever of them it may be."""
    return finding.entity.startswith(PEER)


def told_of(finding: Finding) -> str:
    """The other node that a finding tells of, "" for what a node tells of itself."""
    other = finding.entity.removeprefix(PEER) if is_hearsay(finding) else ""
    return "" if other == finding.node else other


def began_together(slow: Finding, other: Finding, rules: CorrelationSettings) -> bool:
    """Whether a slowdown and what would explain it began at one time, as exactly as that is known.

    What came later is no cause, nor is what the job ran well with. What happened several times is
    compared from its first to its last time.
    """
    last_s = other.at if other.events > 1 and other.state != "clear" else other.onset
    apart_s = max(other.onset - slow.onset, slow.onset - max(last_s, other.onset), 0.0)
    if other.onset_resolution_s <= 0.0:
        return apart_s <= rules.evidence_join_s
    exact_s = rules.onset_slack_s + other.onset_resolution_s
    return apart_s <= slow.onset_resolution_s + min(rules.evidence_join_s, exact_s)


def is_machine_fault(finding: Finding) -> bool:
    """Whether the fault accuses a node's hardware or link; silence and software do not."""
    accusing = finding.cause in ("hardware", "network") and finding.kind != "node_silent"
    return accusing and bool(finding.node) and finding.kind not in JOB_KINDS


def ordered(faults: Iterable[Placed]) -> list[Placed]:
    """By onset, and by name where that is equal."""
    return sorted(faults, key=lambda f: (f.finding.onset, *subject_of(f.finding)))


def subject_of(finding: Finding) -> tuple[str, str, str, str]:
    """What orders findings of one onset."""
    return finding.detector, finding.node, finding.metric, finding.entity


def evidence_of(findings: Iterable[Finding]) -> list[Evidence]:
    """Findings as the incident shows them, by (onset, detector, node, metric)."""
    return [
        Evidence(
            detector=f.detector, metric=f.metric, observed=f.observed, expected=f.expected,
            unit=f.unit, onset=f.onset, text=f.text, node=f.node, entity=f.entity,
        )
        for f in sorted(findings, key=lambda f: (f.onset, *subject_of(f)))
    ]  # fmt: skip


def chosen(ranked: Sequence[tuple[int, Finding]], evidence_max: int) -> dict[str, Finding]:
    """The `evidence_max` most telling findings; rank 0 first, then the earliest."""
    best = sorted(ranked, key=lambda pair: (pair[0], pair[1].onset, *subject_of(pair[1])))
    return {finding.id: finding for _, finding in best[:evidence_max]}
