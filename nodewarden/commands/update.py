"""`nodewarden update`: other code or another configuration for a job."""

from __future__ import annotations

from pathlib import Path

import click

from nodewarden.act_client import ask, note_option
from nodewarden.session import Session


@click.command("update")
@click.argument("job", metavar="JOB")
@click.option("--code", metavar="REF", default="", help="Exactly which code: a commit, an image.")
@click.option("--config", "configuration", metavar="REF", default="",
              help="Exactly which configuration of the training.")  # fmt: skip
@click.option("--urgent", is_flag=True, help="By a restart of its own, now.")
@click.option("--running", is_flag=True, help="It runs already: a rollback can go back to it.")
@click.option("--settings", "file", type=click.Path(path_type=Path), metavar="F",
              help="Settings file (TOML); else $NODEWARDEN_CONFIG.")  # fmt: skip
@note_option
@click.pass_obj
def command(
    session: Session, job: str, code: str, configuration: str, urgent: bool, running: bool,
    file: Path | None, note: str,
) -> None:  # fmt: skip
    """Have JOB run other code or another configuration from its next restart on.

    It joins the next restart, whatever that is for; after a day without one it gets its own.
    """
    versions = {kind: ref for kind, ref in (("code", code), ("config", configuration)) if ref}
    if not versions:
        raise click.UsageError("name --code, --config or both")
    if urgent and running:
        raise click.UsageError("--urgent and --running: it is one of them")
    body = {
        "target": job, "note": note, "versions": versions, "urgent": urgent, "running": running,
    }  # fmt: skip
    ask(session, file, "update", body)
