"""`nodewarden snooze`: nobody is told of the incident for a while."""

from __future__ import annotations

import math
from pathlib import Path

import click

from nodewarden.act_client import ask, note_option
from nodewarden.session import Session, config_option


@click.command("snooze")
@click.argument("target", metavar="ID")
@click.option(
    "--for", "minutes", type=click.FloatRange(1.0, 43_200.0), default=60.0, show_default=True,
    metavar="MINUTES", help="How long.",
)  # fmt: skip
@config_option
@note_option
@click.pass_obj
def command(
    session: Session, target: str, minutes: float, config: Path | None, note: str
) -> None:  # fmt: skip
    """Let nobody be told of the incident ID for a while; it is decided and recorded as ever."""
    if math.isnan(minutes):  # which is within every range
        raise click.UsageError("--for: nan is no number of minutes")
    ask(session, config, "snooze", {"target": target, "note": note, "for_s": 60.0 * minutes})
