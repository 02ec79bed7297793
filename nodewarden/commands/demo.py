"""`nodewarden demo`: simulated faults through the embedded pipeline, and the report of it."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from console.report import render
from console.terminal import print_report
from evaluation.scenarios import DEMO_SEED
from nodewarden.demonstrating import demonstrate, verdict_lines
from nodewarden.files import write_text
from nodewarden.progress import bar
from nodewarden.reporting import report_of
from nodewarden.session import Session, config_option


@click.command("demo")
@click.option("--seed", type=click.IntRange(0), default=DEMO_SEED, show_default=True, metavar="S")
@click.option(
    "--report", type=click.Path(path_type=Path), metavar="F.html",
    default=Path("nodewarden-demo/report.html"), show_default=True, help="Where the report goes.",
)  # fmt: skip
@config_option
@click.pass_obj
def command(session: Session, seed: int, report: Path, config: Path | None) -> None:
    """A simulated 64-node cluster with faults, its incidents and what would have been done.

    One process, no services; nothing is sent to any scheduler.
    """
    settings = session.settings(config).configuration.engine
    console = Console()
    with bar() as progress:
        shown = demonstrate(seed, settings, progress)
    page = report_of(shown.replayed, "nodewarden demo", f"simulation, seed {seed}", shown.score)
    print_report(page, console)
    for line in verdict_lines(shown):
        console.print(line, soft_wrap=True)
    write_text(report, render(page))
    console.print(f"report: {report.resolve()}", soft_wrap=True, markup=False, highlight=False)
