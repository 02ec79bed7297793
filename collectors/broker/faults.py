"""kafka-python's errors in one line for the operator: who is not accepted, or may not do what."""

from __future__ import annotations

import kafka.errors

from telemetry.broker_security import KEY
from telemetry.broker_words import login_fault, right_fault
from telemetry.settings import KafkaSettings

_REFUSALS = (
    kafka.errors.AuthorizationError,
    kafka.errors.SaslAuthenticationFailedError,
    kafka.errors.UnsupportedSaslMechanismError,
)
# Who may write to no topic at all is refused so; the producer wraps it into an error of no kind.
_MAY_NOT_WRITE = "ClusterAuthorizationFailedError"
_SILENCE = (kafka.errors.KafkaTimeoutError, kafka.errors.KafkaConnectionError)


def is_refusal(error: Exception) -> bool:
    """Whether the broker does not accept us: trying again as we are helps only if it changes."""
    return isinstance(error, _REFUSALS) or _MAY_NOT_WRITE in str(error)


def fault_text(settings: KafkaSettings, error: Exception) -> str:
    """One line; the broker's own words where they say more than ours."""
    if isinstance(error, kafka.errors.AuthorizationError):
        return right_fault(settings, type(error).__name__, error.args)
    if _MAY_NOT_WRITE in str(error):
        return right_fault(settings, _MAY_NOT_WRITE, ())
    if isinstance(error, kafka.errors.SaslAuthenticationFailedError):
        return login_fault(settings)
    brokers = ", ".join(settings.brokers)
    if isinstance(error, kafka.errors.UnsupportedSaslMechanismError):
        return f"{brokers}: {KEY}.mechanism: the broker does not take {settings.security.mechanism}"
    if isinstance(error, _SILENCE):
        return f"no broker answers at {brokers}; check it or give --broker"
    return f"the broker at {brokers} refused: {error}"
