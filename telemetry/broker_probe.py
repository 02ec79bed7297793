"""Why a broker cannot be reached, found out before a client library tries it again and again.

One connection, the TLS handshake, and Kafka's question for login mechanisms: what stands in the way
of every client, its credentials and rights aside, shows by then.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time

from telemetry.broker_security import KEY, ssl_context, uses_login, uses_tls
from telemetry.errors import SourceUnavailable
from telemetry.settings import KafkaSettings, SecuritySettings

PAUSE_S = 0.2
# With TLS 1.3 a broker refuses our certificate after the handshake and ends the connection: what we
# have sent by then may keep its words from us. The second time we listen before we say anything.
LISTEN_S = 1.0
ANSWER_MAX_BYTES = 65_536
_HANDSHAKE = 17  # SaslHandshake; version 1 is of Kafka 1.0 and still there in Kafka 4
_NO_LOGIN_HERE = 34  # ILLEGAL_SASL_STATE: the listener knows no login
_TLS_ALERT = b"\x15\x03"


class BrokerRefuses(SourceUnavailable):
    """A broker answers, and not so that trying again as the settings are would help."""


class _Away(Exception):
    """Nothing of use answers there; later it may. The text says more, or nothing."""


def await_broker(settings: KafkaSettings, timeout_s: float) -> None:
    """Return when one of the brokers takes connections as the settings make them.

    Raises SourceUnavailable when the time is over, BrokerRefuses as soon as all that answer refuse,
    SettingsError for a file that cannot be used; each text is one line.
    """
    security = settings.security
    context = ssl_context(security) if uses_tls(security) else None
    end_s = time.monotonic() + timeout_s
    share_s = max(timeout_s / max(len(settings.brokers), 1), min(timeout_s, 1.0))
    listen_s = 0.0
    while True:
        refused: BrokerRefuses | None = None
        hint = ""
        for broker in settings.brokers:
            left_s = min(max(end_s - time.monotonic(), 0.1), share_s)
            try:
                _try(broker, security, context, left_s, listen_s)
            except _Away as error:
                hint = str(error) or hint
                listen_s = LISTEN_S if str(error) else listen_s
            except BrokerRefuses as error:
                refused = error
            else:
                return
        if refused is not None:
            raise refused
        if time.monotonic() >= end_s:
            where = ", ".join(settings.brokers)
            hint = hint or "; check it or give --broker"
            raise SourceUnavailable(f"no broker answers at {where}{hint}")
        time.sleep(min(PAUSE_S, timeout_s))


def _try(
    broker: str, security: SecuritySettings, context: ssl.SSLContext | None, timeout_s: float,
    listen_s: float,
) -> None:  # fmt: skip
    host, _, port = broker.rpartition(":")
    host = host.strip("[]")
    try:
        plain = socket.create_connection((host, int(port)), timeout_s)
    except (OSError, ValueError, OverflowError) as error:
        raise _Away from error
    with plain:
        plain.settimeout(timeout_s)
        if context is None:
            _ask(plain, broker, security)
            return
        try:
            with context.wrap_socket(plain, server_hostname=host) as secured:
                _listen(secured, min(listen_s, timeout_s))
                _ask(secured, broker, security)
        except ssl.SSLError as error:
            raise BrokerRefuses(_tls_fault(broker, error)) from error
        except TimeoutError as error:
            raise _Away from error
        except OSError as error:
            raise BrokerRefuses(_no_tls(broker)) from error


def _listen(connection: ssl.SSLSocket, listen_s: float) -> None:
    """Raises ssl.SSLError where the broker says why it ends the connection."""
    if listen_s <= 0.0:
        return
    timeout_s = connection.gettimeout()
    connection.settimeout(listen_s)
    with contextlib.suppress(TimeoutError):  # it waits for our question, as it should
        connection.recv(1)
    connection.settimeout(timeout_s)


def _ask(connection: socket.socket, broker: str, security: SecuritySettings) -> None:
    """Ask which logins the listener takes."""
    mechanism = security.mechanism.upper() if uses_login(security) else "NONE"
    name = mechanism.encode()
    body = struct.pack(">hhihh", _HANDSHAKE, 1, 1, -1, len(name)) + name
    try:
        connection.sendall(struct.pack(">i", len(body)) + body)
        answer = _answer(connection)
    except TimeoutError as error:
        raise _Away from error
    except ssl.SSLError:
        raise
    except OSError:
        answer = b""
    wanted = "sasl_ssl" if uses_login(security) else "ssl"
    if answer.startswith(_TLS_ALERT):
        raise BrokerRefuses(f"{broker}: the broker wants TLS; set {KEY}.protocol to {wanted}")
    if not answer:
        # A broker that starts or ends does so, a proxy without one, and one that wants TLS.
        hint = "" if uses_tls(security) else f", or set {KEY}.protocol to {wanted}"
        raise _Away(f": what listens there breaks off; check it{hint}")
    _judge(answer, broker, security, mechanism)


def _judge(answer: bytes, broker: str, security: SecuritySettings, mechanism: str) -> None:
    """`answer`: correlation id, error code, and an array of strings."""
    code, known = _parsed(answer)
    if uses_login(security):
        if code == _NO_LOGIN_HERE:
            wanted = "ssl" if uses_tls(security) else "plaintext"
            raise BrokerRefuses(
                f"{broker}: the broker takes no login there; set {KEY}.protocol to {wanted}"
            )
        if mechanism not in known:
            offered = ", ".join(known).lower() or "none"
            raise BrokerRefuses(
                f"{broker}: {KEY}.mechanism: the broker takes {offered}, not {security.mechanism}"
            )
    elif code != _NO_LOGIN_HERE and known:
        wanted = "sasl_ssl" if uses_tls(security) else "sasl_plaintext"
        raise BrokerRefuses(
            f"{broker}: the broker wants a login ({', '.join(known).lower()}); "
            f"set {KEY}.protocol to {wanted}"
        )


def _parsed(answer: bytes) -> tuple[int, list[str]]:
    """Error code and mechanisms; what is cut or of another kind names none."""
    try:
        code, count = struct.unpack_from(">hi", answer, 4)
        names, at = [], 10
        for _ in range(min(count, 16)):
            (size,) = struct.unpack_from(">h", answer, at)
            names.append(answer[at + 2 : at + 2 + size].decode("ascii", "replace"))
            at += 2 + size
    except struct.error:
        return 0, []
    return code, [name for name in names if name.isprintable()]


def _answer(connection: socket.socket) -> bytes:
    """One answer without its length; b"" where the connection ends, an alert as it is."""
    head = _read(connection, 4)
    if len(head) < 4 or head.startswith(_TLS_ALERT):
        return head if head.startswith(_TLS_ALERT) else b""
    (size,) = struct.unpack(">i", head)
    if not 0 < size <= ANSWER_MAX_BYTES:
        raise OSError("no Kafka broker")
    return _read(connection, size)


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            break
        data += part
    return data


def _tls_fault(broker: str, error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.rstrip(".")
        return f"{broker}: its certificate is not trusted: {said}; check {KEY}.ca_file"
    reason = (error.reason or "").lower()
    if "alert" in reason and "certificate" in reason:
        said = reason.replace("_", " ")
        return f"{broker}: the broker does not take our certificate ({said}); " \
               f"check {KEY}.certificate_file"  # fmt: skip
    if reason in ("wrong_version_number", "unexpected_eof_while_reading"):
        return _no_tls(broker)
    return f"{broker}: no TLS connection: {reason.replace('_', ' ') or 'it broke off'}"


def _no_tls(broker: str) -> str:
    return f"{broker}: the broker does not speak TLS there; check {KEY}.protocol and the port"
