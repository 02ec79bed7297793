"""`nodewarden tried`: which step of the ladder was made for an incident, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click
import msgspec

from nodewarden.act_client import ask, note_option
from nodewarden.session import Session, config_option
from telemetry.attempts import Attempt, Step
from telemetry.hostlist import expand


@click.command("tried")
@click.argument("target", metavar="ID")
@click.option("--step", type=click.Choice(get_args(Step)), required=True, help="Which one.")
@click.option("--found", metavar="NODES", default="", help='Nodes that it found, "n[1-2],n7".')
@click.option("--nothing", is_flag=True, help="It found no node, or passed.")
@click.option("--group", metavar="NAME", default="", help='Parallel group of the stacks, "pp 3".')
@click.option("--worked/--failed", default=None, help="Whether the job runs again.")
@config_option
@note_option
@click.pass_obj
def command(
    session: Session, target: str, step: Step, found: str, nothing: bool, group: str,
    worked: bool | None, config: Path | None, note: str,
) -> None:  # fmt: skip
    """Tell what was tried for the incident ID: the ladder goes on from there.

    Without --found, --nothing, --worked or --failed it was made, and nobody knows yet what came of
    it.
    """
    if found and nothing:
        raise click.UsageError("--found and --nothing: it is one of them")
    nodes = expand(found)
    if isinstance(nodes, str):
        raise click.UsageError(f"--found: {nodes}")
    attempt = Attempt(
        step=step, at=0.0, incident=target, nodes=nodes if found or nothing else None,
        group=group, worked=worked,
    )  # fmt: skip
    body = {"target": target, "note": note, "attempt": msgspec.to_builtins(attempt)}
    ask(session, config, "tried", body)
