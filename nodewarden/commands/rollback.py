"""`nodewarden rollback`: the newest update of a job is taken back."""

from __future__ import annotations

from pathlib import Path

import click

from nodewarden.act_client import ask, note_option
from nodewarden.session import Session, config_option


@click.command("rollback")
@click.argument("job", metavar="JOB")
@click.option("--urgent", is_flag=True, help="By a restart of its own, now.")
@config_option
@note_option
@click.pass_obj
def command(session: Session, job: str, urgent: bool, config: Path | None, note: str) -> None:
    """Have JOB run what it ran before its newest update, from its next restart on."""
    ask(session, config, "rollback", {"target": job, "note": note, "urgent": urgent})
