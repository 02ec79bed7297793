"""Inhibit rules: the leaf switch that is down is told, not the 64 nodes behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from actions.notify.matchers import Labels, Matcher, all_match, parse_matchers
from actions.notify.settings import NotifySettings

Values = tuple[str, ...]


@dataclass(slots=True)
class _Rule:
    source: tuple[Matcher, ...]
    target: tuple[Matcher, ...]
    equal: tuple[str, ...]
    open: dict[Values, set[str]] = field(default_factory=dict)  # sources by the values of `equal`


class Inhibitor:
    """Knows the open incidents. Bounded by whoever opens and closes them."""

    def __init__(self, settings: NotifySettings) -> None:
        """Raises SettingsError."""
        self._rules = [
            _Rule(
                parse_matchers(rule.source_matchers, f"inhibit[{number}].source_matchers"),
                parse_matchers(rule.target_matchers, f"inhibit[{number}].target_matchers"),
                rule.equal,
            )
            for number, rule in enumerate(settings.inhibit)
        ]
        self._places: dict[str, list[tuple[_Rule, Values]]] = {}

    def open(self, incident: str, labels: Labels) -> None:
        """It is open, with these labels from now on."""
        self.close(incident)
        for rule in self._rules:
            if all_match(rule.source, labels):
                values = _values(rule, labels)
                rule.open.setdefault(values, set()).add(incident)
                self._places.setdefault(incident, []).append((rule, values))

    def close(self, incident: str) -> None:
        """It is over."""
        for rule, values in self._places.pop(incident, []):
            rule.open[values].discard(incident)
            if not rule.open[values]:
                del rule.open[values]

    def by(self, incident: str, labels: Mapping[str, str]) -> str:
        """The open incident that keeps this one from being told, "" where none does.

        As in Alertmanager, what matches both sides of a rule is not inhibited by its like.
        """
        for rule in self._rules:
            if not rule.open or not all_match(rule.target, labels):
                continue
            sources = rule.open.get(_values(rule, labels))
            if sources and not all_match(rule.source, labels):
                return min(sources)
        return ""


def _values(rule: _Rule, labels: Labels) -> Values:
    return tuple(labels.get(name, "") for name in rule.equal)
