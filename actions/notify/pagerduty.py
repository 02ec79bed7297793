"""PagerDuty Events API v2: events and change events within its documented limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from actions.notify.calls import Call, Change, Item
from actions.notify.groups import RANK, Group, Member
from actions.notify.settings import PAGERDUTY_URL
from actions.notify.text import SUMMARY_MAX, clean, cut, iso

PAYLOAD_MAX_BYTES = 500_000  # documented: 512 KB; headers and their idea of a KB are left room
SOURCE_MAX, LINKS_MAX = 255, 10
CLIENT = "nodewarden"
_HEADERS = {"Content-Type": "application/json", "User-Agent": CLIENT}


class PagerDuty:
    """Builds calls; keeps nothing.

    address  where it is served, without a path
    links    name -> template of a URL
    image_url  template, "" for none
    """

    batch_max = 1

    def __init__(
        self, address: str, routing_key: str, links: Mapping[str, str], image_url: str
    ) -> None:
        self.address = address.rstrip("/") or PAGERDUTY_URL
        self.routing_key = routing_key
        self._links, self._image_url = links, image_url

    def call(self, items: Sequence[Item], now_s: float) -> Call:
        """One event; a resolve goes where its trigger went."""
        (item,) = items
        group = item.group
        event: dict[str, Any] = {
            "routing_key": group.routing_key or self.routing_key,
            "event_action": item.due,
            "dedup_key": group.key,
        }
        if item.due == "trigger":
            event |= self._trigger(group)
        address = group.address or self.address
        return Call(f"{address}/v2/enqueue", _HEADERS, _within(event))

    def change(self, change: Change) -> Call:
        """A change event, which the service's time line shows."""
        payload = {
            "summary": cut(clean(change.summary), SUMMARY_MAX),
            "source": cut(clean(change.source), SOURCE_MAX),
            "timestamp": iso(change.at),
            "custom_details": change.details,
        }
        event: dict[str, Any] = {"routing_key": self.routing_key, "payload": payload}
        if links := self._link_list({"incident": change.incident}):
            event["links"] = links
        return Call(f"{self.address}/v2/change/enqueue", _HEADERS, _within(event))

    def _trigger(self, group: Group) -> dict[str, Any]:
        members = sorted(
            group.members.values(),
            key=lambda m: (m.closed_at is not None, RANK[m.severity], m.opened_at, m.incident),
        )
        first = members[0]
        payload: dict[str, Any] = {
            "summary": summary(group, members),
            "source": cut(clean(first.labels.get("scope", "cluster")), SOURCE_MAX),
            "severity": group.severity,
        }
        event: dict[str, Any] = {"payload": payload, "client": CLIENT}
        if group.minimal:
            return event
        payload["timestamp"] = iso(min(member.opened_at for member in members))
        for field, label in (("component", "node"), ("group", "job"), ("class", "kind")):
            if not group.storm and (value := first.labels.get(label)):
                payload[field] = cut(clean(value), SOURCE_MAX)
        payload["custom_details"] = details(group, members)
        words = {} if group.storm else {**first.labels, "incident": first.incident}
        if links := self._link_list(words):
            event["links"] = links
            event["client_url"] = links[0]["href"]
        if self._image_url and words:
            event["images"] = [{"src": filled(self._image_url, words), "alt": "Incident report"}]
        return event

    def _link_list(self, words: Mapping[str, str]) -> list[dict[str, str]]:
        return [
            {"href": filled(template, words), "text": name}
            for name, template in list(self._links.items())[:LINKS_MAX]
            if words.get("incident") or "{" not in template
        ]


def summary(group: Group, members: Sequence[Member]) -> str:
    """At most 1,024 characters."""
    still = [member for member in members if member.closed_at is None]
    told = f"[flapping, {group.fires} times] " if group.is_flapping else ""
    if group.storm:
        counts = [
            f"{sum(m.severity == severity for m in still)} {severity}"
            for severity in RANK
            if any(m.severity == severity for m in still)
        ]
        more = f", {group.more} that there was no room to list" if group.more else ""
        listed = ", ".join(counts) or "all over"
        return cut(f"Storm: {len(still)} incidents in one page ({listed}){more}", SUMMARY_MAX)
    more = f" (and {len(still) - 1} more)" if len(still) > 1 else ""
    done = members[0].action
    said = f"{told}{members[0].summary}"
    return cut(said, SUMMARY_MAX - len(more) - len(done) - 5) + f"{more} -> {done}"


def details(group: Group, members: Sequence[Member]) -> dict[str, Any]:
    """What the page shows below its summary; bounded by `_within`."""
    first = members[0]
    shown: dict[str, Any] = {
        "incidents": [
            f"{m.incident} {m.severity} {'closed' if m.closed_at is not None else 'open'}: "
            f"{cut(m.summary, 200)}"
            for m in members
        ]
    }
    if not group.storm:
        decided = f"{first.mode} {first.state}".strip()
        shown = {
            "verdict": f"{first.action}: {first.reason}",
            "decision": decided or "none yet",
            "targets": first.targets,
            "suspects": first.suspects,
            "evidence": first.evidence,
            "labels": first.labels,
            **(shown if len(members) > 1 else {"incident": first.incident}),
        }
    if group.is_flapping:
        shown["flapping"] = f"came back {group.fires} times"
    return shown


def filled(template: str, words: Mapping[str, str]) -> str:
    """`{incident}` and its like replaced, quoted for a URL."""
    for name in ("incident", "job", "node", "cluster"):
        template = template.replace(f"{{{name}}}", quote(words.get(name, ""), safe=""))
    return template


def _within(event: dict[str, Any]) -> bytes:
    """The event; details that make it too large are dropped, and that is noted."""
    body = msgspec.json.encode(event)
    if len(body) <= PAYLOAD_MAX_BYTES:
        return body
    payload = dict(event["payload"])
    shown = dict(payload.get("custom_details", {}))
    note = f"left out, the event had {len(body)} bytes; nodewarden show has everything"
    if isinstance(listed := shown.get("incidents"), list):
        shown["incidents"] = [*listed[:200], f"{len(listed) - 200} more"]
    for drop in ("", "evidence", "labels", "suspects", "targets", "incidents"):
        if drop:
            shown.pop(drop, None)
        payload["custom_details"] = {**shown, "details": note}
        body = msgspec.json.encode({**event, "payload": payload})
        if len(body) <= PAYLOAD_MAX_BYTES:
            return body
    payload["custom_details"] = {"details": note}
    return msgspec.json.encode({**event, "payload": payload})
