"""From a replay to the report that `console` renders: which plots, which lines, which notes."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from console.model import IncidentView, KernelLine, MetricPlot, Report, StepPlot
from detectors.base import FloatArray
from nodewarden.replaying import Replayed
from streams.exhibits import MetricExhibit
from telemetry.findings import Finding, Incident
from telemetry.metrics import BY_NAME

BEFORE_S = 900.0
AFTER_S = 900.0
ECHO_S = 300.0
FINDINGS_SHOWN = 200


def report_of(replayed: Replayed, title: str, read: str, score: object | None = None) -> Report:
    """Everything that the replay tells, ready to be rendered."""
    told = {evidence for i in replayed.incidents for evidence in _finding_ids(replayed, i)}
    alone = [f for f in replayed.outcome.findings.values() if f.id not in told]
    clusters = sorted({fold.settings.cluster for fold in replayed.folds})
    return Report(
        title=title,
        cluster=", ".join(clusters),
        generated_from=read,
        period=replayed.period,
        incidents=[_view(replayed, incident) for incident in replayed.incidents],
        findings=sorted(alone, key=lambda f: (f.onset, f.id))[:FINDINGS_SHOWN],
        summary=msgspec.to_builtins(replayed.summary),
        notes=[*replayed.notes, *_rejected_notes(replayed)],
        score=None if score is None else msgspec.to_builtins(score),
    )


def _finding_ids(replayed: Replayed, incident: Incident) -> list[str]:
    known = replayed.outcome.findings
    return [finding for finding in incident.findings if finding in known]


def _rejected_notes(replayed: Replayed) -> list[str]:
    shown = [f"rejected: {r.place}: {r.reason}" for r in replayed.rejected]
    more = replayed.summary.rejected - len(shown)
    return [*shown, f"and {more} more rejected records"] if more > 0 and shown else shown


def _view(replayed: Replayed, incident: Incident) -> IncidentView:
    onset = min((e.onset for e in incident.evidence), default=incident.opened_at)
    exhibit = replayed.exhibits.metrics.get(incident.id)
    verdict_at = incident.verdict.at if incident.verdict.action != "none" else None
    return IncidentView(
        incident=incident,
        metric=None if exhibit is None else _metric_plot(exhibit, onset, verdict_at),
        step_time=_step_plot(replayed, incident, exhibit, onset),
        kernel_lines=_kernel_lines(replayed, incident, onset),
    )


def _metric_plot(
    exhibit: MetricExhibit, onset: float, verdict_at: float | None
) -> MetricPlot | None:
    metric = BY_NAME[exhibit.metric]
    if exhibit.node not in exhibit.nodes:
        return None
    place = exhibit.nodes.index(exhibit.node)
    peers = np.delete(exhibit.values, place, axis=1)
    low, median, high = _spread(peers)
    band = exhibit.sigmas * exhibit.sd
    return MetricPlot(
        metric=exhibit.metric, unit=metric.judged_unit, node=exhibit.node, entity=exhibit.entity,
        times=exhibit.at_s.tolist(), suspect=_values(exhibit.values[:, place]),
        peers_low=_values(low), peers_high=_values(high), peers_median=_values(median),
        band_mean=_values(exhibit.mean), band_upper=_values(exhibit.mean + band),
        band_lower=_values(exhibit.mean - band),
        direction="low" if metric.bad == "low" else "high", onset=onset, verdict_at=verdict_at,
        peers=peers.shape[1],
    )  # fmt: skip


def _spread(peers: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Lowest, median and highest peer of each tick, NaN where none has a value."""
    low, median, high = (np.full(len(peers), np.nan) for _ in range(3))
    for tick, row in enumerate(peers):
        known = row[~np.isnan(row)]
        if known.size:
            low[tick], median[tick], high[tick] = known.min(), np.median(known), known.max()
    return low, median, high


def _values(column: FloatArray) -> list[float | None]:
    return [None if math.isnan(value) else value for value in column.tolist()]


def _step_plot(
    replayed: Replayed, incident: Incident, exhibit: MetricExhibit | None, onset: float
) -> StepPlot | None:
    if not incident.job:
        return None
    from_s, to_s = onset - BEFORE_S, incident.verdict.at + AFTER_S
    if exhibit is not None and exhibit.at_s.size:
        from_s, to_s = float(exhibit.at_s[0]), max(to_s, float(exhibit.at_s[-1]))
    steps = replayed.exhibits.steps(incident.job, from_s, to_s)
    if not steps.at_s:
        return None
    slow = _slow_finding(replayed, incident)
    return StepPlot(
        times=steps.at_s, step_time_s=steps.step_time_s,
        reference_s=None if slow is None else slow.expected,
        slow_onset=None if slow is None else slow.onset,
    )  # fmt: skip


def _slow_finding(replayed: Replayed, incident: Incident) -> Finding | None:
    findings = (replayed.outcome.findings[f] for f in _finding_ids(replayed, incident))
    return next((f for f in findings if f.kind == "job_slow" and f.metric == "step_time_s"), None)


def _kernel_lines(replayed: Replayed, incident: Incident, onset: float) -> list[KernelLine]:
    nodes = sorted({s.node for s in incident.suspects} | {e.node for e in incident.evidence})
    to_s = max(incident.verdict.at, onset) + ECHO_S
    events = replayed.exhibits.kernel_lines(nodes, onset - ECHO_S, to_s)
    return [KernelLine(at=e.at, node=e.node or e.job, text=e.text) for e in events]
