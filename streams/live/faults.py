"""aiokafka's errors in one line for the operator: who is not accepted, or may not do what."""

from __future__ import annotations

from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
)

from telemetry.broker_words import login_fault, right_fault
from telemetry.settings import KafkaSettings

_RIGHTS = (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
)


def is_refusal(error: BaseException | None) -> bool:
    """Whether the broker does not accept who we are or what we want to do."""
    return isinstance(error, (*_RIGHTS, SaslAuthenticationFailed))


def fault_text(settings: KafkaSettings, error: BaseException) -> str:
    """One line."""
    if isinstance(error, SaslAuthenticationFailed):
        return login_fault(settings)
    if isinstance(error, _RIGHTS):
        return right_fault(settings, type(error).__name__, error.args)
    return f"no Kafka broker answers at {', '.join(settings.brokers)}: {error}"
