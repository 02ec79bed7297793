"""Builds the central collector out of the settings: where its sources meet their adapters."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from collectors.agent.counts import Counts
from collectors.agent.notes import Notes
from collectors.agent.positions import usable_directory
from collectors.agent.sink import LineSink, Sink
from collectors.broker.consumer import KafkaLogReader
from collectors.central.api import PrometheusApi
from collectors.central.hosts import Hosts, read_hosts
from collectors.central.loop import Central
from collectors.central.metrics import CentralMetrics
from collectors.central.position import position_file
from collectors.central.prometheus import PrometheusSource
from nodewarden.clock import SystemClock
from nodewarden.collecting import open_outbox
from nodewarden.serving import serve_metrics, stop_on_signals
from telemetry.errors import SourceUnavailable
from telemetry.ports import Clock
from telemetry.settings import Configuration

STREAMS_MAX = 400_000  # of a central collector: every node has several

_log = logging.getLogger("nodewarden.collect")


def with_addresses(
    configuration: Configuration, prometheus: str | None, syslog: str | None
) -> Configuration:
    """The command line's addresses before the file's."""
    asked = configuration.prometheus, configuration.syslog
    return replace(
        configuration,
        prometheus=replace(asked[0], url=prometheus) if prometheus else asked[0],
        syslog=replace(asked[1], address=syslog) if syslog else asked[1],
    )


class InventoryHosts:
    """Reads the inventory topic when it is called; keeps what it knew where there is no broker."""

    def __init__(self, configuration: Configuration, clock: Clock) -> None:
        self._configuration, self._clock = configuration, clock
        self._hosts = Hosts()

    def __call__(self) -> Hosts:
        try:
            reader = KafkaLogReader(self._configuration.kafka, self._clock, "nodewarden-collect")
            try:
                self._hosts = read_hosts(reader)
            finally:
                reader.close()
        except SourceUnavailable as error:
            _log.warning("inventory_not_read error=%s", error)
        return self._hosts


def build_central(
    configuration: Configuration, sink: Sink, counts: Counts, clock: Clock,
    hosts: Callable[[], Hosts], *, keep: bool,
) -> tuple[Central, Callable[[], bool]]:  # fmt: skip
    """The collector, and whether there is nothing to do just now.

    keep     positions are loaded and saved
    Raises SettingsError.
    """
    ticks = configuration.engine.ticks
    api = PrometheusApi(configuration.prometheus.url, configuration.prometheus, clock)
    state = usable_directory(Path(configuration.collect.state_dir)) if keep else None

    def expected(source: str) -> float:
        return ticks.interval_s.get(source, ticks.interval_default_s)

    source = PrometheusSource(
        api, configuration.prometheus, position_file(state) if state is not None else None,
        hosts, expected, counts, clock,
    )  # fmt: skip
    central = Central([source], sink, counts, Notes(_log.warning, clock), clock)
    return central, lambda: source.is_idle


def collect_centrally(configuration: Configuration, *, once: bool, stdout: bool) -> None:
    """`collect` with --prometheus or --syslog, until SIGTERM; with `once` what is there now.

    Raises SettingsError, and with `once` SourceUnavailable.
    """
    clock, counts, registry = SystemClock(), Counts(), CollectorRegistry()
    registry.register(CentralMetrics(counts))
    sink: Sink
    hosts: Callable[[], Hosts] = Hosts
    if stdout:
        sink = LineSink(sys.stdout, clock, STREAMS_MAX)
    else:
        sink = open_outbox(configuration, clock, registry, streams_max=STREAMS_MAX)
        hosts = InventoryHosts(configuration, clock)
    central, is_idle = build_central(configuration, sink, counts, clock, hosts, keep=not once)
    address = "" if stdout else configuration.collect.metrics_address
    failed = ("errors", "prometheus")
    with serve_metrics(registry, address, "collect.metrics_address"), stop_on_signals() as stop:
        central.run(lambda: stop.is_set() or (once and (is_idle() or counts.totals[failed] > 0)))
    if once and counts.totals[failed]:
        raise SourceUnavailable(f"{configuration.prometheus.url}: nothing was read")
