"""Stand-ins for what pages people, with the documented limits; incidents to page about."""

from __future__ import annotations

import json
from collections import Counter, deque
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from actions.notify.board import Board
from actions.notify.calls import Answer, Call, NoAnswer
from actions.notify.channels import build_channels
from actions.notify.labels import Places, nowhere
from actions.notify.metrics import NotifyMetrics
from actions.notify.notifier import Notifier
from actions.notify.routing import Router
from actions.notify.settings import NotifySettings, ReceiverSettings
from actions.notify.store import Store
from telemetry.findings import Evidence, Incident, Suspect, Verdict
from telemetry.ports import Clock
from telemetry.records import Severity
from telemetry.testing import ManualClock

LIMIT_CALLS, LIMIT_S = 120, 60.0
CLUSTER = "main"


class PagerDutyStandIn:
    """The Events API v2 as documented; `down` and `answers` make it fail.

    log      event_action and dedup_key of what was taken, in order
    pages    dedup_key -> "triggered" | "acknowledged" | "resolved", per routing key
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: dict[str, deque[float]] = {}
        self.answers: deque[Answer | NoAnswer] = deque()  # given before any other
        self.down = False
        self.log: list[tuple[str, str]] = []
        self.events: list[dict[str, Any]] = []
        self.changes: list[dict[str, Any]] = []
        self.pages: dict[tuple[str, str], str] = {}
        self.pages_opened: Counter[str] = Counter()
        self.lost_resolves: list[str] = []
        self.statuses: Counter[int] = Counter()
        self.calls = 0

    def post(self, call: Call) -> Answer | NoAnswer:
        self.calls += 1
        if self.down:
            return NoAnswer("connect")
        if self.answers:
            return self.answers.popleft()
        status = self._status(call)
        self.statuses[status] += 1
        return Answer(status)

    def _status(self, call: Call) -> int:
        event = json.loads(call.body)
        key = event.get("routing_key", "")
        if not self._within_limit(key):
            return 429
        if len(call.body) > 512 * 1024:
            return 413
        payload = event.get("payload", {})
        if call.url.endswith("/v2/change/enqueue"):
            self.changes.append(event)
            return 202 if 0 < len(payload["summary"]) <= 1_024 and key else 400
        if not self._is_valid(event, payload):
            return 400
        self._take(event, key)
        return 202

    def _within_limit(self, key: str) -> bool:
        """Within any minute; what is refused does not count."""
        now_s, calls = self._clock.monotonic_s(), self._calls.setdefault(key, deque())
        while calls and calls[0] <= now_s - LIMIT_S:
            calls.popleft()
        if len(calls) >= LIMIT_CALLS:
            return False
        calls.append(now_s)
        return True

    @staticmethod
    def _is_valid(event: dict[str, Any], payload: dict[str, Any]) -> bool:
        if not event.get("routing_key") or not 0 < len(event.get("dedup_key", "")) <= 255:
            return False
        if event["event_action"] in ("acknowledge", "resolve"):
            return True
        return (
            event["event_action"] == "trigger"
            and 0 < len(payload.get("summary", "")) <= 1_024
            and bool(payload.get("source"))
            and payload.get("severity") in ("critical", "error", "warning", "info")
            and all(image["src"].startswith("https://") for image in event.get("images", []))
            and all(link["href"] for link in event.get("links", []))
        )

    def _take(self, event: dict[str, Any], key: str) -> None:
        action, dedup = event["event_action"], event["dedup_key"]
        self.events.append(event)
        self.log.append((action, dedup))
        state = self.pages.get((key, dedup))
        if action == "trigger":
            if state not in ("triggered", "acknowledged"):
                self.pages_opened[dedup] += 1
                self.pages[key, dedup] = "triggered"
        elif state not in ("triggered", "acknowledged"):
            self.lost_resolves.append(dedup)  # another routing key, or nothing to resolve
        else:
            self.pages[key, dedup] = "resolved" if action == "resolve" else "acknowledged"

    def still_open(self) -> list[str]:
        return [dedup for (_, dedup), state in self.pages.items() if state != "resolved"]


class Mailbox:
    """A webhook: keeps what was posted."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    def post(self, call: Call) -> Answer | NoAnswer:
        self.bodies.append(json.loads(call.body))
        return Answer(200)


class Desk:
    """A notifier over stand-ins, on a clock that moves when told; `restart` is kill -9."""

    def __init__(
        self, directory: Path, settings: NotifySettings, places: Places = nowhere,
        clock: ManualClock | None = None,
    ) -> None:  # fmt: skip
        self.clock = clock or ManualClock()
        self.pagerduty = PagerDutyStandIn(self.clock)
        self.chat = Mailbox()
        self._directory, self._places = directory, places
        self.start(settings)

    def start(self, settings: NotifySettings) -> None:
        self.registry = CollectorRegistry()
        self.store = Store(self._directory)
        board = Board(Router(settings, CLUSTER, self._places), CLUSTER, self.store)
        channels = build_channels(settings, self._http, self.clock)
        self.notifier = Notifier(board, channels, self.clock, NotifyMetrics(self.registry))

    def restart(self, settings: NotifySettings) -> None:
        """As after kill -9: only what was saved is there."""
        self.store.close()
        self.start(settings)

    def _http(self, _name: str, receiver: ReceiverSettings) -> PagerDutyStandIn | Mailbox:
        return self.pagerduty if receiver.kind == "pagerduty" else self.chat

    def tell(self, *incidents: Incident) -> None:
        for incident in incidents:
            self.notifier.take(incident)
        self.notifier.save()

    def run(self, seconds: float) -> None:
        until_s = self.clock.monotonic_s() + seconds
        while self.clock.monotonic_s() < until_s:
            self.clock.advance(max(self.notifier.step(), 0.2))

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"nodewarden_notify_{name}", labels) or 0.0


def paging(**changes: Any) -> NotifySettings:
    """Critical and warning to PagerDuty, info to the chat."""
    values: dict[str, Any] = {
        "receivers": {
            "oncall": {"kind": "pagerduty", "routing_key": "R" * 32, "fallback": "chat"},
            "chat": {"kind": "webhook", "url": "http://127.0.0.1:1/hook/SECRET"},
        },
        "route": {
            "receiver": "chat",
            "routes": [{"receiver": "oncall", "matchers": ['severity=~"critical|warning"']}],
        },
        **changes,
    }
    from nodewarden.notify_file import parse_notify

    return parse_notify(values, "test")


def incident(
    number: int | str = 1, *, node: str = "node-1", scope: str = "",
    severity: Severity = "critical",
    kind: Any = "gpu_lost", cause: Any = "hardware", closed_at: float | None = None, rev: int = 1,
    job: str = "train", text: str = "Xid 79", at: float = 1_700_000_000.0, action: Any = "page",
    merged_into: str = "",
) -> Incident:  # fmt: skip
    return Incident(
        id=f"incident-{number}", rev=rev, scope=scope or f"node:{node}", opened_at=at,
        closed_at=closed_at, job=job, cause=cause, kind=kind, severity=severity, confidence=0.9,
        suspects=[Suspect(node, "gpu:GPU-1", 0.9)] if not scope else [],
        evidence=[Evidence("critical", "xid", 79.0, None, "", at, text, node)],
        verdict=Verdict(action, "Xid 79 is certain.", [node], "now", at), verdicts=[],
        merged_into=merged_into,
    )  # fmt: skip
