"""`nodewarden act`: decides, asks people, and carries out what they and the rails allow."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from actions.api import Api
from actions.desk import Desk
from actions.metrics import ActMetrics
from actions.ports import Teller
from actions.rails import decide, recheck, tells
from actions.windows import calendar, named
from collectors.broker.consumer import KafkaLogReader
from collectors.broker.logs import quiet
from nodewarden.act_jobs import JobsReader
from nodewarden.act_reruns import RerunReader
from nodewarden.act_site import SiteReader
from nodewarden.acting import Acting, live_partitions
from nodewarden.clock import SystemClock
from nodewarden.executing import executor, lookout
from nodewarden.notify_file import read_notify_file
from nodewarden.notifying import notifying
from nodewarden.service_log import service_log
from nodewarden.serving import serve_metrics, stop_on_signals
from nodewarden.session import Session, broker_option, config_option

LOG = logging.getLogger("nodewarden.act")


@click.command("act")
@config_option
@broker_option
@click.pass_obj
def command(session: Session, config: Path | None, broker: str | None) -> None:
    """Decide what becomes of each incident, serve the API of the commands, until SIGTERM.

    One instance is active; others stand by and take over. Unless act.dry_run is false nothing is
    done but records written. Exit status: 0 stopped, 2 settings, 3 no broker answers, or another
    instance has taken over: start it again, and it stands by.
    """
    service_log()
    quiet()
    configuration = session.configured(config, broker)
    settings = configuration.act
    clock, metrics, desk = SystemClock(), ActMetrics(), Desk()
    acts, looks = executor(settings, clock), lookout(settings, clock)
    if not settings.tokens:
        LOG.warning("no_tokens act.tokens is empty: nobody can approve or pause anything")
    calendar(settings.rails.maintenance)
    named(settings.rails.protected, "protected")
    if configuration.notify.file:  # what is wrong with it is said now, not at the first take-over
        read_notify_file(Path(configuration.notify.file), configuration.engine.cluster)
    site = SiteReader(
        configuration, clock,
        lambda: KafkaLogReader(configuration.kafka, clock, "nodewarden-act-site"),
    )  # fmt: skip
    reruns = RerunReader(
        lambda: KafkaLogReader(configuration.kafka, clock, "nodewarden-act-reruns"),
        live_partitions(configuration), settings.versions, clock,
    )  # fmt: skip
    jobs = JobsReader(
        lambda: KafkaLogReader(configuration.kafka, clock, "nodewarden-act-jobs"),
        live_partitions(configuration), site.job, clock,
    )  # fmt: skip
    with (
        serve_metrics(metrics.registry, settings.metrics_address, "act.metrics_address"),
        Api(settings, desk, clock.time_s, metrics),
        stop_on_signals() as stop,
    ):

        @contextmanager
        def telling() -> Iterator[Teller | None]:
            """Only the active one tells anybody."""
            with notifying(configuration, clock, metrics.registry, stop, site.place) as notifier:
                yield notifier

        acting = Acting(
            configuration, acts, desk, clock, metrics, decide=decide,
            site=lambda: site.site, job=jobs.facts,
            recheck=recheck, telling=telling, tells=tells, compared=reruns.compared, looks=looks,
        )  # fmt: skip
        threading.Thread(target=jobs.run, args=(stop,), name="jobs", daemon=True).start()
        threading.Thread(target=reruns.run, args=(stop,), name="reruns", daemon=True).start()
        if looks is not None:
            threading.Thread(target=looks.run, args=(stop,), name="looks", daemon=True).start()
        site.refresh()
        threading.Thread(target=site.run, args=(stop,), name="site", daemon=True).start()
        acting.run(stop)
