"""Drives a fold over a finite log: archives, captures and the embedded pipeline.

There is no way out of here: no executor, no notifier, no socket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from streams.counters import Counters, Coverage
from streams.fold import Fold, Said
from telemetry.findings import Finding, Incident
from telemetry.records import Arrived

FINDINGS_MAX = 50_000
Watch = Callable[[Arrived, Said, Fold], None]


class Summary(msgspec.Struct, frozen=True):
    """The `summary` object of `replay --json`.

    truncated   torn pieces of the input; the whole parts before them were read
    cold_start  the log did not begin with `Begin` or its first offset
    ettr        productive time over wall-clock, null without steps
    event_s     from the first to the last event
    findings    opened findings by detector; most stay evidence and open no incident
    """

    records: int
    rejected: int
    late: int
    duplicate: int
    lost: int
    truncated: int
    cold_start: bool
    nodes: int
    coverage: Coverage
    ettr: float | None
    event_s: float
    findings: dict[str, int]


@dataclass
class Outcome:
    """Everything that folds said, readers' view: the highest revision of each id."""

    incidents: dict[str, Incident] = field(default_factory=dict)
    findings: dict[str, Finding] = field(default_factory=dict)
    findings_dropped: int = 0

    def take(self, said: Said) -> None:
        """Keep what is new."""
        for incident in said.incidents:
            known = self.incidents.get(incident.id)
            if known is None or incident.rev >= known.rev:
                self.incidents[incident.id] = incident
        for finding in said.findings:
            if finding.id not in self.findings and len(self.findings) >= FINDINGS_MAX:
                self.findings_dropped += 1
                continue
            self.findings[finding.id] = finding

    def sorted_incidents(self) -> list[Incident]:
        """By (opened_at, id), as `replay --json` prints them; merged ones are in their elder."""
        told = [i for i in self.incidents.values() if not i.merged_into]
        return sorted(told, key=lambda incident: (incident.opened_at, incident.id))


def drive(
    records: Iterable[Arrived], fold: Fold, outcome: Outcome, watches: Iterable[Watch] = ()
) -> None:
    """Fold the log to its end. No driver does at the end of its input what no record did."""
    watching = tuple(watches)
    for arrived in records:
        said = fold.step(arrived)
        if said.findings or said.incidents:
            outcome.take(said)
        for watch in watching:
            watch(arrived, said, fold)


def summarize(folds: Iterable[Fold], truncated: int, cold_start: bool) -> Summary:
    """One summary over the folds of all shards that were read."""
    folds = list(folds)
    total = Counters(findings={}, reasons={})
    coverages: list[Coverage] = []
    ettrs: list[float] = []
    event_s = 0.0
    for fold in folds:
        part = fold.counters
        assert part.conserved(), "records = used + late + duplicate + rejected + control"
        total.records += part.records
        total.rejected += part.rejected
        total.late += part.late
        total.duplicate += part.duplicate
        total.lost += part.lost
        for name, count in part.findings.items():
            total.findings[name] = total.findings.get(name, 0) + count
        coverages.append(fold.coverage or fold.covered())
        if part.first_at is not None and part.last_at is not None:
            event_s = max(event_s, part.last_at - part.first_at)
        ettr = fold.progress.ettr(fold.last_at)
        if ettr is not None:
            ettrs.append(round(ettr, 6))
    nodes = {node for fold in folds for node in fold.inventory.expected()}
    blind = sorted({node for coverage in coverages for node in coverage.blind})
    coverage = Coverage(len(nodes), len(nodes) - len(blind), blind)
    return Summary(
        records=total.records, rejected=total.rejected, late=total.late,
        duplicate=total.duplicate, lost=total.lost, truncated=truncated, cold_start=cold_start,
        nodes=coverage.expected, coverage=coverage, ettr=min(ettrs) if ettrs else None,
        event_s=round(event_s, 3), findings=dict(sorted(total.findings.items())),
    )  # fmt: skip
