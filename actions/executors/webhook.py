"""Commands as signed POSTs to a service of the site, which carries them out.

At most once: nothing is tried again, and nobody can read back what came of it. An answer that does
not come, or is no certain one, is `unknown`: a person looks.

    X-Nodewarden-Timestamp: 1700000000
    X-Nodewarden-Signature: sha256=<hex HMAC-SHA256 of TIMESTAMP.BODY under act.webhook.key>
    Idempotency-Key: <the command's id>
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from actions.notify.calls import Answer, Call, Http, NoAnswer
from telemetry.actions import Command, Outcome, OutcomeStatus, Preconditions
from telemetry.errors import SettingsError
from telemetry.ports import Clock
from telemetry.settings import ActWebhookSettings

KEY_MIN = 16  # characters
REASON_MAX = 300
NOT_IMPLEMENTED = 501


class Said(msgspec.Struct, frozen=True):
    """What the service may answer; without it any 2xx is `done`."""

    status: Literal["done", "refused", "failed"] = "done"
    reason: str = ""


class WebhookExecutor:
    """An `Executor`."""

    def __init__(self, settings: ActWebhookSettings, http: Http, clock: Clock) -> None:
        self._settings, self._http, self._clock = settings, http, clock

    def observe(self, targets: Sequence[str], job: str = "") -> Preconditions:
        """Nobody here knows anything of them."""
        return Preconditions(job=job)

    def achieved(self, command: Command, now: Preconditions) -> bool | None:
        """Nobody can tell."""
        return None

    def execute(self, command: Command) -> Outcome:
        """One POST."""
        if command.dry_run:
            return self._outcome(command, "refused", "it was written for a dry run")
        call = signed(command, self._settings, self._clock.time_s())
        return self._outcome(command, *_came_of(self._http.post(call)))

    def _outcome(self, command: Command, status: OutcomeStatus, reason: str) -> Outcome:
        return Outcome(command=command.id, at=self._clock.time_s(), status=status, reason=reason)


def check_webhook(settings: ActWebhookSettings) -> None:
    """Raises SettingsError where no call could be made, or anybody could make one."""
    parts = urlsplit(settings.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError("act.webhook.url: expected https://HOST/PATH")
    if len(settings.key) < KEY_MIN:
        raise SettingsError(
            f"act.webhook.key: {len(settings.key)} characters, at least {KEY_MIN};"
            " set NODEWARDEN_ACT__WEBHOOK__KEY"
        )


def signed(command: Command, settings: ActWebhookSettings, now_s: float) -> Call:
    """The call of one command. The same command gives the same body at the same time."""
    body = msgspec.json.encode({
        "version": 1, "id": command.id, "decision": command.decision, "action": command.action,
        "step": command.step, "mode": command.mode, "targets": command.targets,
        "job": command.job, "incident": command.incident, "exclude": command.exclude,
        "versions": command.versions, "expires_at": command.expires_at,
    })  # fmt: skip
    timestamp = str(int(now_s))
    headers = {
        "Content-Type": "application/json", "User-Agent": "nodewarden",
        "Idempotency-Key": command.id, "X-Nodewarden-Timestamp": timestamp,
        "X-Nodewarden-Signature": f"sha256={signature(settings.key, timestamp, body)}",
    }  # fmt: skip
    return Call(settings.url, headers, body)


def signature(key: str, timestamp: str, body: bytes) -> str:
    """Hex; the time is part of it, so that a call cannot be played again much later."""
    return hmac.new(key.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def _came_of(answer: Answer | NoAnswer) -> tuple[OutcomeStatus, str]:
    match answer:
        case NoAnswer(reason="tls", may_be_sent=False):
            return "failed", "no TLS connection: nothing was sent"
        case NoAnswer(reason=reason):
            return "unknown", f"no answer ({reason}): it may have been carried out"
        case Answer(status=status, whole=False) if 200 <= status < 300:
            return (
                "unknown",
                f"status {status}, and the answer broke off: what it says is not known",
            )
        case Answer(status=status, body=body) if 200 <= status < 300:
            said = _said(body)
            return said.status, said.reason[:REASON_MAX] or f"taken with status {status}"
        case Answer(status=status) if status == NOT_IMPLEMENTED:
            return "refused", "status 501: the service does not do this"
        case Answer(status=status) if status >= 500 or status == 408:
            return "unknown", f"status {status}: it may have been carried out"
        case Answer(status=status):
            return "failed", f"status {status}"


def _said(body: bytes) -> Said:
    """Whatever is no answer of that form says no more than its status."""
    try:
        return msgspec.json.decode(body, type=Said)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Said()
