"""kafka-python's producer: the only module that imports it for producing.

A `Pipe` is one idempotent producer with what it has not settled, in order. Its first failed record
breaks it for good: the producer ends at once, before it sends another batch, so that whoever
replaces it sends everything not acknowledged again in the same order. What the broker had appended
without our knowing is then there twice; streams' sequence numbers tell.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import kafka.errors
import msgspec
from kafka import KafkaProducer

from collectors.broker.faults import fault_text, is_refusal
from collectors.broker.login import await_acceptance
from collectors.link import Message, Settled
from telemetry.broker_probe import BrokerRefuses
from telemetry.broker_security import client_options
from telemetry.errors import NotAccepted, PublishError, SourceUnavailable
from telemetry.settings import KafkaSettings

# The record's own fault: no producer and no patience will change it.
RECORD_FAULTS = (
    kafka.errors.MessageSizeTooLargeError,
    kafka.errors.RecordListTooLargeError,
    kafka.errors.InvalidRecordError,
)
ENVELOPE_BYTES = 65_536
BATCH_BYTES_MAX = 262_144
END_S = 2.0
# A send that waits for its topic's metadata waits for nothing once the producer has ended: look.
BLOCK_S = 1.0
# The waiting ends where our callers say; a producer that gives up by itself loses its sequence.
_DELIVERY_MS = 24 * 3600 * 1000


class _Entry(msgspec.Struct):
    message: Message
    future: Any = None
    fault: str | None = None


class Pipe:
    """See above. Not safe for several threads, but `broken` may be set by the producer's own."""

    def __init__(
        self,
        settings: KafkaSettings,
        client_id: str,
        *,
        connect_s: float,
        topics: Sequence[str] = (),
    ) -> None:
        """Wait at most `connect_s` for a broker that has the topics.

        Raises PublishError where none answers, or a topic is missing; NotAccepted where a broker
        refuses us; SettingsError for a file of `kafka.security`. To a topic that is not named here
        the first `send` may wait as long.
        """
        self._settings = settings
        self._record_max_bytes = settings.record_max_bytes
        self._blocks_max = max(math.ceil(connect_s / BLOCK_S), 1)
        self._unsettled: deque[_Entry] = deque()
        self.unsettled_bytes = 0
        self.broken: str | None = None
        self.refused = False  # whether it broke because the broker does not accept us
        try:
            await_acceptance(settings, connect_s)
        except BrokerRefuses as error:
            raise NotAccepted(str(error)) from error
        except SourceUnavailable as error:
            raise PublishError(str(error)) from error
        try:
            self._producer: Any = KafkaProducer(**_options(settings, client_id, connect_s))
        except (kafka.errors.KafkaError, ValueError) as error:
            raise _publish_error(settings, error) from error
        for topic in topics:
            self._find(topic)

    def __len__(self) -> int:
        return len(self._unsettled)

    def send(self, message: Message) -> None:
        """Hand the message over; what goes wrong with it shows in `settled` or `broken`."""
        entry = _Entry(message)
        self._unsettled.append(entry)
        self.unsettled_bytes += message.size_bytes
        entry.fault = self._fault(message)
        if entry.fault is None and self.broken is None:
            self._hand_over(entry)

    def settled(self) -> list[Settled]:
        """What is settled since the last call: acknowledged, or refused for the record's fault."""
        done: list[Settled] = []
        while self._unsettled:
            entry = self._unsettled[0]
            fault = entry.fault or _record_fault(entry.future)
            if fault is None and not _acknowledged(entry.future):
                break
            self._unsettled.popleft()
            self.unsettled_bytes -= entry.message.size_bytes
            done.append(Settled(entry.message, fault))
        return done

    def wait(self, timeout_s: float) -> None:
        """Wait until the oldest message is settled, the pipe breaks, or the time is over."""
        if self._unsettled and self.broken is None and self._unsettled[0].future is not None:
            with contextlib.suppress(kafka.errors.KafkaError):
                self._unsettled[0].future.get(timeout_s)

    def end(self) -> list[Message]:
        """End the producer without waiting for the broker; what is not settled, in order."""
        self._break("ended")
        self._producer._sender.join(END_S)
        # Its close() waits for every open batch before it ends anything; now none is open.
        with contextlib.suppress(kafka.errors.KafkaError):
            self._producer.close(timeout=END_S)
        left = [entry.message for entry in self._unsettled]
        self._unsettled.clear()
        self.unsettled_bytes = 0
        return left

    def _find(self, topic: str) -> None:
        try:
            self._partitions(topic)
        except kafka.errors.KafkaError as error:
            self.end()
            if is_refusal(error):
                raise NotAccepted(fault_text(self._settings, error)) from error
            raise PublishError(f"{topic}: {error}; run `nodewarden topics check`") from error

    def _partitions(self, topic: str) -> None:
        for left in reversed(range(self._blocks_max)):
            try:
                self._producer.partitions_for(topic)
            except kafka.errors.KafkaTimeoutError:
                if not left:
                    raise
            else:
                return

    def _fault(self, message: Message) -> str | None:
        if message.value is not None and len(message.value) > self._record_max_bytes:
            return f"{len(message.value)} bytes, at most {self._record_max_bytes}"
        if message.value is None and message.key is None:
            return "neither key nor value"
        return None

    def _hand_over(self, entry: _Entry) -> None:
        message = entry.message
        try:
            entry.future = self._sent(message)
        except RECORD_FAULTS as error:
            entry.fault = str(error)
        except ValueError as error:  # a partition that the topic does not have
            self._break(f"{error}; run `nodewarden topics check`")
        except kafka.errors.KafkaError as error:
            self._break(f"{message.topic}: {fault_text(self._settings, error)}", error)
        else:
            if entry.future is not None:
                entry.future.add_errback(self._failed)

    def _sent(self, message: Message) -> Any:
        """The producer's future; None where it broke while we waited for the topic."""
        for left in reversed(range(self._blocks_max)):
            try:
                return self._producer.send(
                    message.topic, message.value, key=message.key, partition=message.partition,
                    headers=list(message.headers),
                )  # fmt: skip
            except kafka.errors.KafkaTimeoutError:
                if self.broken is not None:
                    return None
                if not left:
                    raise
        return None

    def _failed(self, error: Exception) -> None:
        self._break(fault_text(self._settings, error), error)

    def _break(self, why: str, error: Exception | None = None) -> None:
        if self.broken is None:
            self.refused = error is not None and is_refusal(error)
            self.broken = why
            # Called in the producer's own thread where a record failed: nothing is sent after it.
            self._producer._sender.force_close()


def _publish_error(settings: KafkaSettings, error: Exception) -> PublishError:
    kind = NotAccepted if is_refusal(error) else PublishError
    return kind(fault_text(settings, error))


def _options(settings: KafkaSettings, client_id: str, connect_s: float) -> dict[str, Any]:
    return {
        "bootstrap_servers": list(settings.brokers),
        "client_id": client_id,
        "acks": "all",
        "enable_idempotence": True,
        "allow_auto_create_topics": False,
        "bootstrap_timeout_ms": int(connect_s * 1000),
        "request_timeout_ms": int(settings.request_timeout_s * 1000),
        "max_block_ms": int(min(connect_s, BLOCK_S) * 1000),
        "delivery_timeout_ms": _DELIVERY_MS,
        "reconnect_backoff_max_ms": 1000,
        "batch_size": min(BATCH_BYTES_MAX, settings.record_max_bytes),
        "max_request_size": settings.record_max_bytes + ENVELOPE_BYTES,
        "metrics_enabled": False,
        **client_options(settings),
    }


def _acknowledged(future: Any) -> bool:
    return future is not None and bool(future.succeeded())


def _record_fault(future: Any) -> str | None:
    if future is None or not future.failed():
        return None
    return str(future.exception) if isinstance(future.exception, RECORD_FAULTS) else None
