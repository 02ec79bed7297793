"""`nodewarden versions`: what a job runs, ran before, and is to run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from nodewarden.act_client import ActClient
from nodewarden.session import Session, config_option
from telemetry.actions import Update


@click.command("versions")
@click.argument("job", metavar="JOB")
@click.option("--json", "as_json", is_flag=True, help="As it is.")
@config_option
@click.pass_obj
def command(session: Session, job: str, as_json: bool, config: Path | None) -> None:
    """Show which code and configuration JOB runs, and its updates, newest first."""
    client = ActClient(session.settings(config).configuration.act)
    found = client.get_of("versions", job)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
        return
    click.echo("\n".join(_printable(line) for line in _lines(job, found)))


def _lines(job: str, found: dict[str, Any]) -> list[str]:
    running, following = found["running"], found["next"]
    lines = [f"job {job} runs {_named(running) or 'what nobody told'}"]
    if following != running:
        lines.append(f"its next restart runs {_named(following)}")
    for update in reversed(msgspec.convert(found["updates"], list[Update])):
        at = datetime.fromtimestamp(update.asked_at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        note = f" ({update.note})" if update.note else ""
        lines.append(f"{update.id}  {at}  {update.state:<8}  {_named(update.versions)}"
                     f"  by {update.by}{note}: {update.reason}")  # fmt: skip
    return lines


def _named(versions: dict[str, str]) -> str:
    return ", ".join(f"{kind} {version}" for kind, version in sorted(versions.items()))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
