"""The live worker and the archiver as processes of their own, as a supervisor runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from collectors.broker.consumer import KafkaLogReader
from nodewarden.clock import SystemClock
from telemetry.settings import KafkaSettings
from telemetry.topics import TELEMETRY
from tests.kafka.broker import Broker, free_port
from tests.kafka.conftest import SHARDS
from tests.kafka.service import DEADLINE_S, Metrics, Service, ServiceGone, Tables, nodewarden

__all__ = ["LiveArchiver", "LiveWorker", "Metrics", "ServiceGone", "log_end", "nodewarden"]

STREAM = ("-m", "nodewarden", "stream")


class LiveWorker(Service):
    """One worker process.

    program   a test with a probe has its own
    settings  more tables of the settings file: {"engine": {"zscore": {"sigmas": 3.0}}}
    stream    more settings of the table `stream`
    """

    def __init__(
        self, broker: Broker, directory: Path, instance: str = "worker-0", *,
        program: Sequence[str] = STREAM, shards: Sequence[str] = SHARDS,
        history: Sequence[str] = ("history",), settings: Tables | None = None,
        environ: Mapping[str, str] | None = None, **stream: float,
    ) -> None:  # fmt: skip
        self.broker = broker
        self.shards = tuple(shards)
        port = free_port()
        tables = {
            "shards": self.shards,
            "history_shards": tuple(history),
            "kafka": {"brokers": [broker.address]},
            "stream": {
                "instance": instance, "session_s": 6.0, "snapshot_s": 1.0, "settings_poll_s": 0.2,
                "metrics_address": f"127.0.0.1:{port}", **stream,
            },
        }  # fmt: skip
        super().__init__(
            directory, instance, program, tables, port, prefix="nodewarden_stream_",
            label="shard", environ=environ,
        )  # fmt: skip
        self.change_settings(settings or {})

    def wait_caught_up(
        self, offset: int | None = None, shard: str = "history", deadline_s: float = DEADLINE_S
    ) -> Metrics:
        """Until what was said of all records before `offset` is acknowledged; None: all there are.

        The metrics as they are then.
        """
        wanted = log_end(self.broker, self.shards.index(shard)) if offset is None else offset
        return self.wait_until(
            lambda found: found.get(("settled_offset", shard), -1.0) >= wanted,
            f"caught up with {shard} to offset {wanted}",
            deadline_s,
        )


class LiveArchiver(Service):
    """One archiver process that writes to `out`."""

    def __init__(self, broker: Broker, directory: Path, out: Path, **archive: float) -> None:
        self.broker = broker
        port = free_port()
        tables = {
            "kafka": {"brokers": [broker.address]},
            "archive": {"metrics_address": f"127.0.0.1:{port}", **archive},
        }
        super().__init__(
            directory, "archiver", ("-m", "nodewarden", "archive", "--out", str(out)), tables, port,
            prefix="nodewarden_archive_", label="topic",
        )  # fmt: skip

    def wait_taken(self, count: int, topic: str = TELEMETRY) -> Metrics:
        """Until it took so many records of a topic since it started; a stop writes them."""
        return self.wait_until(
            lambda found: found.get(("records_total", topic), 0.0) >= count,
            f"took {count} records of {topic}",
        )


def log_end(broker: Broker, partition: int, topic: str = TELEMETRY) -> int:
    """The offset that the partition's next record will get."""
    reader = KafkaLogReader(KafkaSettings(brokers=(broker.address,)), SystemClock())
    try:
        return reader.bounds([(topic, partition)])[topic, partition][1]
    finally:
        reader.close()
