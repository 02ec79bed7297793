"""What stands in a client's way is found out at once, and in one line."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from telemetry.broker_probe import BrokerRefuses, await_broker
from telemetry.errors import SourceUnavailable
from telemetry.settings import KafkaSettings, SecuritySettings

SHORT_S = 1.0
LONG_S = 30.0  # what is refused for good is refused long before
NO_LOGIN, NO_MECHANISM = 34, 33

Talk = Callable[[socket.socket], None]


@contextmanager
def listener(talk: Talk) -> Iterator[str]:
    """HOST:PORT of a server that talks to each connection once."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection, suppress(OSError):
                    connection.settimeout(LONG_S)
                    talk(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(LONG_S)


def answering(code: int, *mechanisms: str) -> Talk:
    """A broker whose listener takes these logins."""

    def talk(connection: socket.socket) -> None:
        (size,) = struct.unpack(">i", connection.recv(4))
        connection.recv(size)
        names = b"".join(struct.pack(">h", len(m)) + m.encode() for m in mechanisms)
        body = struct.pack(">ihi", 1, code, len(mechanisms)) + names
        connection.sendall(struct.pack(">i", len(body)) + body)
        connection.recv(1)

    return talk


def said_by(talk: Talk, timeout_s: float = LONG_S, **security: str) -> str:
    """What is said of such a broker, without its address."""
    with listener(talk) as address:
        settings = KafkaSettings(brokers=(address,), security=SecuritySettings(**security))  # type: ignore[arg-type]
        with pytest.raises(SourceUnavailable) as caught:
            await_broker(settings, timeout_s)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(address, "BROKER")


LOGIN = {"protocol": "sasl_plaintext", "username": "u", "password": "p"}


def test_a_broker_that_takes_us_as_we_are_is_taken() -> None:
    for talk, security in (
        (answering(NO_LOGIN), {}),
        (answering(0, "SCRAM-SHA-512"), LOGIN),
        (answering(0, "PLAIN", "SCRAM-SHA-512"), LOGIN),
    ):
        with listener(talk) as address:
            await_broker(
                KafkaSettings(brokers=(address,), security=SecuritySettings(**security)),  # type: ignore[arg-type]
                LONG_S,
            )


def test_one_broker_of_several_is_enough() -> None:
    with listener(answering(NO_LOGIN)) as address:
        await_broker(KafkaSettings(brokers=("127.0.0.1:1", "no host", address)), LONG_S)


def test_no_login_where_one_is_wanted_and_the_other_way_round() -> None:
    assert said_by(answering(NO_MECHANISM, "SCRAM-SHA-512")) == (
        "BROKER: the broker wants a login (scram-sha-512); "
        "set kafka.security.protocol to sasl_plaintext"
    )
    assert said_by(answering(NO_LOGIN), LONG_S, **LOGIN) == (
        "BROKER: the broker takes no login there; set kafka.security.protocol to plaintext"
    )
    assert said_by(answering(NO_MECHANISM, "PLAIN", "GSSAPI"), LONG_S, **LOGIN) == (
        "BROKER: kafka.security.mechanism: the broker takes plain, gssapi, not scram-sha-512"
    )


def test_a_broker_that_wants_tls() -> None:
    alert = said_by(lambda connection: connection.sendall(b"\x15\x03\x03\x00\x02\x02\x46"))
    assert alert == "BROKER: the broker wants TLS; set kafka.security.protocol to ssl"
    closes = said_by(lambda connection: None, SHORT_S)
    assert closes == (
        "no broker answers at BROKER: what listens there breaks off; check it, or set "
        "kafka.security.protocol to ssl"
    )


def silent(connection: socket.socket) -> None:
    """Takes what comes until nothing comes."""
    while connection.recv(100):
        pass


def test_silence_and_nonsense_end_in_time() -> None:
    assert said_by(silent, SHORT_S).startswith("no broker answers at BROKER")
    nonsense = said_by(lambda connection: connection.sendall(b"HTTP/1.1 400"), SHORT_S)
    assert nonsense.startswith("no broker answers at BROKER")
    with pytest.raises(SourceUnavailable, match=r"no broker answers at 127\.0\.0\.1:1; check it"):
        await_broker(KafkaSettings(brokers=("127.0.0.1:1",)), 0.1)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of another host, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    file, key = directory / "cert.pem", directory / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=elsewhere",
         "-addext", "subjectAltName=DNS:elsewhere", "-keyout", str(key), "-out", str(file)],
        check=True, capture_output=True,
    )  # fmt: skip
    return file, key


def secured(certificate: tuple[Path, Path], version: ssl.TLSVersion | None = None) -> Talk:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    if version is not None:
        context.maximum_version = version

    def talk(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            answering(NO_LOGIN)(wrapped)

    return talk


def test_a_certificate_of_another_host_or_signer_is_not_trusted(
    certificate: tuple[Path, Path],
) -> None:
    talk = secured(certificate)
    other_host = said_by(talk, protocol="ssl", ca_file=str(certificate[0]))
    assert other_host.startswith("BROKER: its certificate is not trusted: IP address mismatch")
    unknown = said_by(talk, protocol="ssl")
    assert unknown == (
        "BROKER: its certificate is not trusted: self-signed certificate; check "
        "kafka.security.ca_file"
    )


def test_tls_to_a_listener_without_it() -> None:
    said = said_by(lambda connection: connection.sendall(b"HTTP/1.1 400"), protocol="ssl")
    assert said == (
        "BROKER: the broker does not speak TLS there; check kafka.security.protocol and the port"
    )


def test_a_refusal_is_told_from_silence() -> None:
    assert issubclass(BrokerRefuses, SourceUnavailable)
