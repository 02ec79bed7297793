"""Before the worker begins: does a broker answer, accept us, and let us see what we need?

A member of a group that is refused, or a client with a wrong password, says so again and again.
"""

from __future__ import annotations

import asyncio

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.conn import create_conn
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from streams.live.faults import fault_text
from telemetry.broker_probe import await_broker
from telemetry.broker_security import client_options
from telemetry.broker_words import right_fault
from telemetry.errors import SourceUnavailable
from telemetry.settings import KafkaSettings
from telemetry.topics import FINDINGS, INCIDENTS, INVENTORY, REJECTED, STATE, TELEMETRY

CLIENT_ID = "nodewarden-check"
NEEDED = (TELEMETRY, INVENTORY, FINDINGS, INCIDENTS, STATE, REJECTED)


async def check_reachable(settings: KafkaSettings, group: str) -> None:
    """Raises SourceUnavailable, one line, where no broker answers or accepts us, or topics are not
    there or not for us; SettingsError for a file of `kafka.security`.
    """
    await asyncio.to_thread(await_broker, settings, settings.request_timeout_s)
    try:
        await _log_in(settings)
        await _look(settings, group)
    except (KafkaError, OSError, TimeoutError) as error:
        raise SourceUnavailable(fault_text(settings, error)) from error


async def _log_in(settings: KafkaSettings) -> None:
    """One connection, for its error: a client says only that it cannot connect."""
    faults: list[Exception] = []
    for broker in settings.brokers:
        host, _, port = broker.rpartition(":")
        try:
            connection = await create_conn(
                host.strip("[]"), int(port), client_id=CLIENT_ID,
                request_timeout_ms=_timeout_ms(settings), **client_options(settings),
            )  # fmt: skip
        except (KafkaError, OSError, TimeoutError) as error:
            faults.append(error)
        else:
            connection.close()
            return
    raise faults[-1]


async def _look(settings: KafkaSettings, group: str) -> None:
    """The topics and the group, as we may see them."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=list(settings.brokers), client_id=CLIENT_ID,
        request_timeout_ms=_timeout_ms(settings), **client_options(settings),
    )  # fmt: skip
    await admin.start()
    try:
        described = await admin.describe_topics(list(NEEDED))
        found = {one["topic"]: one["error_code"] for one in described}
        hidden = {name for name in NEEDED if found.get(name) == TopicAuthorizationFailedError.errno}
        if hidden:
            raise TopicAuthorizationFailedError(hidden)
        for name in NEEDED:
            if found.get(name) == UnknownTopicOrPartitionError.errno:
                brokers = ", ".join(settings.brokers)
                raise SourceUnavailable(
                    f"{brokers}: no topic {name}; make it: nodewarden topics create"
                )
        await _ask_group(admin, group)
    except GroupAuthorizationFailedError as error:
        said = right_fault(settings, type(error).__name__, (group,))
        raise SourceUnavailable(said) from error
    finally:
        await admin.close()


async def _ask_group(admin: AIOKafkaAdminClient, group: str) -> None:
    try:
        await admin.list_consumer_group_offsets(group)
    except GroupAuthorizationFailedError:
        raise
    except KafkaError:
        return  # a broker that never had a group has nobody yet who keeps them


def _timeout_ms(settings: KafkaSettings) -> int:
    return round(settings.request_timeout_s * 1000.0)
