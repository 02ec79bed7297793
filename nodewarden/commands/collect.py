"""`nodewarden collect`: the agent that runs on every node."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click

from collectors.agent.counts import Counts
from collectors.agent.sink import LineSink
from nodewarden.clock import SystemClock
from nodewarden.collecting import build_agent
from nodewarden.session import Session, config_option
from telemetry.errors import SettingsError


@click.command("collect")
@click.option("--once", is_flag=True, help="Read every source once and end; needs --stdout.")
@click.option("--stdout", is_flag=True, help="Print records as JSON lines instead of sending them.")
@config_option
@click.pass_obj
def command(session: Session, config: Path | None, once: bool, stdout: bool) -> None:
    """Read this node's GPUs, NICs, kernel lines and training, and send what they say."""
    configuration = session.settings(config).configuration
    if once and not stdout:
        raise SettingsError("--once prints what it reads: add --stdout")
    clock, counts = SystemClock(), Counts()
    sink = LineSink(sys.stdout, clock.time_s())
    agent = build_agent(configuration, sink, counts, _say, clock, once=once)
    if once:
        agent.once()
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
    agent.run()


def _say(sentence: str) -> None:
    click.echo(f"nodewarden: {sentence}", err=True)
