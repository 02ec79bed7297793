"""`nodewarden stream`: the engine on the live log, as a Faust worker on Apache Kafka."""

from __future__ import annotations

import asyncio
import logging
import platform
from pathlib import Path

import click

from actions.policy import verdict
from nodewarden.changed_settings import ChangedSettings
from nodewarden.service_log import service_log
from nodewarden.session import Session, broker_option, config_option
from nodewarden.version import version
from telemetry.errors import SourceUnavailable

LOG = logging.getLogger("nodewarden.stream")


@click.command("stream")
@config_option
@broker_option
@click.pass_obj
def command(session: Session, config: Path | None, broker: str | None) -> None:
    """Fold the live log into findings and incidents until SIGTERM."""
    # Faust and its libraries are only loaded where they are needed.
    from nodewarden.streaming import run_worker  # noqa: PLC0415
    from streams.live.app import GROUP  # noqa: PLC0415
    from streams.live.check import check_reachable  # noqa: PLC0415
    from streams.live.worker import StreamWorker  # noqa: PLC0415

    service_log()
    configuration = session.configured(config, broker)
    asyncio.run(check_reachable(configuration.kafka, GROUP))
    instance = configuration.stream.instance or platform.node()
    worker = StreamWorker(configuration, verdict, instance, version())
    failed = run_worker(worker, instance, ChangedSettings(session, config, broker))
    if failed:
        raise SourceUnavailable(failed)
