"""One POST over urllib3: a time-out, no redirects, nothing tried again, a bound on the answer."""

from __future__ import annotations

import contextlib
import ssl
import time

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationParseError,
    NewConnectionError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)
from urllib3.exceptions import (
    TimeoutError as TimedOut,
)

from actions.notify.calls import Answer, Call, NoAnswer
from actions.notify.settings import ReceiverSettings
from telemetry.errors import SettingsError

ANSWER_MAX_BYTES = 65_536
RETRY_AFTER_MAX_S = 600.0


class UrllibHttp:
    """A receiver's connections. Errors never hold a URL: its path may be the secret."""

    def __init__(self, name: str, settings: ReceiverSettings, table: str = "receivers") -> None:
        """Raises SettingsError, naming `table`, where CA file or proxy cannot be used."""
        self._timeout_s = settings.timeout_s
        timeout = urllib3.Timeout(total=settings.timeout_s)
        try:
            if settings.proxy_url:
                self._pool: urllib3.PoolManager = urllib3.ProxyManager(
                    settings.proxy_url, timeout=timeout, ca_certs=settings.ca_file or None
                )
            else:
                self._pool = urllib3.PoolManager(timeout=timeout, ca_certs=settings.ca_file or None)
            if settings.ca_file:
                with open(settings.ca_file, "rb"):
                    pass
        except OSError as error:
            said = f"{settings.ca_file}: {error.strerror}"
            raise SettingsError(f"{table}.{name}.ca_file: {said}") from error
        except (HTTPError, ValueError) as error:
            raise SettingsError(f"{table}.{name}.proxy_url: no usable proxy") from error

    def post(self, call: Call) -> Answer | NoAnswer:
        """Any status is an answer."""
        until_s = time.monotonic() + self._timeout_s
        try:
            response = self._pool.request(
                "POST", call.url, body=call.body, headers=dict(call.headers), retries=False,
                redirect=False, preload_content=False,
            )  # fmt: skip
            try:
                body, whole = _body(response, until_s)
                return Answer(response.status, body, _retry_after_s(response.headers), whole)
            finally:
                response.close()
        except SSLError as error:
            checked = any(isinstance(one, ssl.SSLCertVerificationError) for one in error.args)
            return NoAnswer("tls", may_be_sent=not checked)
        except (NewConnectionError, ProxyError):  # a kind of time-out to urllib3, none to people
            return NoAnswer("connect")
        except (ConnectTimeoutError, ReadTimeoutError, TimedOut, TimeoutError):
            return NoAnswer("timeout")
        except (HTTPError, LocationParseError, OSError, ValueError):
            return NoAnswer("connect")

    def close(self) -> None:
        """Leave the connections."""
        self._pool.clear()


def _body(response: urllib3.BaseHTTPResponse, until_s: float) -> tuple[bytes, bool]:
    """What came of it in time, and whether that is all: its status stands in any case."""
    body = b""
    with contextlib.suppress(HTTPError, OSError):
        while len(body) <= ANSWER_MAX_BYTES and time.monotonic() < until_s:
            piece = response.read1(ANSWER_MAX_BYTES + 1)
            if not piece:
                return body, True
            body += piece
    return body[:ANSWER_MAX_BYTES], False


def _retry_after_s(headers: urllib3.HTTPHeaderDict) -> float | None:
    with contextlib.suppress(ValueError):
        seconds = float(headers.get("Retry-After", ""))
        if 0.0 <= seconds <= RETRY_AFTER_MAX_S:
            return seconds
    return None
