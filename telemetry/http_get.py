"""HTTP over TCP, TLS or a unix socket: a bound on the answer, a deadline for the whole of it."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from telemetry.errors import ListingIncomplete, SettingsError, SourceUnavailable
from telemetry.ports import Clock

PIECE_BYTES = 262_144


class Answer(NamedTuple):
    """Status and whole body."""

    status: int
    body: bytes


class HttpGet:
    """A server that is asked again and again, over a new connection each time.

    Raises SettingsError where `url` is none or `ca_file` holds no certificates.
    """

    def __init__(
        self, url: str, key: str, timeout_s: float, bytes_max: int, clock: Clock, ca_file: str = "",
        ca_key: str = "inventory.slurmrestd.ca_file",
    ) -> None:  # fmt: skip
        """`key`, `ca_key`: the settings that hold the URL and the file, for the error."""
        self.url = url.rstrip("/")
        self._timeout_s, self._bytes_max, self._clock = timeout_s, bytes_max, clock
        self._socket = url.removeprefix("unix:") if url.startswith("unix:/") else ""
        self._secure, self._host, self._port = False, "localhost", 0
        if not self._socket:
            self._secure, self._host, self._port = _parts(url, key)
        self._tls = _tls(ca_file, ca_key) if self._secure else None

    def get(self, path: str, headers: Mapping[str, str]) -> Answer:
        """Any status is an answer. Raises SourceUnavailable; ListingIncomplete if it breaks off."""
        return self.ask("GET", path, headers, None, self._timeout_s)

    def ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None,
        timeout_s: float,
    ) -> Answer:  # fmt: skip
        """The same with another method, a body and a time-out of its own. Asked once: never again
        by itself, for it may have been heard.
        """
        until_s = self._clock.monotonic_s() + timeout_s
        connection = self._connection(timeout_s)
        try:
            connection.request(method, path, body=body, headers=dict(headers))
            with connection.getresponse() as response:  # holds the socket where the server closes
                return Answer(response.status, self._body(connection, response, until_s))
        except TimeoutError as error:
            why = f"no whole answer within {timeout_s:g} s"
            raise SourceUnavailable(f"{self.url}{path}: {why}") from error
        except http.client.IncompleteRead as error:
            raise ListingIncomplete(f"{self.url}{path}: the answer breaks off") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            said = getattr(error, "strerror", None) or error or type(error).__name__
            raise SourceUnavailable(f"{self.url}{path}: {said}") from error
        finally:
            connection.close()

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._socket:
            return _UnixConnection(self._socket, timeout_s)
        if self._tls is not None:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout_s, context=self._tls
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)

    def _body(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse,
        until_s: float,
    ) -> bytes:  # fmt: skip
        body = bytearray()
        while True:
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0.0:
                raise TimeoutError
            if connection.sock is not None:  # None where the server closes when it is done
                connection.sock.settimeout(left_s)
            piece = response.read1(PIECE_BYTES)
            if not piece:
                break
            body += piece
            if len(body) > self._bytes_max:
                raise SourceUnavailable(f"{self.url}: answers more than {self._bytes_max} bytes")
        if response.length:  # it promised more
            raise http.client.IncompleteRead(bytes(body), response.length)
        return bytes(body)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _parts(url: str, key: str) -> tuple[bool, str, int]:
    """Whether it is https, its host, its port."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        port = 0
    usable = url.isascii() and url.isprintable() and " " not in url and port != 0
    if not usable or parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(
            f"{key}: {url!r} is no URL; write http://HOST:PORT, https://HOST or unix:/PATH"
        )
    secure = parts.scheme == "https"
    return secure, parts.hostname, port or (443 if secure else 80)


def _tls(ca_file: str, key: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        said = error.strerror or error
        raise SettingsError(f"{key}: {ca_file}: {said}") from error
