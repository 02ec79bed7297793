"""The incident report: one HTML file that needs no network and runs no script.

Data reaches the page only through the template's autoescaping, after `visible` has made its hidden
characters plain. Everything is bounded; what is left out is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Generic, TypeVar

from jinja2 import Template
from markupsafe import Markup, escape

from console import story as words
from console import text
from console.model import IncidentView, KernelLine, Report, TimelineEntry
from console.pages import pages
from console.plots import Plot, metric_plot, shared_time, step_plot
from console.summary import facts, score_tables
from telemetry.findings import ISOLATING, Evidence, Finding, Incident, Verdict

CARDS_MAX = 20  # incidents shown whole, with plots
ROWS_MAX = 1_000  # further incidents, one row each
EVIDENCE_MAX = 60
KERNEL_MAX = 100
TIMELINE_MAX = 60
VERDICTS_MAX = 30
FINDINGS_MAX = 200
NOTES_MAX = 50

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Shown(Generic[Item]):
    """The first of a list, and how many more there are."""

    items: Sequence[Item]
    left_out: int


@dataclass(frozen=True, slots=True)
class Card:
    """One incident as the page shows it whole."""

    place: int
    incident: Incident
    plots: tuple[Plot, ...]
    evidence: Shown[Evidence]
    kernel: Shown[KernelLine]
    timeline: Shown[TimelineEntry]
    later: Shown[Verdict]


def render(report: Report) -> str:
    """The report as one HTML document; the same report gives the same bytes."""
    watched = facts(report.summary)
    order = words.ordered([view.incident for view in report.incidents])
    views = [report.incidents[place] for place in order]
    cards = [_card(place, view) for place, view in enumerate(views[:CARDS_MAX], 1)]
    return _template().render(
        report=report,
        cards=cards,
        incidents=[view.incident for view in views],
        acting=sum(1 for view in views if view.incident.verdict.action in ISOLATING),
        rest=_first([view.incident for view in views[CARDS_MAX:]], ROWS_MAX),
        findings=_first(_by_onset(report.findings), FINDINGS_MAX),
        notes=_first(report.notes, NOTES_MAX),
        facts=watched,
        cautions=[fact for fact in watched if fact.warns],
        score=[] if report.score is None else score_tables(report.score),
    )


def _card(place: int, view: IncidentView) -> Card:
    incident = view.incident
    lines = sorted(view.kernel_lines, key=lambda line: (line.at is not None, line.at or 0.0))
    entries = view.timeline or words.timeline(incident)
    return Card(
        place=place,
        incident=incident,
        plots=_plots(view),
        evidence=_first(incident.evidence, EVIDENCE_MAX),
        kernel=_first(lines, KERNEL_MAX),
        timeline=_first(entries, TIMELINE_MAX),
        later=_first(words.later_verdicts(incident), VERDICTS_MAX),
    )


def _plots(view: IncidentView) -> tuple[Plot, ...]:
    """Step time first, the suspect's metric below it, on one time axis."""
    axis = shared_time(view.metric, view.step_time)
    if axis is None:
        return ()
    day = text.utc(axis.low, "%Y-%m-%d")
    verdict_at = None if view.metric is None else view.metric.verdict_at
    plots = []
    if view.step_time is not None:
        plots.append(step_plot(view.step_time, axis, day, verdict_at))
    if view.metric is not None:
        plots.append(metric_plot(view.metric, axis, day))
    return tuple(plot for plot in plots if plot is not None)


def _first(items: Sequence[Item], most: int) -> Shown[Item]:
    return Shown(items[:most], max(0, len(items) - most))


def _by_onset(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: (finding.onset, finding.id))


def _breakable(shown: str) -> Markup:
    """Lets a long snake_case name wrap after its underscores."""
    return escape(shown).replace("_", Markup("_<wbr>"))


@cache
def _template() -> Template:
    environment = pages()
    environment.filters.update(
        clock=text.clock, number=text.number, percent=words.percent, story=words.story,
        who=words.who, since=words.since, several=text.several, breakable=_breakable,
    )  # fmt: skip
    environment.globals.update(
        act=words.act, cause_words=words.CAUSE_WORDS, kind_words=words.KIND_WORDS
    )
    return environment.get_template("report.html.j2")
