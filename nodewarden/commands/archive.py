"""`nodewarden archive`: every topic to files, around the clock."""

from __future__ import annotations

from pathlib import Path

import click

from collectors.broker.logs import quiet
from nodewarden.archiving import archive, store_of
from nodewarden.clock import SystemClock
from nodewarden.service_log import service_log
from nodewarden.serving import serve_metrics, stop_on_signals
from nodewarden.session import Session, broker_option, config_option
from streams.archive_metrics import ArchiveMetrics


@click.command("archive")
@click.option(
    "--out", required=True, metavar="DIR|URL",
    help="A local directory, or an object store as s3://bucket/prefix.",
)  # fmt: skip
@config_option
@broker_option
@click.pass_obj
def command(session: Session, out: str, config: Path | None, broker: str | None) -> None:
    """Write every topic into an archive until SIGTERM; `replay` reads it.

    Started again it goes on where the files end. What Kafka deleted before it was read is said as
    a gap and counted in the metrics.
    """
    service_log()
    quiet()
    configuration = session.configured(config, broker)
    store = store_of(out, configuration.archive)
    metrics = ArchiveMetrics()
    address = configuration.archive.metrics_address
    with (
        serve_metrics(metrics.registry, address, "archive.metrics_address"),
        stop_on_signals() as stop,
    ):
        done = archive(configuration, store, SystemClock(), metrics, stop)
    click.echo(f"archived {done.records} records; {len(done.gaps)} gaps", err=True)
