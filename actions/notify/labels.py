"""An incident's labels: what routes, groups and inhibit rules go by. The same for every path."""

from __future__ import annotations

from collections.abc import Callable

from actions.notify.matchers import Matcher, all_match, parse_matchers
from actions.notify.settings import NotifySettings
from telemetry.actions import Decision, Where
from telemetry.errors import SettingsError
from telemetry.findings import Incident

# Ours; labels that the site adds must not have their names.
OWN = (
    "incident", "cluster", "cause", "kind", "severity", "job", "scope", "scope_kind", "node",
    "leaf", "rack", "pool", "action", "mode", "state",
)  # fmt: skip
# They change while the incident lasts: no part of a group or of an alert's identity.
CHANGING = frozenset({"action", "mode", "state"})

Places = Callable[[str], Where | None]


def nowhere(_node: str) -> Where | None:
    """Places where nobody knows any."""
    return None


class Labeller:
    """Incident -> labels. Raises SettingsError where a rule cannot be meant."""

    def __init__(self, settings: NotifySettings, cluster: str, places: Places = nowhere) -> None:
        self._fixed = {**settings.labels, "cluster": cluster}
        self._places = places
        self._rules: list[tuple[tuple[Matcher, ...], dict[str, str]]] = []
        _refuse_own(settings.labels, "labels")
        for number, rule in enumerate(settings.label_rules):
            where = f"label_rules[{number}]"
            _refuse_own(rule.set, f"{where}.set")
            self._rules.append((parse_matchers(rule.matchers, f"{where}.matchers"), rule.set))

    def labels(self, incident: Incident, decision: Decision | None) -> dict[str, str]:
        """All that are not empty."""
        scope_kind, _, scope_name = incident.scope.partition(":")
        suspects = sorted({suspect.node for suspect in incident.suspects if suspect.node})
        node = scope_name if scope_kind == "node" else suspects[0] if len(suspects) == 1 else ""
        where = (self._places(node) if node else None) or Where()
        verdict = decision.verdict if decision is not None else incident.verdict
        found = {
            **self._fixed,
            "incident": incident.id,
            "cause": incident.cause,
            "kind": incident.kind,
            "severity": incident.severity,
            "job": incident.job,
            "scope": incident.scope,
            "scope_kind": scope_kind,
            "node": node,
            "leaf": scope_name if scope_kind == "leaf" else where.leaf,
            "rack": where.rack,
            "pool": where.pool,
            "action": verdict.action,
            "mode": decision.mode if decision is not None else "",
            "state": decision.state if decision is not None else "",
        }
        return self.completed(found)

    def completed(self, labels: dict[str, str]) -> dict[str, str]:
        """With the site's own, without empty ones."""
        found = {**self._fixed, **labels}
        for matchers, more in self._rules:
            if all_match(matchers, found):
                found.update(more)
        return {name: value for name, value in found.items() if value}


def _refuse_own(labels: dict[str, str], where: str) -> None:
    for name in labels:
        if name in OWN:
            raise SettingsError(f"{where}: {name} is nodewarden's own label; take another name")
        if not (name.isascii() and name.isidentifier()):
            raise SettingsError(f"{where}: {name!r} is no label name; letters, digits and _")
