"""Reads topics from wherever the reader says, through kafka-python; no consumer group.

The only module that imports kafka-python for consuming.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import kafka.errors
from kafka import KafkaConsumer, TopicPartition

from collectors.broker.faults import fault_text
from collectors.broker.hidden import look_for_hidden
from collectors.broker.login import await_acceptance
from telemetry.archive_line import ArchiveLine
from telemetry.broker_security import client_options
from telemetry.errors import OffsetGone, SourceUnavailable
from telemetry.ports import Clock, Place
from telemetry.settings import KafkaSettings

RECORDS_MAX = 2_000  # of one poll
PARTITION_BYTES_MAX = 4_000_000  # of one fetch; a single larger record comes all the same
FETCH_BYTES_MAX = 16_000_000
# A record of any size that a broker takes must be readable: rejecting it is the fold's work.
ANSWER_BYTES_MAX = 300_000_000
_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}


class KafkaLogReader:
    """The LogReader. Raises SourceUnavailable where the broker is silent for the request timeout,
    and OffsetGone where retention was faster than the reader; both leave the reader usable.
    """

    def __init__(
        self, settings: KafkaSettings, clock: Clock, client_id: str = "nodewarden-reader",
        *, committed: bool = False,
    ) -> None:  # fmt: skip
        """Wait for a broker; raises SourceUnavailable where none answers in time, or refuses us,
        and SettingsError for a file of `kafka.security`.

        committed  leave out what transactions took back
        """
        self._settings = settings
        self._clock = clock
        timeout_ms = int(settings.request_timeout_s * 1000)
        await_acceptance(settings, settings.request_timeout_s)
        try:
            self._consumer: Any = KafkaConsumer(
                **_options(settings, client_id, timeout_ms),
                isolation_level="read_committed" if committed else "read_uncommitted",
            )
        except (kafka.errors.KafkaError, ValueError) as error:
            raise self._unavailable(error) from error
        self._timeout_ms = timeout_ms
        self._heard_s = clock.monotonic_s()

    def partitions(self, topic: str) -> Sequence[int]:
        """The topic's partitions, sorted; empty where the topic does not exist.

        Raises SourceUnavailable where we have no right to see it.
        """
        found = sorted(self._asked("partitions_for_topic", topic) or ())
        if not found:
            look_for_hidden(self._consumer, self._settings, topic)
        return found

    def bounds(self, places: Sequence[Place]) -> Mapping[Place, tuple[int, int]]:
        """First kept offset and the offset that the next record will get."""
        asked = [TopicPartition(*place) for place in places]
        if not asked:
            return {}
        first = self._asked("beginning_offsets", asked, timeout_ms=self._timeout_ms)
        end = self._asked("end_offsets", asked, timeout_ms=self._timeout_ms)
        return {
            place: (int(first[partition]), int(end[partition]))
            for place, partition in zip(places, asked, strict=True)
        }

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Read these partitions from these offsets on, and no others."""
        wanted = {TopicPartition(*place): offset for place, offset in positions.items()}
        self._consumer.assign(list(wanted))
        for partition, offset in wanted.items():
            self._consumer.seek(partition, offset)

    def poll(self, timeout_s: float) -> Sequence[ArchiveLine]:
        """What came, of a partition in offset order; empty when the time is over."""
        try:
            found = self._consumer.poll(timeout_ms=int(timeout_s * 1000))
        except kafka.errors.OffsetOutOfRangeError as error:
            raise OffsetGone(_gone(error)) from error
        except kafka.errors.KafkaError as error:
            raise self._unavailable(error) from error
        lines = [_line(record) for records in found.values() for record in records]
        if lines:
            self._heard_s = self._clock.monotonic_s()
        else:
            self._ask_when_silent()
        return lines

    def positions(self) -> Mapping[Place, int]:
        """Of each assigned partition the offset to read on from, what nobody sees left behind."""
        found = {
            (one.topic, one.partition): self._asked("position", one, timeout_ms=self._timeout_ms)
            for one in self._consumer.assignment()
        }
        return {place: int(offset) for place, offset in found.items() if offset is not None}

    def close(self) -> None:
        """Leave."""
        self._consumer.close(autocommit=False, timeout_ms=1000)

    def _ask_when_silent(self) -> None:
        """A poll looks the same without a broker and without news: tell them apart in time."""
        silent_s = self._clock.monotonic_s() - self._heard_s
        assigned = sorted(self._consumer.assignment())
        if silent_s < self._settings.request_timeout_s or not assigned:
            return
        self._asked("end_offsets", assigned[:1], timeout_ms=self._timeout_ms)
        self._heard_s = self._clock.monotonic_s()

    def _asked(self, what: str, *arguments: Any, **named: Any) -> Any:
        try:
            return getattr(self._consumer, what)(*arguments, **named)
        except kafka.errors.KafkaError as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> SourceUnavailable:
        return SourceUnavailable(fault_text(self._settings, error))


def _options(settings: KafkaSettings, client_id: str, timeout_ms: int) -> dict[str, Any]:
    return {
        "bootstrap_servers": list(settings.brokers),
        "client_id": client_id,
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "allow_auto_create_topics": False,
        "bootstrap_timeout_ms": timeout_ms,
        "request_timeout_ms": timeout_ms,
        "reconnect_backoff_max_ms": 1000,
        "max_poll_records": RECORDS_MAX,
        "max_partition_fetch_bytes": PARTITION_BYTES_MAX,
        "fetch_max_bytes": FETCH_BYTES_MAX,
        "receive_message_max_bytes": ANSWER_BYTES_MAX,
        "metrics_enabled": False,
        **client_options(settings),
    }


def _line(record: Any) -> ArchiveLine:
    return ArchiveLine(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        _TIMESTAMP_TYPES.get(record.timestamp_type, "CreateTime"),
        tuple([(name, value or b"") for name, value in record.headers]),
        record.key,
        record.value,
    )


def _gone(error: kafka.errors.OffsetOutOfRangeError) -> str:
    offsets = error.args[0] if error.args else {}
    named = [f"{place.topic}/{place.partition}@{offset}" for place, offset in offsets.items()]
    return f"{', '.join(named)}: no longer kept by the broker, or never written"
