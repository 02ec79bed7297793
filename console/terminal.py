"""The report on a terminal: the same words as the HTML file, shorter.

Data is put into `Text` objects after `visible`, so neither rich markup nor control sequences in a
name do anything. On a pipe there are no boxes, no colours and no wrapping.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from console import story as words
from console.model import IncidentView, Report
from console.summary import Fact, facts, score_tables
from console.text import MISSING, clock, duration, name, number, utc, visible
from telemetry.findings import ACTING, ISOLATING, Evidence, Incident, Verdict

CARDS_MAX = 20
LINES_MAX = 200
EVIDENCE_MAX = 6
KERNEL_MAX = 3
NOTES_MAX = 20
TABLE_WIDTH = 140  # a narrower terminal tears the six columns into syllables
HEADS = ("since", "detector", "where", "metric", "observed / expected", "in words")

_SEVERITY_STYLE = {"critical": "bold red", "warning": "bold yellow", "info": "bold"}


def print_report(report: Report, console: Console) -> None:
    """Print the report: incidents (what acts first), what was watched, notes, score."""
    order = words.ordered([view.incident for view in report.incidents])
    views = [report.incidents[place] for place in order]
    width = console.width if console.is_terminal else None
    _say(console, Text(visible(report.title, 200), style="bold"))
    _say(console, Text(_origin(report)))
    _say(console, Text(_count(report, views), style="bold"))
    watched = facts(report.summary)
    if care := [f"{row.label} {row.value}" for row in watched if row.warns]:
        _say(console, Text("read with care: " + "; ".join(care)))
    for place, view in enumerate(views[:CARDS_MAX], 1):
        _say(console, _card(place, len(views), view, width))
    for view in views[CARDS_MAX : CARDS_MAX + LINES_MAX]:
        _say(console, _title(view.incident) + Text(" " + words.story(view.incident)))
    if (left_out := len(views) - CARDS_MAX - LINES_MAX) > 0:
        _say(console, Text(f"{left_out:,} more incidents not shown here"))
    _say(console, _watched(watched))
    for note in report.notes[:NOTES_MAX]:
        _say(console, Text(f"note: {visible(note, 600)}"))
    if report.score is not None:
        for table in score_tables(report.score):
            _say(console, Text(f"score: {table.title}".rstrip(": "), style="bold"))
            for row in table.rows:
                _say(console, Text("  " + _pairs(table.head, row)))


def _say(console: Console, what: RenderableType) -> None:
    console.print(what, soft_wrap=not console.is_terminal, highlight=False, markup=False)


def _origin(report: Report) -> str:
    read = f"cluster {name(report.cluster)}, from {visible(report.generated_from, 300)}"
    if report.period is None:
        return f"{read}, no dated input"
    start, end = report.period
    return f"{read}, {utc(start)} to {utc(end)} ({duration(end - start)})"


def _count(report: Report, views: Sequence[IncidentView]) -> str:
    aside = (
        f"; evidence that opened no incident: {len(report.findings):,}" if report.findings else ""
    )
    if not views:
        return (
            "No incident: nothing seen gave a reason to suspect a node, a job or the network"
            + aside
        )
    acting = sum(1 for view in views if view.incident.verdict.action in ISOLATING)
    return (
        f"{len(views):,} incident{'s' if len(views) != 1 else ''}; "
        f"{acting or 'none'} would have isolated a node{aside}"
    )


def _card(place: int, count: int, view: IncidentView, width: int | None) -> RenderableType:
    """One incident; on a pipe, where there is no width, without a box."""
    incident = view.incident
    title = Text.assemble(_title(incident), f" incident {place} of {count} · {incident.kind}")
    body: list[RenderableType] = [
        Text(words.story(incident)),
        _verdict(incident.verdict, incident.job),
        _evidence(incident.evidence, width),
    ]
    for line in view.kernel_lines[:KERNEL_MAX]:
        body.append(Text(f"kernel {name(line.node)}: {visible(line.text, 300)}", style="dim"))
    if (left_out := len(view.kernel_lines) - KERNEL_MAX) > 0:
        body.append(Text(f"{left_out:,} more kernel lines in the HTML report", style="dim"))
    if later := words.later_verdicts(incident):
        last = later[-1]
        more = f"{len(later)} other verdict{'s' if len(later) > 1 else ''}, last at"
        body.append(
            Text(f"{more} {clock(last.at)}: {words.verdict_line(last, incident.job)}", style="dim")
        )
    if width is None:
        return Group(Text(""), title, *body)
    style = "red" if incident.verdict.action in ACTING else "yellow"
    return Panel(Group(*body), title=title, title_align="left", border_style=style)


def _title(incident: Incident) -> Text:
    return Text(f"[{incident.severity}]", style=_SEVERITY_STYLE[incident.severity])


def _verdict(verdict: Verdict, job: str) -> Text:
    return Text.assemble(
        ("Verdict: ", "dim"),
        (words.act(verdict, job), "bold"),
        f" ({clock(verdict.at)}): {visible(verdict.reason)}",
    )


def _evidence(evidence: Sequence[Evidence], width: int | None) -> RenderableType:
    shown, left_out = evidence[:EVIDENCE_MAX], len(evidence) - EVIDENCE_MAX
    aside = Text(f"{left_out:,} more pieces of evidence in the HTML report", style="dim")
    tail: list[RenderableType] = [aside] if left_out > 0 else []
    if width is None:
        return Group(*(Text("  " + " | ".join(_row(item))) for item in shown), *tail)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    heads: tuple[str, ...] = HEADS
    rows = [_row(item) for item in shown]
    if width < TABLE_WIDTH:  # the words repeat the metric and its numbers
        heads = ("since", "in words")
        rows = [(row[0], f"{row[1]}, {row[2]}: {row[-1]}") for row in rows]
    for head in heads:
        table.add_column(head, overflow="fold", no_wrap=head == "since")
    for row in rows:
        table.add_row(*(Text(field) for field in row))
    return Group(table, *tail) if shown else Text("no evidence was recorded", style="dim")


def _row(item: Evidence) -> tuple[str, ...]:
    """As `HEADS` says."""
    where = " ".join(name(part) for part in (item.node, item.entity) if part) or "the job"
    numbers = f"{number(item.observed)} / {number(item.expected)} {visible(item.unit, 40)}".rstrip()
    if item.observed is None and item.expected is None:
        numbers = MISSING
    return (
        clock(item.onset), name(item.detector), where, name(item.metric),
        numbers, visible(item.text, 300),
    )  # fmt: skip


def _watched(rows: Sequence[Fact]) -> Text:
    if not rows:
        return Text("What was watched is not known: no summary was given.")
    parts = [f"{'! ' if row.warns else ''}{row.label} {row.value}" for row in rows]
    return Text("watched: " + "; ".join(parts))


def _pairs(head: Sequence[str], row: Sequence[str]) -> str:
    if head == ("what", "value"):
        return " ".join(row)
    return "; ".join(f"{label} {value}" for label, value in zip(head, row, strict=True))
