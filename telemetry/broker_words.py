"""What every client says when the broker does not accept it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from telemetry.broker_security import KEY, uses_login
from telemetry.settings import KafkaSettings, SecuritySettings

ACLS = "deploy/kafka/acls.md"
_RESOURCES = {
    "TopicAuthorizationFailedError": "topic",
    "GroupAuthorizationFailedError": "consumer group",
    "TransactionalIdAuthorizationFailedError": "transactional id",
    "ClusterAuthorizationFailedError": "the cluster, nor to write to any topic",
}


def login_fault(settings: KafkaSettings) -> str:
    """A wrong user name or password: brokers do not say which."""
    security, brokers = settings.security, ", ".join(settings.brokers)
    source = "password_file" if security.password_file else "password"
    return (
        f"{brokers}: the broker does not accept the login of {security.username!r}; "
        f"check {KEY}.username and {KEY}.{source}"
    )


def right_fault(settings: KafkaSettings, error: str, named: Sequence[object]) -> str:
    """A right that is missing.

    error  the name of the library's error
    named  what it holds: a topic, a group, or a set of them
    """
    what = f"{_RESOURCES.get(error, 'this')} {', '.join(sorted(_names(named)))}".strip()
    return f"the broker gives {_client(settings.security)} no right to {what}; see {ACLS}"


def _client(security: SecuritySettings) -> str:
    """Whom the broker takes us for, as far as the settings say it."""
    if uses_login(security):
        return repr(security.username)
    if security.certificate_file:
        return f"the owner of {security.certificate_file}"
    return "this client"


def _names(named: Iterable[object]) -> set[str]:
    """Names that begin like ours; the rest of such an error is a sentence."""
    found: set[str] = set()
    for one in named:
        if isinstance(one, str) and " " not in one:
            found.add(one)
        elif isinstance(one, set | frozenset | list | tuple):
            found |= _names(one)
    return found
