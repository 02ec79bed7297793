"""A transactional producer with a fixed name: whoever starts last fences all others.

One failed call and it is over for good. kafka-python would otherwise take a new epoch for a fenced
producer that asks again (KIP-360), and the zombie would be back; so nothing is ever tried again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import kafka.errors
from kafka import KafkaProducer

from collectors.broker.faults import fault_text, is_refusal
from collectors.broker.login import await_acceptance
from collectors.link import Message
from telemetry.broker_probe import BrokerRefuses
from telemetry.broker_security import client_options
from telemetry.broker_words import right_fault
from telemetry.errors import Fenced, NotAccepted, PublishError, SourceUnavailable
from telemetry.settings import KafkaSettings

END_S = 2.0
_FENCED = (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError)


class Transactions:
    """Writes groups of records, each whole or not at all. Not for several threads.

    Raises Fenced where another instance has taken the name since; PublishError for everything
    else, NotAccepted where the broker refuses us. After any of them only `close` is left.
    """

    def __init__(self, settings: KafkaSettings, name: str, *, timeout_s: float = 30.0) -> None:
        """Take the name: returns when no other instance can commit any more.

        timeout_s  a transaction that is open for so long is aborted by the broker
        """
        self._settings, self._name = settings, name
        self._wait_s = settings.request_timeout_s
        try:
            await_acceptance(settings, self._wait_s)
        except BrokerRefuses as error:
            raise NotAccepted(str(error)) from error
        except SourceUnavailable as error:
            raise PublishError(str(error)) from error
        self._over = False
        try:
            self._producer: Any = KafkaProducer(**_options(settings, name, timeout_s))
        except (kafka.errors.KafkaError, ValueError) as error:
            raise self._error(error) from error
        try:
            self._producer.init_transactions()
        except kafka.errors.KafkaError as error:
            self.close()
            raise self._error(error) from error

    def commit(self, messages: Sequence[Message]) -> None:
        """Return when all of them are in the log; else none of them ever will be, or all are and
        the error only says that nobody told us.
        """
        if self._over:
            raise PublishError("the transactional producer ended with an error before")
        self._over = True  # unless all of it succeeds
        try:
            self._producer.begin_transaction()
            futures = [
                self._producer.send(
                    one.topic, one.value, key=one.key, partition=one.partition,
                    headers=list(one.headers),
                )
                for one in messages
            ]  # fmt: skip
            for future in futures:
                future.get(self._wait_s)
            self._end_transaction()
        except (kafka.errors.KafkaError, ValueError) as error:
            raise self._error(error) from error
        self._over = False

    def _end_transaction(self) -> None:
        """Its `commit_transaction` waits for ever where no broker answers."""
        result = self._producer._transaction_manager.begin_commit()
        self._producer._sender.wakeup()
        if not result.wait(timeout_ms=self._wait_s * 1000):
            raise kafka.errors.KafkaTimeoutError("a commit was not acknowledged")

    def close(self) -> None:
        """Leave without waiting. What was not committed is aborted by the next instance."""
        self._over = True
        self._producer._sender.force_close()
        self._producer._sender.join(END_S)
        with contextlib.suppress(kafka.errors.KafkaError):
            self._producer.close(timeout=END_S)

    def _error(self, error: Exception) -> PublishError:
        if isinstance(error, _FENCED):
            return Fenced("another instance has taken over; this one ends")
        said = self._fault(error)
        return NotAccepted(said) if is_refusal(error) else PublishError(said)

    def _fault(self, error: Exception) -> str:
        """The library's error does not say which id we may not use."""
        if isinstance(error, kafka.errors.TransactionalIdAuthorizationFailedError):
            return right_fault(self._settings, type(error).__name__, (self._name,))
        return fault_text(self._settings, error)


def _options(settings: KafkaSettings, name: str, timeout_s: float) -> dict[str, Any]:
    wait_ms = int(settings.request_timeout_s * 1000)
    return {
        "bootstrap_servers": list(settings.brokers),
        "client_id": name,
        "transactional_id": name,
        "transaction_timeout_ms": int(timeout_s * 1000),
        "acks": "all",
        "enable_idempotence": True,
        "allow_auto_create_topics": False,
        "bootstrap_timeout_ms": wait_ms,
        "request_timeout_ms": wait_ms,
        "max_block_ms": wait_ms,
        "delivery_timeout_ms": wait_ms + 1000,
        "reconnect_backoff_max_ms": 1000,
        "max_request_size": settings.record_max_bytes + 65_536,
        "metrics_enabled": False,
        **client_options(settings),
    }
