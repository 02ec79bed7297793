"""`nodewarden import`: captures into an archive, each a piece of history between Begin and End."""

from __future__ import annotations

from pathlib import Path

import click

from collectors.capture import is_capture, open_capture
from nodewarden.importing import import_captures
from nodewarden.progress import bar
from nodewarden.session import Session, config_option
from telemetry.errors import InputError


@click.command("import")
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH..."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="DIR")
@click.option("--tz", metavar="Z", help="Time zone of log lines that name none, as Europe/Berlin.")
@config_option
@click.pass_obj
def command(
    session: Session, paths: tuple[Path, ...], out: Path, tz: str | None, config: Path | None
) -> None:
    """Turn captures into one archive of the history shard; it replays as the captures do."""
    configuration = session.settings(config).configuration
    for path in paths:
        if not path.is_dir() or not is_capture(path):
            raise InputError(f"{path}: no capture (metrics/*.om, kernel/<node>.log, ...)")
    with bar() as progress:
        captures = [
            open_capture(path, configuration.engine, tz, progress.read, configuration.timezone)
            for path in paths
        ]
        done = import_captures(captures, out, configuration)
    click.echo(f"{done.records} records in {out}")
    if done.rejected:
        click.echo(f"{done.rejected} rejected records kept under nodewarden.rejected")
    for capture in captures:
        for note in capture.notes:
            click.echo(f"note: {note}")
