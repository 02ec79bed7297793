"""`nodewarden config check` and `config show`."""

from __future__ import annotations

from pathlib import Path

import click

from nodewarden.clock import SystemClock
from nodewarden.executing import check_executor
from nodewarden.notify_file import read_notify_file
from nodewarden.session import Session, config_option
from nodewarden.settings_file import show


@click.group("config")
def command() -> None:
    """Check the settings, or show what is in force."""


@command.command()
@config_option
@click.pass_obj
def check(session: Session, config: Path | None) -> None:
    """Say whether the settings can be run with."""
    effective = session.settings(config)
    configuration = effective.configuration
    check_executor(configuration.act, SystemClock())
    if configuration.notify.file:
        read_notify_file(Path(configuration.notify.file), configuration.engine.cluster)
    click.echo(f"settings are fine: {len(effective.origins)} set, the others are defaults")


@command.command("show")
@config_option
@click.pass_obj
def show_command(session: Session, config: Path | None) -> None:
    """Print every setting with its effective value, as a settings file."""
    click.echo(show(session.settings(config)), nl=False)
