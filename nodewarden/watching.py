"""The watch within `nodewarden inventory`: two threads beside the poller, and their wiring.

Neither ends before the process does. What goes wrong in one is counted, and withholds the ping.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import CollectorRegistry

from collectors.broker.consumer import KafkaLogReader
from collectors.broker.publisher import KafkaPublisher
from collectors.watch.canaries import Canaries, LiveShard
from collectors.watch.deadman import ANSWER_MAX_BYTES, Deadman, Ping, split_url
from collectors.watch.metrics import WatchMetrics
from collectors.watch.tail import FindingsTail
from collectors.watch.workers import ANSWER_MAX_BYTES as METRICS_MAX_BYTES
from collectors.watch.workers import Fault, Workers
from telemetry.errors import NodewardenError, SettingsError
from telemetry.http_get import HttpGet
from telemetry.ports import Clock
from telemetry.settings import Configuration, DeadmanSettings

NAME = "nodewarden-watch"
POLL_S = 1.0
RETRY_S = 5.0
LEAVE_S = 1.5  # a thread that waits for a lost broker is not waited for

_log = logging.getLogger("nodewarden.watch")


@contextmanager
def watching(
    configuration: Configuration, clock: Clock, registry: CollectorRegistry, stop: threading.Event
) -> Iterator[None]:
    """Send canaries, read them back and ping while the block runs; ends once `stop` is set.

    Raises SettingsError, PublishError, SourceUnavailable: only before the block begins.
    """
    metrics = WatchMetrics(registry)
    canaries, threads = None, []
    publisher: KafkaPublisher | None = None
    deadman = configuration.deadman
    workers = _workers(configuration, clock) if deadman.url else None
    ping = _ping(deadman, clock) if deadman.url else None
    if configuration.watch.canary_s > 0.0:
        _check(configuration)
        publisher = KafkaPublisher(configuration.kafka, clock, NAME)
        canaries = Canaries(
            live_shards(configuration), publisher, configuration.watch, clock, metrics
        )
        loop = CanaryLoop(canaries, _tail(configuration, clock), metrics, stop)
        threads.append(threading.Thread(target=loop.run, name="canaries", daemon=True))
    if ping is not None and workers is not None:
        checks = [workers.faults] if canaries is None else [_canary_check(canaries), workers.faults]
        switch = Deadman(ping.send, checks, deadman.every_s, clock, metrics)
        threads.append(
            threading.Thread(
                target=ping_loop, args=(switch, metrics, stop), name="deadman", daemon=True
            )
        )
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(LEAVE_S)
        if publisher is not None and not any(thread.is_alive() for thread in threads):
            publisher.close()


def live_shards(configuration: Configuration) -> list[LiveShard]:
    """The shards that are no history, with their partitions."""
    return [
        LiveShard(name, partition)
        for partition, name in enumerate(configuration.shards)
        if name not in configuration.history_shards
    ]


class CanaryLoop:
    """Sends canaries and reads them back, in one thread, until `stop`."""

    def __init__(
        self, canaries: Canaries, tail: FindingsTail, metrics: WatchMetrics, stop: threading.Event
    ) -> None:  # fmt: skip
        self._canaries, self._tail, self._metrics = canaries, tail, metrics
        self._stop = stop
        self._said = ""

    def run(self) -> None:
        """The thread."""
        try:
            while not self._stop.is_set():
                try:
                    self.step()
                except Exception:  # noqa: BLE001 - it outlives its faults: canaries are late then
                    self._metrics.errors.labels("canary").inc()
                    _log.exception("watch_failed part=canary")
                    self._stop.wait(RETRY_S)
        finally:
            self._tail.close()

    def step(self) -> None:
        """Stand ready to read, send what is due, and take in what came."""
        well = self._try("findings", self._tail.place)  # first: nothing that comes is missed
        if well:
            well = self._try("canary", self._canaries.send)
            well = self._try("findings", self._take) and well
        self._canaries.look()
        if well:
            self._said = ""
        else:
            self._stop.wait(POLL_S)

    def _take(self) -> None:
        for shard, found in self._tail.poll(POLL_S):
            self._canaries.heard(shard, found)

    def _try(self, part: str, work: Callable[[], None]) -> bool:
        try:
            work()
        except NodewardenError as error:
            self._metrics.errors.labels(part).inc()
            if self._said != part:
                self._said = part
                _log.warning("watch_failed part=%s error=%s", part, error)
            return False
        return True


def ping_loop(switch: Deadman, metrics: WatchMetrics, stop: threading.Event) -> None:
    """The other thread."""
    while not stop.is_set():
        try:
            stop.wait(switch.step())
        except Exception:  # noqa: BLE001 - a ping that is not sent is the alarm
            metrics.errors.labels("deadman").inc()
            _log.exception("watch_failed part=deadman")
            stop.wait(RETRY_S)


def _canary_check(canaries: Canaries) -> Callable[[], Sequence[Fault]]:
    return lambda: [Fault("canary", text) for text in canaries.faults]


def _check(configuration: Configuration) -> None:
    if not configuration.engine.canary.enabled:
        raise SettingsError(
            "watch.canary_s: no canary would come back, engine.canary.enabled is false; set it to 0"
        )


def _tail(configuration: Configuration, clock: Clock) -> FindingsTail:
    return FindingsTail(
        lambda: KafkaLogReader(configuration.kafka, clock, NAME),
        {shard.partition: shard.name for shard in live_shards(configuration)},
    )


def _ping(settings: DeadmanSettings, clock: Clock) -> Ping:
    server, path = split_url(settings.url, "deadman.url")
    asked = HttpGet(
        server, "deadman.url", settings.timeout_s, ANSWER_MAX_BYTES, clock, settings.ca_file,
        "deadman.ca_file",
    )  # fmt: skip
    return Ping(asked, path)


def _workers(configuration: Configuration, clock: Clock) -> Workers:
    settings = configuration.deadman
    endpoints = []
    for url in settings.workers:
        server, path = split_url(url, "deadman.workers")
        asked = HttpGet(
            server, "deadman.workers", settings.workers_timeout_s, METRICS_MAX_BYTES, clock
        )
        endpoints.append((asked, path))
    shards = [shard.name for shard in live_shards(configuration)]
    return Workers(endpoints, shards, settings)
