"""`nodewarden topics create` and `topics check`."""

from __future__ import annotations

from pathlib import Path

import click

from collectors.broker.admin import Admin
from collectors.broker.logs import quiet
from nodewarden.session import Session, broker_option, config_option, with_broker

DIFFERENT = 2


@click.group("topics")
def command() -> None:
    """Create Kafka's topics, or say where they are not as they should be."""


@command.command()
@config_option
@broker_option
@click.pass_obj
def create(session: Session, config: Path | None, broker: str | None) -> int:
    """Create the topics that are missing; those that exist stay as they are."""
    with _admin(session, config, broker) as admin:
        made = admin.create()
        click.echo(f"created: {', '.join(made)}" if made else "all topics exist")
        return _said(admin.check())


@command.command()
@config_option
@broker_option
@click.pass_obj
def check(session: Session, config: Path | None, broker: str | None) -> int:
    """Say what differs from the settings, a line each with its remedy; exit 2 where any does."""
    with _admin(session, config, broker) as admin:
        lines = admin.check()
    if not lines:
        click.echo("topics are fine")
    return _said(lines)


def _admin(session: Session, config: Path | None, broker: str | None) -> Admin:
    quiet()
    configuration = with_broker(session.settings(config).configuration, broker)
    return Admin(configuration.kafka, configuration.shards)


def _said(lines: list[str]) -> int:
    for line in lines:
        click.echo(line)
    return DIFFERENT if lines else 0
