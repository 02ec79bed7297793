"""`nodewarden stream`: the engine on the live log, as a Faust worker on Apache Kafka."""

from __future__ import annotations

import asyncio
import logging
import platform
from pathlib import Path

import click

from actions.policy import verdict
from nodewarden.service_log import service_log
from nodewarden.session import Session, broker_option, config_option
from nodewarden.version import version
from telemetry.errors import NodewardenError, SourceUnavailable
from telemetry.settings import Configuration

LOG = logging.getLogger("nodewarden.stream")


@click.command("stream")
@config_option
@broker_option
@click.pass_obj
def command(session: Session, config: Path | None, broker: str | None) -> None:
    """Fold the live log into findings and incidents until SIGTERM."""
    # Faust and its libraries are only loaded where they are needed.
    from streams.live.app import GROUP, run  # noqa: PLC0415
    from streams.live.check import check_reachable  # noqa: PLC0415
    from streams.live.worker import StreamWorker  # noqa: PLC0415

    service_log()
    configuration = session.configured(config, broker)
    asyncio.run(check_reachable(configuration.kafka, GROUP))
    instance = configuration.stream.instance or platform.node()
    worker = StreamWorker(configuration, verdict, instance, version())
    failed = run(worker, instance, _Reload(session, config, broker))
    if failed:
        raise SourceUnavailable(failed)


class _Reload:
    """Tells when the settings file changed, and into what; a broken one is said and not taken."""

    def __init__(self, session: Session, config: Path | None, broker: str | None) -> None:
        self._session, self._config, self._broker = session, config, broker
        self._seen = self._stamp()

    def __call__(self) -> Configuration | None:
        stamp = self._stamp()
        if stamp == self._seen:
            return None
        self._seen = stamp
        try:
            changed = self._session.configured(self._config, self._broker)
        except NodewardenError as error:
            LOG.error("the changed settings are not taken: %s", error)
            return None
        LOG.info("settings changed")
        return changed

    def _stamp(self) -> tuple[int, int] | None:
        file = self._session.settings_path(self._config)
        try:
            found = None if file is None else file.stat()
        except OSError:
            return None
        return None if found is None else (found.st_mtime_ns, found.st_size)
