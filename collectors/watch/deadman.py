"""The dead man's switch: a ping to outside while all is well, and silence otherwise.

Whoever waits for it alarms when it stays away: also when this process is gone, or its network. So
everything that is not known to be well withholds it, and nothing here is ever tried again sooner.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from collectors.watch.metrics import WatchMetrics
from collectors.watch.workers import Fault
from telemetry.errors import SettingsError, SourceUnavailable
from telemetry.http_get import HttpGet
from telemetry.ports import Clock

ANSWER_MAX_BYTES = 65_536
SAID_MAX = 5
WHY_MAX = 200

_log = logging.getLogger("nodewarden.watch")


def split_url(url: str, key: str) -> tuple[str, str]:
    """`https://host:port` and the path with its query.

    Raises SettingsError, which does not repeat the URL: its path may be a secret.
    """
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        named = False
    usable = url.isascii() and url.isprintable() and " " not in url
    if not (named and usable) or parts.scheme not in ("http", "https") or "@" in parts.netloc:
        raise SettingsError(f"{key}: no URL as https://host/path, without a user and a password")
    return f"{parts.scheme}://{parts.netloc}", (parts.path or "/") + (
        f"?{parts.query}" if parts.query else ""
    )


class Ping:
    """One GET. Redirects are not followed: a 3xx is a ping that was not taken."""

    def __init__(self, server: HttpGet, path: str) -> None:
        self._server = server
        self._path = path

    def send(self) -> str:
        """Why it was not taken, empty where it was. The path may be a secret: it is not said."""
        try:
            status = self._server.get(self._path, {"User-Agent": "nodewarden"}).status
        except SourceUnavailable as error:
            why = " ".join(str(error.__cause__ or "").split())[:WHY_MAX]
            return f"{self._server.url}: {why or 'no usable answer'}"
        return "" if 200 <= status < 300 else f"{self._server.url}: answers {status}"


class Deadman:
    """`step` again and again.

    ping    says why it was not taken, "" where it was
    checks  each says what is not well
    """

    def __init__(
        self, ping: Callable[[], str], checks: Sequence[Callable[[], Sequence[Fault]]],
        every_s: float, clock: Clock, metrics: WatchMetrics,
    ) -> None:  # fmt: skip
        self._ping = ping
        self._checks = list(checks)
        self._every_s = every_s
        self._clock = clock
        self._metrics = metrics
        self._due_s = clock.monotonic_s()
        self._said = ""

    def step(self) -> float:
        """Ping where that is due and all is well; returns the seconds until it is due again."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._due_s:
            # Of pings that could not go out in time none is caught up.
            self._due_s = max(self._due_s + self._every_s, now_s)
            self._do()
        return max(self._due_s - self._clock.monotonic_s(), 0.0)

    def _do(self) -> None:
        faults = [fault for check in self._checks for fault in check()]
        for reason in dict.fromkeys(fault.reason for fault in faults):
            self._metrics.withheld.labels(reason).inc()
        if faults:
            texts = [fault.text for fault in faults[:SAID_MAX]]
            self._say("ping_withheld", "; ".join(texts), str([f.reason for f in faults]))
            return
        why = self._ping()
        if why:
            self._metrics.failed.inc()
            self._say("ping_failed", why, why)
        else:
            self._metrics.pings.inc()
            self._say("", "", "")

    def _say(self, action: str, text: str, about: str) -> None:
        """Once, until it is another story."""
        said = f"{action} {about}" if action else ""
        if said == self._said:
            return
        self._said = said
        if action:
            _log.error("%s why=%s", action, text)
        else:
            _log.info("ping_taken_again")
