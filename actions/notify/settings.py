"""The notify file (TOML): receivers, the routing tree, inhibition, in Alertmanager's words."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from telemetry.records import Severity
from telemetry.settings import Count, NotNegative, Positive, Secret, Section

ReceiverKind = Literal["pagerduty", "alertmanager", "webhook"]
Pager = Literal["pagerduty", "alertmanager", "none"]

PAGERDUTY_URL = "https://events.pagerduty.com"


class ReceiverSettings(Section, frozen=True, kw_only=True):
    """One way to people. Secrets are better kept in files of their own (`*_file`)."""

    kind: ReceiverKind
    url: Secret = ""  # webhook: all of it; pagerduty, alertmanager: where it is served
    url_file: str = ""  # one line
    routing_key: Secret = ""  # PagerDuty's integration key
    routing_key_file: str = ""
    token: Secret = ""  # a bearer token for alertmanager and webhook
    token_file: str = ""
    ca_file: str = ""  # of https, where the system's authorities do not know it
    proxy_url: str = ""  # "http://proxy:3128"; "": directly
    timeout_s: Annotated[float, Meta(gt=0.0, le=60.0)] = 10.0
    calls_per_minute: Annotated[int, Meta(ge=2, le=6_000)] = 120  # within any minute, a key
    format: Literal["slack", "json"] = "slack"  # webhook: {"text": ...}, or all there is
    fallback: str = ""  # the receiver that is told too, once this one fails
    fallback_after: Count = 3  # failed calls in a row
    paging: bool = True  # alertmanager: false sends for its inhibit rules alone, label page="no"
    node_labels: tuple[str, ...] = ("node", "Hostname")  # alertmanager: what the node is called
    resend_s: Positive = 60.0  # alertmanager: firing alerts are said again
    alert_keep_s: Positive = 14_400.0  # alertmanager: so long an alert stays without us

    def __repr__(self) -> str:
        """Without secrets."""
        return f"ReceiverSettings({self.kind})"


class RouteSettings(Section, frozen=True, kw_only=True):
    """A node of the tree. What is not set is its parent's.

    group_by          labels whose values make the group, and with it the key of the page
    group_wait_s      the first page of a group waits so long for what belongs to it
    group_interval_s  news of a group that was told waits so long
    repeat_interval_s an unanswered page is said again after so long; 0: never
    keep_open_s       a group is resolved when nothing in it was open for so long
    """

    receiver: str = ""
    matchers: tuple[str, ...] = ()
    group_by: tuple[str, ...] | None = None
    group_wait_s: NotNegative | None = None
    group_interval_s: NotNegative | None = None
    repeat_interval_s: NotNegative | None = None
    keep_open_s: NotNegative | None = None
    continue_: bool = msgspec.field(default=False, name="continue")
    routes: tuple[RouteSettings, ...] = ()


class InhibitSettings(Section, frozen=True, kw_only=True):
    """While an incident of `source_matchers` is open, those of `target_matchers` are not told
    that have the same values of the labels in `equal`.
    """

    source_matchers: tuple[str, ...]
    target_matchers: tuple[str, ...]
    equal: tuple[str, ...] = ()


class LabelSettings(Section, frozen=True, kw_only=True):
    """Labels that incidents get which match; a later rule sees what an earlier one set."""

    matchers: tuple[str, ...] = ()
    set: dict[str, str] = msgspec.field(default_factory=dict)


class NotifySettings(Section, frozen=True, kw_only=True):
    """The whole file.

    pager    who pages; `pagers` says otherwise for single severities
    labels   of every incident: {site = "north"}
    links    name -> URL; {incident}, {job}, {node} are filled in
    image_url  an image of the incident report, https; "": none
    storm_pages  with more new groups waiting for one receiver, minor ones become one page
    """

    pager: Pager = "pagerduty"
    pagers: dict[Severity, Pager] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    label_rules: tuple[LabelSettings, ...] = ()
    receivers: dict[str, ReceiverSettings] = msgspec.field(default_factory=dict)
    route: RouteSettings = RouteSettings()
    inhibit: tuple[InhibitSettings, ...] = ()
    links: dict[str, str] = msgspec.field(default_factory=dict)
    image_url: str = ""
    storm_pages: Count = 30
    groups_max: Count = 20_000

    def pager_of(self, severity: Severity) -> Pager:
        """Who pages for it."""
        return self.pagers.get(severity, self.pager)
