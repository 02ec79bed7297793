"""One active instance among several: whoever the group gives the one partition to.

The broker notices an instance that dies or hangs (its session ends), and gives the partition to the
next. That alone proves nothing to a hanging instance which wakes up: fencing does.
"""

from __future__ import annotations

import contextlib
from typing import Any

import kafka.errors
from kafka import KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from collectors.broker.faults import fault_text
from collectors.broker.hidden import look_for_hidden
from collectors.broker.login import await_acceptance
from telemetry.broker_security import client_options
from telemetry.errors import SourceUnavailable
from telemetry.settings import KafkaSettings


class Membership:
    """A member of the group `group`, which shares partition 0 of `topic` among its members.

    Raises SourceUnavailable where no broker answers or it refuses us.
    """

    def __init__(
        self, settings: KafkaSettings, group: str, topic: str, session_s: float, pause_max_s: float
    ) -> None:
        """Join. Who takes no part for `pause_max_s` is put out, however its heart beats."""
        self._settings = settings
        self._partition = TopicPartition(topic, 0)
        await_acceptance(settings, settings.request_timeout_s)
        try:
            self._consumer: Any = KafkaConsumer(**_options(settings, group, session_s, pause_max_s))
            # Whoever shares out a topic that it has not seen yet gives nobody anything.
            found = self._consumer.partitions_for_topic(topic)
            self._consumer.subscribe([topic])
        except (kafka.errors.KafkaError, ValueError) as error:
            raise SourceUnavailable(fault_text(settings, error)) from error
        if not found:
            try:
                look_for_hidden(self._consumer, settings, topic)
            finally:
                self.close()
            raise SourceUnavailable(f"no topic {topic}; make it: nodewarden topics create")

    def is_active(self, timeout_s: float) -> bool:
        """Whether the partition is ours, after taking part in the group for a while."""
        try:
            self._consumer.poll(timeout_ms=int(timeout_s * 1000))
            if self._partition not in self._consumer.assignment():
                return False
            self._consumer.pause(self._partition)  # it is a token; who reads it reads elsewhere
        except kafka.errors.KafkaError as error:
            raise SourceUnavailable(fault_text(self._settings, error)) from error
        return True

    def close(self) -> None:
        """Leave the group at once: a standby need not wait for the session to end."""
        with contextlib.suppress(kafka.errors.KafkaError):
            self._consumer.close(autocommit=False, timeout_ms=2000)


def _options(
    settings: KafkaSettings, group: str, session_s: float, pause_max_s: float
) -> dict[str, Any]:
    timeout_ms = int(settings.request_timeout_s * 1000)
    return {
        "bootstrap_servers": list(settings.brokers),
        "client_id": group,
        "group_id": group,
        "enable_auto_commit": False,
        "auto_offset_reset": "latest",
        "allow_auto_create_topics": False,
        # The sticky one leaves the partition where it is when another instance comes.
        "partition_assignment_strategy": [StickyPartitionAssignor],
        "session_timeout_ms": int(session_s * 1000),
        "heartbeat_interval_ms": int(session_s * 1000 / 5),
        "max_poll_interval_ms": int(max(pause_max_s, session_s) * 1000),
        "bootstrap_timeout_ms": timeout_ms,
        "request_timeout_ms": max(timeout_ms, int(session_s * 1000) + 1000),
        "reconnect_backoff_max_ms": 1000,
        "max_poll_records": 1,
        "metadata_max_age_ms": 30_000,
        "metrics_enabled": False,
        **client_options(settings),
    }
