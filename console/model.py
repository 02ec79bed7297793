"""What a report is made of: plain read models that a driver fills and the renderers only read.

All times are Unix seconds, shown as UTC. A value that is missing is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from telemetry.findings import Finding, Incident

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class MetricPlot:
    """The suspect's metric against its peers, one value a tick; all sequences are parallel.

    unit          unit of every value here ("packets/s")
    entity        the part of the node that is drawn, "" for the whole node
    suspect       the suspect's value
    peers_low, peers_high, peers_median   over the `peers` other members of the group
    band_mean, band_upper, band_lower     λ, λ+2δ and λ-2δ of the group, None where not computed
    direction     which side of the band is bad
    onset, verdict_at   where the vertical markers stand, None for no marker
    """

    metric: str
    unit: str
    node: str
    entity: str
    times: Sequence[float]
    suspect: Values
    peers_low: Values
    peers_high: Values
    peers_median: Values
    band_mean: Values
    band_upper: Values
    band_lower: Values
    direction: Literal["high", "low"] = "high"
    onset: float | None = None
    verdict_at: float | None = None
    peers: int = 0

    def __post_init__(self) -> None:
        columns = (
            self.suspect, self.peers_low, self.peers_high, self.peers_median,
            self.band_mean, self.band_upper, self.band_lower,
        )  # fmt: skip
        assert all(len(column) == len(self.times) for column in columns), self.metric


@dataclass(frozen=True, slots=True)
class StepPlot:
    """The job's step time; `times` are the ends of the steps.

    reference_s   what a step took before, None where not known
    slow_onset    when the job became slow, None where it did not
    """

    times: Sequence[float]
    step_time_s: Values
    reference_s: float | None = None
    slow_onset: float | None = None

    def __post_init__(self) -> None:
        assert len(self.times) == len(self.step_time_s)


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One kernel line as it was written; `at` None where it has no date."""

    at: float | None
    node: str
    text: str


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One thing that happened, in words."""

    at: float
    what: str


@dataclass(frozen=True, slots=True)
class IncidentView:
    """An incident and what a reader wants to see beside it.

    timeline   left empty, the incident's own times are shown
    """

    incident: Incident
    metric: MetricPlot | None = None
    step_time: StepPlot | None = None
    kernel_lines: Sequence[KernelLine] = ()
    timeline: Sequence[TimelineEntry] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that one replay or one look at a cluster tells.

    generated_from   what was read, in words ("capture /data/2026-03-01")
    period           first and last event time, None where nothing was read
    findings         evidence that opened no incident
    summary          the `summary` object of `replay --json`
    notes            what the reader must know to trust the rest, one sentence each
    score            the score object of `replay --score`, None without truth
    """

    title: str
    cluster: str
    generated_from: str
    period: tuple[float, float] | None
    incidents: Sequence[IncidentView] = ()
    findings: Sequence[Finding] = ()
    summary: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    score: Mapping[str, Any] | None = None
