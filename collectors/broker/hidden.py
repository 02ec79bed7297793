"""Whether a topic that is not there is hidden from us: brokers leave out what one may not see."""

from __future__ import annotations

from typing import Any

import kafka.errors
from kafka import TopicPartition

from collectors.broker.faults import fault_text
from telemetry.errors import SourceUnavailable
from telemetry.settings import KafkaSettings

WAIT_MS = 2_000  # so long a topic that is not there is looked for


def look_for_hidden(consumer: Any, settings: KafkaSettings, topic: str) -> None:
    """Return where nobody hides it; asked for by name, brokers say what their lists leave out.

    consumer  of kafka-python
    Raises SourceUnavailable where we have no right to see it.
    """
    if settings.security.protocol == "plaintext":
        return
    try:
        consumer.beginning_offsets([TopicPartition(topic, 0)], timeout_ms=WAIT_MS)
    except kafka.errors.TopicAuthorizationFailedError as error:
        raise SourceUnavailable(fault_text(settings, error)) from error
    except (kafka.errors.KafkaTimeoutError, kafka.errors.UnknownTopicOrPartitionError):
        return
