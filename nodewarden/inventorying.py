"""The inventory poller's process: what it is made of, its loop, and how it ends."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence

from collectors.broker.consumer import KafkaLogReader
from collectors.broker.publisher import KafkaPublisher
from collectors.inventory.metrics import InventoryMetrics
from collectors.inventory.poller import InventoryPoller, Target
from collectors.inventory.source import InventorySource
from collectors.inventory.state import InventoryState, stored_state
from nodewarden import shards
from nodewarden.version import version
from telemetry.errors import PublishError, SourceUnavailable
from telemetry.ports import Clock, Publisher
from telemetry.settings import Configuration, EngineSettings
from telemetry.topics import TELEMETRY

RETRY_MIN_S, RETRY_MAX_S = 0.5, 10.0

_log = logging.getLogger("nodewarden.inventory")


class Printer:
    """A Publisher that prints what would go into the log, one JSON object a line."""

    def publish(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Print records of the telemetry; the others say the same again."""
        if topic == TELEMETRY and value is not None:
            sys.stdout.write(value.decode() + "\n")

    def flush(self) -> None:
        """To the reader."""
        sys.stdout.flush()


def live_target(configuration: Configuration) -> Target:
    """The shard of the settings. Raises SettingsError where it is no live one."""
    found = shards.live_target(configuration, "the inventory is told one")
    return Target(found.shard, found.partition)


def print_once(
    configuration: Configuration, source: InventorySource, clock: Clock, metrics: InventoryMetrics
) -> None:
    """One listing on standard output. Raises InputError, SettingsError, SourceUnavailable."""
    printer = Printer()
    poller = _poller(
        configuration, source, printer, InventoryState(printer, {}, _value_max(configuration)),
        lambda: configuration.engine, clock, metrics,
    )  # fmt: skip
    poller.start()
    _check_once(poller)


def tell(
    configuration: Configuration, source: InventorySource, engine: Callable[[], EngineSettings],
    clock: Clock, metrics: InventoryMetrics, stop: threading.Event,
) -> None:  # fmt: skip
    """Tell the log until `stop`, at least once.

    Raises InputError where there is no listing at the start, PublishError and SourceUnavailable
    where no broker answers then, or no source and `stop` is set.
    """
    reader = KafkaLogReader(configuration.kafka, clock, "nodewarden-inventory")
    try:
        stored = stored_state(reader)
    finally:
        reader.close()
    publisher = KafkaPublisher(configuration.kafka, clock, "nodewarden-inventory")
    try:
        state = InventoryState(publisher, stored, _value_max(configuration))
        poller = _poller(configuration, source, publisher, state, engine, clock, metrics)
        poller.start()
        if stop.is_set():
            _check_once(poller)
        _loop(poller, stop)
    finally:
        publisher.close()


def _poller(
    configuration: Configuration, source: InventorySource, publisher: Publisher,
    state: InventoryState, engine: Callable[[], EngineSettings], clock: Clock,
    metrics: InventoryMetrics,
) -> InventoryPoller:  # fmt: skip
    return InventoryPoller(
        source, publisher, state, live_target(configuration), engine, version(),
        configuration.inventory, clock, metrics,
    )  # fmt: skip


def _check_once(poller: InventoryPoller) -> None:
    """Who asks once wants to know that there was no answer."""
    if poller.fault:
        raise SourceUnavailable(poller.fault)


def _value_max(configuration: Configuration) -> int:
    """Room for the key and the headers is left."""
    return configuration.kafka.record_max_bytes - 10_000


def _loop(poller: InventoryPoller, stop: threading.Event) -> None:
    pause_s = RETRY_MIN_S
    while not stop.is_set():
        try:
            stop.wait(poller.step())
        except PublishError as error:
            _log.warning("publish_failed error=%s retry_s=%.1f", error, pause_s)
            stop.wait(pause_s)
            pause_s = min(2.0 * pause_s, RETRY_MAX_S)
        else:
            pause_s = RETRY_MIN_S
