"""Builds the central collector out of the settings: where its sources meet their adapters."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from zoneinfo import ZoneInfo

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
from collectors.central.source import Source
from collectors.central.syslog import SyslogSource
from collectors.central.syslog_lines import SyslogLines
from collectors.central.syslog_server import SyslogServer
from collectors.jobs import Wiring, read_jobs, read_ports
from nodewarden.clock import SystemClock
from nodewarden.collecting import open_outbox
from nodewarden.serving import serve_metrics, stop_on_signals
from telemetry.errors import SettingsError, SourceUnavailable
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
    """The collector, and whether everything that is there now has been read.

    keep     positions are loaded and saved
    Raises SettingsError.
    """
    sources: list[Source] = []
    is_idle: Callable[[], bool] = lambda: True  # noqa: E731
    if configuration.prometheus.url:
        prometheus = _prometheus(configuration, counts, clock, hosts, keep=keep)
        sources.append(prometheus)
        is_idle = lambda: prometheus.is_idle  # noqa: E731
    if configuration.syslog.address:
        sources.append(_syslog(configuration, counts, clock, hosts))
    return Central(sources, sink, counts, Notes(_log.warning, clock), clock), is_idle


def _prometheus(
    configuration: Configuration, counts: Counts, clock: Clock, hosts: Callable[[], Hosts], *,
    keep: bool,
) -> PrometheusSource:  # fmt: skip
    settings, ticks = configuration.prometheus, configuration.engine.ticks
    api = PrometheusApi(settings.url, settings, clock)
    file = None
    if keep:
        file = position_file(usable_directory(Path(configuration.collect.state_dir)))

    least_s = min([ticks.interval_default_s, *ticks.interval_s.values()])
    if settings.delay_s + settings.poll_s > ticks.lateness_intervals * least_s:
        _log.warning(
            "frames come too late for their ticks: prometheus.delay_s + poll_s is %g s, and"
            " engine.ticks.lateness_intervals times the interval is %g s",
            settings.delay_s + settings.poll_s, ticks.lateness_intervals * least_s,
        )  # fmt: skip

    def expected(source: str) -> float:
        return ticks.interval_s.get(source, ticks.interval_default_s)

    return PrometheusSource(api, settings, file, hosts, expected, counts, clock)


def _syslog(
    configuration: Configuration, counts: Counts, clock: Clock, hosts: Callable[[], Hosts]
) -> SyslogSource:
    settings = configuration.syslog
    lines = SyslogLines(
        ZoneInfo(configuration.timezone), settings.hosts_max, _wiring(settings.ports_file)
    )
    names_s = configuration.prometheus.names_s
    return SyslogSource(SyslogServer(settings), lines, hosts, names_s, counts, clock)


def _wiring(file: str) -> Wiring:
    """Raises SettingsError, InputError."""
    if not file:
        return {}
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise SettingsError(f"syslog.ports_file: {file}: {error.strerror}") from error
    read_jobs(data, file, 0.0)
    return read_ports(data, file)


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
