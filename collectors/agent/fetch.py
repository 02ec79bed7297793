"""One HTTP GET with a deadline for the whole answer and a bound on its size.

The standard library's time-outs hold for each read: an endpoint that sends a byte a second would
keep a reader for hours. Here every read gets only what is left of the time.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

from telemetry.errors import SettingsError, SourceUnavailable
from telemetry.ports import Clock

PIECE_BYTES = 65_536


class Endpoint:
    """A URL that is asked again and again."""

    def __init__(self, url: str, timeout_s: float, bytes_max: int, clock: Clock) -> None:
        """Raises SettingsError where `url` is none."""
        self.url = url
        self._parts = _parts(url)
        self._timeout_s, self._bytes_max, self._clock = timeout_s, bytes_max, clock
        self._tls = ssl.create_default_context() if self._parts.scheme == "https" else None

    def pieces(self) -> Iterator[bytes]:
        """The answer's body as it comes; of use only when the last piece was handed out.

        Raises SourceUnavailable where there is none, it is too long, or the time is over.
        """
        until_s = self._clock.monotonic_s() + self._timeout_s
        try:
            with self._connect() as sock:
                yield from self._body(Timed(sock, until_s, self._clock))
        except TimeoutError as error:
            why = f"no whole answer within {self._timeout_s:g} s"
            raise SourceUnavailable(f"{self.url}: {why}") from error
        except (OSError, http.client.HTTPException) as error:
            raise SourceUnavailable(f"{self.url}: {error or type(error).__name__}") from error

    def _connect(self) -> socket.socket:
        default_port = 443 if self._tls is not None else 80
        host = self._parts.hostname or ""
        sock = socket.create_connection((host, self._parts.port or default_port), self._timeout_s)
        if self._tls is None:
            return sock
        try:
            return self._tls.wrap_socket(sock, server_hostname=host)
        except (OSError, ValueError):
            sock.close()
            raise

    def _body(self, timed: Timed) -> Iterator[bytes]:
        path = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
        # HTTP/1.0: no chunks, and the server closes when it is done.
        timed.sock.sendall(
            f"GET {path} HTTP/1.0\r\nHost: {self._parts.netloc}\r\nUser-Agent: nodewarden\r\n"
            "Accept: text/plain\r\nConnection: close\r\n\r\n".encode("ascii")
        )
        response = http.client.HTTPResponse(timed, method="GET")  # type: ignore[arg-type]
        with response:
            response.begin()
            if response.status != http.client.OK:
                raise SourceUnavailable(f"{self.url}: answers {response.status}")
            size = 0
            while piece := response.read1(PIECE_BYTES):
                size += len(piece)
                if size > self._bytes_max:
                    raise SourceUnavailable(
                        f"{self.url}: answers more than {self._bytes_max} bytes"
                    )
                yield piece
            if response.length:  # it promised more
                raise SourceUnavailable(f"{self.url}: the answer breaks off")


class Timed:
    """What `HTTPResponse` reads from in place of the socket."""

    def __init__(self, sock: socket.socket, until_s: float, clock: Clock) -> None:
        self.sock, self._until_s, self._clock = sock, until_s, clock

    def makefile(self, mode: str) -> io.BufferedReader:
        """The socket as a file whose reads end at the deadline."""
        return io.BufferedReader(_TimedRaw(self.sock, self._until_s, self._clock), PIECE_BYTES)


class _TimedRaw(io.RawIOBase):
    def __init__(self, sock: socket.socket, until_s: float, clock: Clock) -> None:
        self._sock, self._until_s, self._clock = sock, until_s, clock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        left_s = self._until_s - self._clock.monotonic_s()
        if left_s <= 0.0:
            raise TimeoutError
        self._sock.settimeout(left_s)
        return self._sock.recv_into(buffer)


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port_is_one = parts.port is None or parts.port > 0
    except ValueError:
        port_is_one = False
    usable = url.isascii() and url.isprintable() and " " not in url
    if not usable or not port_is_one or parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(
            f"collect.exporters: {url!r} is no URL; as http://127.0.0.1:9400/metrics"
        )
    return parts
