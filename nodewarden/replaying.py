"""A replay from logs to what people and tools read: incidents, summary, JSON, report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from actions.policy import verdict
from nodewarden.logs import Log, between
from streams.exhibits import Exhibits
from streams.fold import Fold, Said
from streams.replay import Outcome, Summary, drive, summarize
from streams.snapshot import load
from telemetry.errors import InputError
from telemetry.findings import Evidence, Incident, Verdict
from telemetry.records import Arrived, Rejected

REJECTED_SHOWN = 20
EVERY = 2_000  # records between two looks at the progress bar


@dataclass
class Replayed:
    """All that a replay found out."""

    outcome: Outcome
    summary: Summary
    exhibits: Exhibits
    folds: list[Fold]
    notes: list[str]
    rejected: list[Rejected] = field(default_factory=list)

    @property
    def incidents(self) -> list[Incident]:
        """As they are printed."""
        return self.outcome.sorted_incidents()

    @property
    def end_s(self) -> float:
        """Event time of the newest record, 0 where there is none."""
        return max((f.counters.last_at or 0.0 for f in self.folds), default=0.0)

    @property
    def period(self) -> tuple[float, float] | None:
        """First and last event time."""
        firsts = [f.counters.first_at for f in self.folds if f.counters.first_at is not None]
        return (min(firsts), self.end_s) if firsts else None


def replay(
    logs: Sequence[Log],
    from_s: float | None = None,
    to_s: float | None = None,
    tick: Callable[[float], None] | None = None,
) -> Replayed:
    """Fold every log, each shard in a fold of its own; `tick` is told the log's time."""
    outcome, exhibits = Outcome(), Exhibits()
    rejected: list[Rejected] = []

    def keep(arrived: Arrived, _said: Said, fold: Fold) -> None:
        if isinstance(arrived.record, Rejected) and len(rejected) < REJECTED_SHOWN:
            rejected.append(arrived.record)
        if tick is not None and fold.counters.records % EVERY == 0:
            tick(fold.now)

    folds: list[Fold] = []
    for log in logs:
        fold, start_s = _begun(log, from_s, outcome)
        drive(between(log, start_s, to_s), fold, outcome, (exhibits.watch, keep))
        folds.append(fold)
        if fold.counters.records == 0:
            raise nothing_read(log)
    torn = sum(len(log.torn) for log in logs)
    summary = summarize(folds, torn, any(log.cold for log in logs))
    return Replayed(outcome, summary, exhibits, folds, notes_of(logs, outcome), rejected)


def nothing_read(log: Log) -> InputError:
    """A log without a record, to be raised."""
    why = f" ({log.torn[0]})" if log.torn else ""
    return InputError(f"{log.name}: holds no record that can be read{why}; check the files")


def notes_of(logs: Sequence[Log], outcome: Outcome) -> list[str]:
    """What people have to know of the logs that were read to their end."""
    notes = [note for log in logs for note in log.notes]
    notes += [
        f"{log.name}: {log.repeats[0]} records stood at a place already read and were left out"
        for log in logs
        if log.repeats[0]
    ]
    notes += [f"read to its last whole part: {text}" for log in logs for text in log.torn]
    if any(log.cold for log in logs):
        notes.append("cold start: what happened before the first record is not known")
    if outcome.findings_dropped:
        notes.append(f"{outcome.findings_dropped} findings beyond the limit are not listed")
    return notes


def _begun(log: Log, from_s: float | None, outcome: Outcome) -> tuple[Fold, float | None]:
    """The fold to go on with: from the newest snapshot before `from_s`, else a cold one."""

    def fresh() -> Fold:
        return Fold(verdict, log.kind)

    found = None if from_s is None else load(log.shard, log.stored(from_s), fresh)
    if found is None:
        return fresh(), from_s
    fold, records = found[0], log.records
    log.records = (arrived for arrived in records if arrived.offset > fold.offset)
    outcome.incidents.update(fold.judge.docket.incidents)
    return fold, None


def json_object(replayed: Replayed, score: Any | None = None) -> dict[str, Any]:
    """The object of `replay --json`; nothing in it depends on the machine or the hour."""
    found: dict[str, Any] = {
        "incidents": [incident_object(incident) for incident in replayed.incidents],
        "summary": msgspec.to_builtins(replayed.summary),
    }
    if score is not None:
        found["score"] = msgspec.to_builtins(score)
    return found


def incident_object(incident: Incident) -> dict[str, Any]:
    """One incident with the keys that tools rely on."""
    return {
        "id": incident.id,
        "opened_at": incident.opened_at,
        "closed_at": incident.closed_at,
        "job": incident.job,
        "cause": incident.cause,
        "kind": incident.kind,
        "severity": incident.severity,
        "confidence": incident.confidence,
        "suspects": [msgspec.to_builtins(suspect) for suspect in incident.suspects],
        "evidence": [_evidence_object(evidence) for evidence in incident.evidence],
        "verdict": _verdict_object(incident.verdict),
        "verdicts": [_verdict_object(verdict) for verdict in incident.verdicts],
    }


def _evidence_object(evidence: Evidence) -> dict[str, Any]:
    names = ("detector", "metric", "observed", "expected", "unit", "onset", "text")
    return {name: getattr(evidence, name) for name in names}


def _verdict_object(verdict: Verdict) -> dict[str, Any]:
    names = ("action", "reason", "targets", "when", "at")
    return {name: getattr(verdict, name) for name in names}
