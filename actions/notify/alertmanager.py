"""Alertmanager's v2 API: an alert an incident. It groups, silences and pages by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from actions.notify.calls import Call, Item
from actions.notify.groups import Group, Member
from actions.notify.labels import CHANGING
from actions.notify.pagerduty import filled
from actions.notify.settings import ReceiverSettings
from actions.notify.text import SUMMARY_MAX, cut, iso

PATH = "/api/v2/alerts"
# An end that lies ahead on the server's clock is none, and an earlier, later end wins over it.
SKEW_S = 30.0


class Alertmanager:
    """Builds calls. A firing alert ends by itself only hours later: silence of ours is no cure."""

    batch_max = 100

    def __init__(
        self, address: str, token: str, settings: ReceiverSettings, links: Mapping[str, str]
    ) -> None:
        self._url = address.rstrip("/") + PATH
        self._headers = {"Content-Type": "application/json", "User-Agent": "nodewarden"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._settings, self._links = settings, links

    def call(self, items: Sequence[Item], now_s: float) -> Call:
        """Alerts that fire, and that end."""
        alerts: list[dict[str, object]] = []
        for item in items:
            alerts += self._alerts(item, now_s)
        return Call(self._url, self._headers, msgspec.json.encode(alerts))

    def labels(self, group: Group) -> dict[str, str]:
        """The alert's identity."""
        return self._identity(_member(group))

    def _alerts(self, item: Item, now_s: float) -> list[dict[str, object]]:
        member, group = _member(item.group), item.group
        now = self._identity(member)
        gone = [old for old in (*group.old_labels, group.told_labels) if old and old != now]
        over_s = now_s - SKEW_S
        began_s = min(member.opened_at, over_s - 1.0)
        ended: list[dict[str, object]] = [
            {"labels": old, "startsAt": iso(began_s), "endsAt": iso(over_s)} for old in gone
        ]
        is_over = item.due == "resolve"
        alert: dict[str, object] = {
            "labels": now,
            "annotations": _annotations(member),
            "startsAt": iso(began_s if is_over else min(member.opened_at, now_s)),
            "endsAt": iso(over_s if is_over else now_s + self._settings.alert_keep_s),
        }
        words = {**member.labels, "incident": member.incident}
        if url := next((filled(link, words) for link in self._links.values()), ""):
            alert["generatorURL"] = url
        return [*ended, alert]

    def _identity(self, member: Member) -> dict[str, str]:
        words = "".join(word.capitalize() for word in member.labels["kind"].split("_"))
        found = {name: v for name, v in member.labels.items() if name not in CHANGING}
        node = found.pop("node", "")
        if node:
            found |= dict.fromkeys(self._settings.node_labels, node)
        found["alertname"] = f"Nodewarden{words}"
        found["source"] = "nodewarden"
        if not self._settings.paging:
            found["page"] = "no"
        return {name: cut(value, SUMMARY_MAX) for name, value in found.items()}


def _member(group: Group) -> Member:
    return next(iter(group.members.values()))


def _annotations(member: Member) -> dict[str, str]:
    return {
        "summary": cut(member.summary, SUMMARY_MAX),
        "verdict": f"{member.action}: {member.reason}",
        "decision": f"{member.mode} {member.state}".strip() or "none yet",
        "targets": ", ".join(member.targets),
        "evidence": "\n".join(member.evidence),
    }
