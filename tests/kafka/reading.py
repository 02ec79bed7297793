"""What stands in a topic, read with our own reader."""

from __future__ import annotations

import time

from collectors.broker.consumer import KafkaLogReader
from nodewarden.clock import SystemClock
from telemetry.archive_line import ArchiveLine
from telemetry.settings import KafkaSettings
from tests.kafka.broker import Broker

READ_MAX_S = 60.0


def read_all(broker: Broker, topic: str, partition: int = 0) -> list[ArchiveLine]:
    """Everything that the partition holds now."""
    reader = KafkaLogReader(KafkaSettings(brokers=(broker.address,)), SystemClock())
    place = (topic, partition)
    start, end = reader.bounds([place])[place]
    reader.assign({place: start})
    lines: list[ArchiveLine] = []
    end_s = time.monotonic() + READ_MAX_S
    while not lines or lines[-1].offset < end - 1:
        if end == start:
            break
        assert time.monotonic() < end_s, f"{topic}/{partition}: {len(lines)} of {end - start}"
        lines += reader.poll(0.5)
    reader.close()
    return lines
