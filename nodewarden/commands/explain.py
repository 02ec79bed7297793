"""`nodewarden explain xid CODE` and `explain metric NAME`: the catalogues, readable."""

from __future__ import annotations

import difflib
import math

import click
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from telemetry.errors import InputError
from telemetry.metrics import BY_NAME, BY_SOURCE_NAME, CATALOGUE, Metric, recognise
from telemetry.xids import XidRow, catalogue, lookup

Facts = list[tuple[str, str]]


@click.group("explain")
def command() -> None:
    """Say what an Xid code or a metric means, and what follows from it."""


@command.command()
@click.argument("code")
def xid(code: str) -> None:
    """What the Xid CODE of a kernel log means and what is to be done."""
    row = lookup(int(code)) if code.isascii() and code.isdigit() and len(code) < 10 else None
    if row is None:
        raise InputError(_unknown_xid(code))
    _print(f"Xid {row.code} {row.mnemonic}".strip(), _xid_facts(row))


@command.command()
@click.argument("name")
def metric(name: str) -> None:
    """How the metric NAME is judged; an exporter's name does as well as ours."""
    row = BY_NAME.get(name) or recognise(name)
    if row is None:
        known = [*BY_NAME, *BY_SOURCE_NAME]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else f"{len(CATALOGUE)} metrics are known"
        raise InputError(f"metric {name}: not in the catalogue; {hint}")
    _print(row.name, _metric_facts(row))


def _unknown_xid(code: str) -> str:
    if not (code.isascii() and code.isdigit() and len(code) < 10):
        return f"Xid {code}: no code; give a number such as 79"
    nearest = min(catalogue(), key=lambda known: abs(known - int(code)))
    return f"Xid {code}: no source knows it; the nearest known code is {nearest}"


def _xid_facts(row: XidRow) -> Facts:
    facts = [
        ("meaning", row.meaning),
        ("class", row.class_.replace("_", ", ")),
        ("advice", row.advice),
        ("isolate on one event", "yes" if row.isolate_on_one else "no"),
        ("severity", row.severity),
        ("incident kind", row.kind),
        ("NVIDIA, at once", row.nvidia),
        ("NVIDIA, afterwards", row.nvidia_investigate),
        ("GPUd", row.gpud),
        ("Aegis", row.aegis),
        ("followed", row.wins),
    ]
    return [(name, text or "-") for name, text in facts]


_JUDGED = {
    "abnormal": "should be zero",
    "performance": "should match the peers",
    "context": "shown, not judged",
}
_BAD = {"high": "high values hurt", "low": "low values hurt", "none": "neither"}


def _metric_facts(row: Metric) -> Facts:
    top = "any" if math.isinf(row.valid_max) else f"{row.valid_max:g}"
    facts = [
        ("unit", row.unit),
        ("kind", row.kind),
        ("judged", _JUDGED[row.class_]),
        ("direction", _BAD[row.bad]),
        ("smallest effect", f"{row.effect_min:g} {row.judged_unit}" if row.judged else "-"),
        ("valid range", f"{row.valid_min:g} to {top} {row.unit}"),
        ("evidence for", row.family),
        ("device", row.device),
        ("source", row.source),
        ("exporters call it", ", ".join(row.names)),
    ]
    if row.kind == "counter":
        facts.append(("wraps at", f"{row.width_bits} bits"))
    return facts


def _print(title: str, facts: Facts) -> None:
    console = Console()
    if not console.is_terminal:
        click.echo(title)
        for name, text in facts:
            click.echo(f"{name}: {text}")
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts:
        table.add_row(Text(name), Text(text))
    console.print(Panel(table, title=Text(title), title_align="left", expand=False))
