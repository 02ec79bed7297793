"""A receiver at work: its interface, its budget of calls, how it fares, when it is tried again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from actions.notify.alertmanager import Alertmanager
from actions.notify.calls import Failure, Http
from actions.notify.limits import Bucket
from actions.notify.pagerduty import PagerDuty
from actions.notify.settings import PAGERDUTY_URL, NotifySettings, ReceiverSettings
from actions.notify.webhook import Webhook
from telemetry.ports import Clock

BACKOFF_MAX_S = 60.0
RATE_WAIT_S = 30.0  # PagerDuty's own advice after 429
AUTH_WAIT_S = 60.0


@dataclass(slots=True)
class Channel:
    """`settings` hold the secrets themselves: the files were read."""

    name: str
    settings: ReceiverSettings
    interface: PagerDuty | Alertmanager | Webhook
    http: Http
    bucket: Bucket
    batch: int
    failures: int = 0  # in a row
    retry_at_s: float = field(default=float("-inf"))  # monotonic
    said: str = ""  # the failure that was logged last

    def failed(self, failure: Failure, now_s: float) -> None:
        """Wait, longer each time."""
        self.failures += 1
        wait_s = min(2.0 ** min(self.failures - 1, 10), BACKOFF_MAX_S)
        if failure.reason == "rate":
            wait_s = max(failure.retry_after_s or 0.0, RATE_WAIT_S)
        elif failure.reason == "auth":
            wait_s = AUTH_WAIT_S if self.failures >= self.settings.fallback_after else wait_s
        elif failure.retry_after_s is not None:
            wait_s = max(wait_s, min(failure.retry_after_s, BACKOFF_MAX_S))
        self.retry_at_s = now_s + wait_s

    def worked(self) -> None:
        """It answers."""
        self.failures, self.said = 0, ""


def build_channels(
    settings: NotifySettings, http: Callable[[str, ReceiverSettings], Http], clock: Clock
) -> dict[str, Channel]:
    """A channel a receiver; those with one routing key share its budget."""
    buckets: dict[tuple[str, str], Bucket] = {}
    channels = {}
    for name, receiver in settings.receivers.items():
        shared = (receiver.url or PAGERDUTY_URL, receiver.routing_key or name)
        bucket = buckets.setdefault(shared, Bucket(receiver.calls_per_minute, clock))
        interface = _interface(receiver, settings.links, settings.image_url)
        channels[name] = Channel(
            name, receiver, interface, http(name, receiver), bucket, interface.batch_max
        )
    return channels


def _interface(
    receiver: ReceiverSettings, links: Mapping[str, str], image_url: str
) -> PagerDuty | Alertmanager | Webhook:
    if receiver.kind == "pagerduty":
        return PagerDuty(receiver.url, receiver.routing_key, links, image_url)
    if receiver.kind == "alertmanager":
        return Alertmanager(receiver.url, receiver.token, receiver, links)
    return Webhook(receiver.url, receiver.token, receiver, links)
