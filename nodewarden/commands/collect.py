"""`nodewarden collect`: the agent that runs on every node."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path

import click
from prometheus_client import CollectorRegistry

from collectors.agent.counts import Counts
from collectors.agent.metrics import AgentMetrics
from collectors.agent.sink import LineSink, Sink
from collectors.broker.logs import quiet
from nodewarden.clock import SystemClock
from nodewarden.collecting import build_agent, open_outbox
from nodewarden.service_log import service_log
from nodewarden.serving import serve_metrics
from nodewarden.session import Session, broker_option, config_option
from telemetry.errors import SettingsError

_log = logging.getLogger("nodewarden.collect")


@click.command("collect")
@click.option("--once", is_flag=True, help="Read every source once and end; needs --stdout.")
@click.option(
    "--prometheus", metavar="URL",
    help="Read this Prometheus for all nodes, instead of being one node's agent.",
)  # fmt: skip
@click.option(
    "--syslog", metavar="HOST:PORT", help="Take kernel and switch lines there, over TCP and UDP."
)
@click.option("--stdout", is_flag=True, help="Print records as JSON lines instead of sending them.")
@config_option
@broker_option
@click.pass_obj
def command(
    session: Session, once: bool, prometheus: str | None, syslog: str | None, stdout: bool,
    config: Path | None, broker: str | None,
) -> None:  # fmt: skip
    """Read this node's GPUs, NICs, kernel lines and training, and send what they say.

    Until SIGTERM. While the broker is away, records wait on disk. With --prometheus or --syslog one
    process reads the whole site instead, and no node needs an agent.
    """
    service_log()
    quiet()
    configuration = session.configured(config, broker)
    if once and not stdout:
        raise SettingsError("--once prints what it reads: add --stdout")
    named = configuration.prometheus.url, configuration.syslog.address, prometheus, syslog
    if any(named):
        from nodewarden.central import (  # noqa: PLC0415 - numpy, which no node's agent needs
            collect_centrally,
            with_addresses,
        )

        collect_centrally(
            with_addresses(configuration, prometheus, syslog), once=once, stdout=stdout
        )
        return
    clock, counts, registry = SystemClock(), Counts(), CollectorRegistry()
    registry.register(AgentMetrics(counts))
    sink: Sink = (
        LineSink(sys.stdout, clock) if stdout else open_outbox(configuration, clock, registry)
    )
    agent = build_agent(configuration, sink, counts, _log.warning, clock, once=once)
    if once:
        agent.once()
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
    address = "" if stdout else configuration.collect.metrics_address
    with serve_metrics(registry, address, "collect.metrics_address"):
        agent.run()
