"""`kafka.security` in Faust's words; its producer and consumer both take them."""

from __future__ import annotations

from faust.auth import Credentials, SASLCredentials, SSLCredentials

from telemetry.broker_security import client_options
from telemetry.settings import KafkaSettings


def broker_credentials(settings: KafkaSettings) -> Credentials | None:
    """None where brokers are reached without TLS and login. Raises SettingsError."""
    options = client_options(settings)
    if "sasl_mechanism" in options:
        return SASLCredentials(
            username=options["sasl_plain_username"],
            password=options["sasl_plain_password"],
            ssl_context=options.get("ssl_context"),
            mechanism=options["sasl_mechanism"],
        )
    if "ssl_context" in options:
        return SSLCredentials(context=options["ssl_context"])
    return None
