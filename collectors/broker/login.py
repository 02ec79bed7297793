"""One login, for its error: kafka-python's clients try a wrong password until their time is over.

Uses the parts that those clients are made of, and not their public interface;
tests/kafka/test_security.py fails when they change.
"""

from __future__ import annotations

import kafka.errors
from kafka.net import KafkaConnectionManager, NetworkSelector

from collectors.broker.faults import fault_text, is_refusal
from telemetry.broker_probe import BrokerRefuses, await_broker
from telemetry.broker_security import client_options, uses_login
from telemetry.broker_words import login_fault
from telemetry.settings import KafkaSettings

TRIES = 5


def await_acceptance(settings: KafkaSettings, timeout_s: float) -> None:
    """Return when a broker takes connections and accepts our login.

    Raises SourceUnavailable when the time is over, BrokerRefuses as soon as we are refused,
    SettingsError for a file that cannot be used.
    """
    await_broker(settings, timeout_s)
    if not uses_login(settings.security):
        return
    for _ in range(TRIES):
        try:
            _log_in(settings, timeout_s)
        except kafka.errors.KafkaConnectionError:
            # kafka-python drops an answer that comes together with the end of the connection, and
            # a broker ends it as soon as it has refused: see whether it always does.
            continue
        except kafka.errors.KafkaError as error:
            if not is_refusal(error):
                return  # the client finds out
            raise BrokerRefuses(fault_text(settings, error)) from error
        return
    await_broker(settings, timeout_s)
    raise BrokerRefuses(login_fault(settings))


def _log_in(settings: KafkaSettings, timeout_s: float) -> None:
    """To the first broker that answers."""
    network = NetworkSelector()
    manager = KafkaConnectionManager(
        network, bootstrap_servers=list(settings.brokers), client_id="nodewarden-login",
        **client_options(settings),
    )  # fmt: skip

    async def connect(node: str) -> None:
        await manager.get_connection(
            node, timeout_ms=timeout_s * 1000.0, pop_on_close=False, refresh_metadata_on_err=False
        )

    fault: kafka.errors.KafkaError | None = None
    try:
        for broker in manager.cluster.bootstrap_brokers():
            try:
                network.run(connect, broker.node_id)
            except kafka.errors.RetriableError as error:
                fault = error
            else:
                return
    finally:
        manager.close()
        network.close()
    if fault is not None:
        raise fault
