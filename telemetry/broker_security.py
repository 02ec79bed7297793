"""How a client proves itself to the broker, and the broker to it: settings to library options.

kafka-python and aiokafka name these options alike. The only place where the password is read; it is
in no text, log line or representation that leaves here.
"""

from __future__ import annotations

import os
import ssl
from functools import lru_cache
from typing import Any

from telemetry.errors import SettingsError
from telemetry.settings import KafkaSettings, SecuritySettings

PASSWORD_MAX_BYTES = 4_096
KEY = "kafka.security"
_READABLE_BY_OTHERS = 0o004

Stamp = tuple[int, int]  # of a file: when it changed, its size


class HiddenText(str):
    """A text whose representation does not show it: libraries log their options."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'(hidden)'"


def client_options(settings: KafkaSettings) -> dict[str, Any]:
    """Options of every Kafka client; {} where brokers are reached without TLS and login.

    Raises SettingsError where a file that the settings name cannot be used. Files are looked at
    again each time: a renewed certificate or password holds from the next connection on.
    """
    security = settings.security
    if security.protocol == "plaintext":
        return {}
    options: dict[str, Any] = {"security_protocol": security.protocol.upper()}
    if uses_tls(security):
        options["ssl_context"] = ssl_context(security)
    if uses_login(security):
        options["sasl_mechanism"] = security.mechanism.upper()
        options["sasl_plain_username"] = security.username
        options["sasl_plain_password"] = password_of(security)
    return options


def uses_tls(security: SecuritySettings) -> bool:
    """Whether the connection is encrypted."""
    return security.protocol in ("ssl", "sasl_ssl")


def uses_login(security: SecuritySettings) -> bool:
    """Whether the client names a user."""
    return security.protocol in ("sasl_plaintext", "sasl_ssl")


def ssl_context(security: SecuritySettings) -> ssl.SSLContext:
    """TLS 1.2 or newer, the broker's certificate and host name verified. Raises SettingsError.

    One for all connections of the process, until one of its files changes.
    """
    files = security.ca_file, security.certificate_file, security.key_file
    names = "ca_file", "certificate_file", "key_file"
    stamps = tuple(_stamp(name, file) for name, file in zip(names, files, strict=True))
    return _context(*files, stamps)


def password_of(security: SecuritySettings) -> HiddenText:
    """The password, from its file where the settings name one. Raises SettingsError."""
    if not security.password_file:
        return HiddenText(security.password)
    where = f"{KEY}.password_file: {security.password_file}"
    try:
        with open(security.password_file, "rb") as file:
            data = file.read(PASSWORD_MAX_BYTES + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise SettingsError(f"{where}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise SettingsError(f"{where}: no UTF-8 text") from None  # the cause holds the bytes
    password = text.removesuffix("\n").removesuffix("\r")
    if not password or "\n" in password or len(data) > PASSWORD_MAX_BYTES:
        raise SettingsError(f"{where}: expected one line of text, the password")
    return HiddenText(password)


def readable_by_others(file: str) -> bool:
    """Whether every user of this machine may read it; False where it is not there."""
    try:
        return bool(os.stat(file).st_mode & _READABLE_BY_OTHERS)
    except OSError:
        return False


@lru_cache(maxsize=4)
def _context(
    ca_file: str, certificate_file: str, key_file: str, _stamps: tuple[Stamp, ...]
) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"{KEY}.ca_file: {ca_file}: no certificates in PEM form") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = True
    context.verify_mode = ssl.CERT_REQUIRED
    if certificate_file:
        try:
            # Without a password of its own OpenSSL would ask the terminal for one.
            context.load_cert_chain(certificate_file, key_file or None, password="")
        except (OSError, ssl.SSLError) as error:
            where = f"{KEY}.certificate_file: {certificate_file}"
            raise SettingsError(
                f"{where}: no certificate with its unencrypted key in PEM form"
            ) from error
    return context


def _stamp(name: str, file: str) -> Stamp:
    if not file:
        return (0, 0)
    try:
        found = os.stat(file)
        with open(file, "rb"):
            pass
    except OSError as error:
        raise SettingsError(f"{KEY}.{name}: {file}: {error.strerror}") from error
    return (found.st_mtime_ns, found.st_size)
