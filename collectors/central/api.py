"""Prometheus' HTTP API, as far as a collector asks it: the time, metric names, raw samples.

Samples are asked for with a range selector in an instant query: it answers every sample once, under
the scrape's own time stamp. `query_range` would answer a value per step, made up from the sample
before it: repeats where the step is shorter than the scrape interval, gaps where it is longer.
Thanos, Mimir and VictoriaMetrics answer the same way.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec

from collectors.agent.fetch import PIECE_BYTES, Timed
from collectors.series import STEP_COLUMNS
from telemetry.errors import SettingsError, SourceUnavailable
from telemetry.metrics import recognise
from telemetry.ports import Clock
from telemetry.settings import PrometheusSettings

NAMES_MAX = 1_000  # of ours; the catalogue has fewer
FORM = "application/x-www-form-urlencoded"
_ERROR_BYTES = 400
_TOO_MUCH = ("too many samples", "exceeded", "limit", "too large", "would load")
_TRAINING = "training"


class TooMuch(SourceUnavailable):
    """The answer is larger than what either side allows: ask for less."""


class NotPrometheus(SourceUnavailable):
    """Something answers there that has no such API, or does not let us in."""


class _Answer(msgspec.Struct):
    status: str = ""
    error: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")


class _Scalar(msgspec.Struct):
    result: tuple[float, str]


class PrometheusApi:
    """One server. Every request has a deadline and a bound; nothing is kept between two."""

    def __init__(self, url: str, settings: PrometheusSettings, clock: Clock) -> None:
        """Raises SettingsError where `url` or a file of the settings cannot be used."""
        self.url = url.rstrip("/")
        self._parts = _parts(self.url)
        self._settings, self._clock = settings, clock
        self._match = f",{settings.match}" if settings.match else ""
        self._tls = _tls(settings.ca_file) if self._parts.scheme == "https" else None
        self._headers = _checked(settings.headers)
        _token(settings.token_file)  # a wrong one is said at the start

    def time_s(self) -> float:
        """The server's clock, Unix seconds: scrapes are stamped with it, not with ours."""
        answer = self._asked("/api/v1/query", {"query": "time()"})
        try:
            return float(msgspec.json.decode(answer.data, type=_Scalar).result[1])
        except (msgspec.DecodeError, ValueError) as error:
            raise NotPrometheus(f"{self.url}: answers no time; {_REMEDY}") from error

    def families(self, start_s: float, end_s: float) -> dict[str, list[str]]:
        """Source ("gpu", "nic", "training", ...) -> the metric names of it that we know, sorted."""
        within = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}"}
        answer = self._asked("/api/v1/label/__name__/values", within, get=True)
        try:
            names = msgspec.json.decode(answer.data, type=list[str])
        except msgspec.DecodeError as error:
            raise SourceUnavailable(f"{self.url}: no list of names: {error}") from error
        found: dict[str, list[str]] = {}
        known = 0
        for name in sorted(names):
            source = _source(name)
            if source and known < NAMES_MAX:
                known += 1
                found.setdefault(source, []).append(name)
        return found

    def samples(self, names: Collection[str], start_ms: int, end_ms: int) -> bytes:
        """The answer that holds all samples of these metrics in (start, end], as JSON.

        Older servers also answer what stands at `start` exactly. Raises TooMuch.
        """
        selector = f'{{__name__=~"{"|".join(names)}"{self._match}}}'
        asked = {
            "query": f"{selector}[{end_ms - start_ms}ms]",
            "time": f"{end_ms / 1_000:.3f}",
            "timeout": f"{self._settings.timeout_s:.0f}s",
            "partial_response": "false",  # Thanos: an error is better than a hole that nobody sees
        }
        status, body = self._request("/api/v1/query", asked)
        if status != http.client.OK:
            self._answer(status, body)
        return body

    def _asked(self, path: str, asked: Mapping[str, str], *, get: bool = False) -> _Answer:
        return self._answer(*self._request(path, asked, get=get))

    def _answer(self, status: int, body: bytes) -> _Answer:
        """Raises NotPrometheus, TooMuch, SourceUnavailable where it is none."""
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            answer = _Answer()
        if status == http.client.OK and answer.status == "success":
            return answer
        told = answer.error[:_ERROR_BYTES]
        if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            raise NotPrometheus(f"{self.url}: answers {status}; set prometheus.token_file")
        if told and any(word in told.lower() for word in _TOO_MUCH):
            raise TooMuch(f"{self.url}: {told}")
        if not answer.status and status < http.client.INTERNAL_SERVER_ERROR:
            raise NotPrometheus(f"{self.url}: answers {status}, no Prometheus; {_REMEDY}")
        raise SourceUnavailable(f"{self.url}: answers {status}{f': {told}' if told else ''}")

    def _request(
        self, path: str, asked: Mapping[str, str], *, get: bool = False
    ) -> tuple[int, bytes]:
        until_s = self._clock.monotonic_s() + self._settings.timeout_s
        try:
            with self._connect() as sock:
                sock.sendall(self._head(path, urlencode(asked, quote_via=quote), get=get))
                return self._body(Timed(sock, until_s, self._clock))
        except TimeoutError as error:
            why = f"no whole answer within {self._settings.timeout_s:g} s"
            raise SourceUnavailable(f"{self.url}: {why}") from error
        except (OSError, http.client.HTTPException) as error:
            raise SourceUnavailable(f"{self.url}: {error or type(error).__name__}") from error

    def _head(self, path: str, query: str, *, get: bool) -> bytes:
        base = self._parts.path.rstrip("/") + path
        headers = {
            "Host": self._parts.netloc.rpartition("@")[2], "User-Agent": "nodewarden",
            "Accept": "application/json", "Connection": "close", **self._headers,
        }  # fmt: skip
        token = _token(self._settings.token_file)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if not get:
            headers |= {"Content-Type": FORM, "Content-Length": str(len(query))}
        line = f"GET {base}?{query}" if get else f"POST {base}"
        said = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{line} HTTP/1.1\r\n{said}\r\n{'' if get else query}".encode("latin-1")

    def _connect(self) -> socket.socket:
        host = self._parts.hostname or ""
        port = self._parts.port or (443 if self._tls is not None else 80)
        sock = socket.create_connection((host, port), self._settings.timeout_s)
        if self._tls is None:
            return sock
        try:
            return self._tls.wrap_socket(sock, server_hostname=host)
        except (OSError, ValueError):
            sock.close()
            raise

    def _body(self, timed: Timed) -> tuple[int, bytes]:
        response = http.client.HTTPResponse(timed)  # type: ignore[arg-type]
        body = bytearray()
        with response:
            response.begin()
            while piece := response.read1(PIECE_BYTES):
                body += piece
                if len(body) > self._settings.answer_max_bytes:
                    most = self._settings.answer_max_bytes
                    raise TooMuch(f"{self.url}: answers more than {most} bytes")
            if response.length:
                raise SourceUnavailable(f"{self.url}: the answer breaks off")
            return response.status, bytes(body)


_REMEDY = "--prometheus takes its base address, as http://prometheus:9090"


def _source(name: str) -> str:
    """The source whose frames the metric stands in; "" where it is not ours."""
    metric = recognise(name)
    if metric is not None:
        return metric.source
    return _TRAINING if name in STEP_COLUMNS else ""


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url or parts.query:
        raise SettingsError(f"--prometheus {url!r} is no address; {_REMEDY}")
    if parts.username is not None:
        raise SettingsError("--prometheus: no password in the address; set prometheus.token_file")
    return parts


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        usable = (name + value).isascii() and (name + value).isprintable()
        if not usable or not name or set(name) & set(": ,;"):
            raise SettingsError(f"prometheus.headers: {name!r} = {value!r} is no HTTP header")
    return dict(headers)


def _tls(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise SettingsError(f"prometheus.ca_file: {ca_file}: {error}") from error


def _token(file: str) -> str:
    """Read anew for each request: Kubernetes renews such files. Raises SettingsError."""
    if not file:
        return ""
    try:
        token = Path(file).read_text("ascii").strip()
    except (OSError, ValueError) as error:
        raise SettingsError(f"prometheus.token_file: {file}: {error}") from error
    if not token or not token.isprintable():
        raise SettingsError(f"prometheus.token_file: {file} holds no token")
    return token
