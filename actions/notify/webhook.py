"""A generic webhook: Slack's form, which Mattermost, Rocket.Chat and Teams bridges read too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from actions.notify.calls import Call, Item
from actions.notify.groups import RANK, Group, Member
from actions.notify.pagerduty import details, filled, summary
from actions.notify.settings import ReceiverSettings
from actions.notify.text import cut

TEXT_MAX = 3_000  # Slack cuts a text block there
BODY_MAX_BYTES = 200_000
LISTED_MAX = 20
_WORD = {"trigger": "", "acknowledge": "Acknowledged: ", "resolve": "Resolved: ", "forget": ""}
_MARK = {"critical": ":red_circle:", "warning": ":large_orange_circle:", "info": ":white_circle:"}


class Webhook:
    """Builds calls. The URL is the secret."""

    batch_max = 1

    def __init__(
        self, url: str, token: str, settings: ReceiverSettings, links: Mapping[str, str]
    ) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/json", "User-Agent": "nodewarden"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._settings, self._links = settings, links

    def call(self, items: Sequence[Item], now_s: float) -> Call:
        """One message."""
        (item,) = items
        if self._settings.format == "slack":
            body = msgspec.json.encode({"text": self._text(item)})
        else:
            body = msgspec.json.encode(self._all(item, now_s))
        return Call(self._url, self._headers, body)

    def _text(self, item: Item) -> str:
        group, members = item.group, _sorted(item.group)
        mark = _MARK[group.severity] if item.due == "trigger" else ":white_check_mark:"
        by = f" by {group.acked_by}" if item.due == "acknowledge" else ""
        lines = [f"{mark} {_WORD[item.due]}*{_escaped(summary(group, members))}*{_escaped(by)}"]
        if item.due == "trigger" and group.storm:
            lines += [_escaped(f"• {cut(m.summary, 120)}") for m in members[:LISTED_MAX]]
        elif item.due == "trigger":
            lines.append(_escaped(members[0].reason))
            words = {**members[0].labels, "incident": members[0].incident}
            lines += [f"<{filled(url, words)}|{_escaped(name)}>"
                      for name, url in self._links.items()]  # fmt: skip
        return cut("\n".join(lines), TEXT_MAX)

    def _all(self, item: Item, now_s: float) -> dict[str, Any]:
        group, members = item.group, _sorted(item.group)
        body: dict[str, Any] = {
            "version": 1, "event": item.due, "key": group.key, "severity": group.severity,
            "summary": summary(group, members), "at": now_s, "receiver": group.receiver,
            "group": group.labels, "details": details(group, members),
        }  # fmt: skip
        if len(msgspec.json.encode(body)) > BODY_MAX_BYTES:
            body["details"] = {"details": "left out, it was too large"}
        return body


def _sorted(group: Group) -> list[Member]:
    return sorted(
        group.members.values(),
        key=lambda m: (m.closed_at is not None, RANK[m.severity], m.opened_at, m.incident),
    )


def _escaped(text: str) -> str:
    """Slack's three; a job's name cannot call everybody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
