"""`nodewarden inventory`: tells the log who runs where."""

from __future__ import annotations

import logging
import threading
from contextlib import nullcontext
from pathlib import Path

import click

from collectors.broker.logs import quiet
from collectors.inventory.metrics import InventoryMetrics
from nodewarden.changed_settings import ChangedSettings
from nodewarden.clock import SystemClock
from nodewarden.inventory_sources import chosen, opened
from nodewarden.inventorying import live_target, print_once, tell
from nodewarden.service_log import service_log
from nodewarden.serving import serve_metrics, stop_on_signals
from nodewarden.session import Session, broker_option, config_option
from nodewarden.watching import watching
from telemetry.settings import EngineSettings

LOG = logging.getLogger("nodewarden.inventory")


@click.command("inventory")
@click.option("--slurm", is_flag=True, help="Slurm's commands: sinfo, squeue, scontrol.")
@click.option(
    "--slurmrestd", metavar="URL", help="Slurm's REST API; also unix:/run/slurmrestd.sock."
)
@click.option("--kubernetes", is_flag=True, help="The Kubernetes API.")
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), metavar="F",
    help="With --kubernetes: not the pod's service account or the user's own file, but this one.",
)  # fmt: skip
@click.option(
    "--from", "listing", type=click.Path(path_type=Path), metavar="JOBS.json",
    help="Jobs, nodes and topology, as in a capture; read again when it changes.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Publish one listing and end.")
@click.option("--stdout", is_flag=True, help="With --once: print the records, without Kafka.")
@config_option
@broker_option
@click.pass_obj
def command(
    session: Session, slurm: bool, slurmrestd: str | None, kubernetes: bool,
    kubeconfig: Path | None, listing: Path | None, once: bool, stdout: bool, config: Path | None,
    broker: str | None,
) -> None:  # fmt: skip
    """Tell the log which jobs run on which nodes, and that time goes by, until SIGTERM.

    Changes at once, everything every 10 minutes, a beat every 5 s. A source that is broken or
    answers with half of it changes nothing: what was known before stays in force.
    """
    if stdout and not once:
        raise click.UsageError("--stdout needs --once")
    service_log()
    quiet()
    configuration = chosen(
        session.configured(config, broker), listing, slurm, slurmrestd, kubernetes, kubeconfig
    )
    live_target(configuration)
    clock, metrics = SystemClock(), InventoryMetrics()
    with opened(configuration.inventory, clock, metrics) as source:
        if stdout:
            print_once(configuration, source, clock, metrics)
            return
        engine = _Engine(ChangedSettings(session, config, broker), configuration.engine)
        address = "" if once else configuration.inventory.metrics_address
        with (
            serve_metrics(metrics.registry, address, "inventory.metrics_address"),
            stop_on_signals() as stop,
            nullcontext() if once else watching(configuration, clock, metrics.registry, stop),
        ):
            tell(configuration, source, engine, clock, metrics, _ended() if once else stop)


class _Engine:
    """The engine's settings as the file has them now; a broken file is said and not taken."""

    def __init__(self, changed: ChangedSettings, engine: EngineSettings) -> None:
        self._changed, self._engine = changed, engine

    def __call__(self) -> EngineSettings:
        changed = self._changed()
        if changed is not None:
            self._engine = changed.engine
        return self._engine


def _ended() -> threading.Event:
    stop = threading.Event()
    stop.set()
    return stop
