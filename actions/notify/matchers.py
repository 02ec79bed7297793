"""Label matchers as Alertmanager writes them: `team="fabric"`, `job=~"train-.*"`, `!=`, `!~`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from telemetry.errors import SettingsError

Labels = Mapping[str, str]

_FORM = re.compile(r'\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*(?:"((?:[^"\\]|\\.)*)"|([^"\s]*))\s*', re.A)
_ESCAPED = re.compile(r'\\([\\"n])')
VALUE_MAX = 1_024  # a longer value is matched as if it ended there


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition; a label that is not there has the value ""."""

    name: str
    op: str
    value: str
    pattern: re.Pattern[str] | None

    def matches(self, labels: Labels) -> bool:
        """Whether it holds; a regular expression must fit the whole value."""
        value = labels.get(self.name, "")[:VALUE_MAX]
        if self.pattern is None:
            return (value == self.value) == (self.op == "=")
        return (self.pattern.fullmatch(value) is not None) == (self.op == "=~")


def parse_matcher(text: str, where: str) -> Matcher:
    """Raises SettingsError, which names `where`."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise SettingsError(f'{where}: {text!r} is no matcher; write name="value", =~, != or !~')
    name, op, quoted, bare = found.groups()
    value = bare if quoted is None else _ESCAPED.sub(_unescaped, quoted)
    if op in ("=", "!="):
        return Matcher(name, op, value, None)
    try:
        return Matcher(name, op, value, re.compile(value))
    except (re.error, RecursionError, OverflowError) as error:
        raise SettingsError(f"{where}: {text!r}: {error}") from error


def parse_matchers(texts: Sequence[str], where: str) -> tuple[Matcher, ...]:
    """All of them. Raises SettingsError."""
    return tuple(parse_matcher(text, where) for text in texts)


def all_match(matchers: Sequence[Matcher], labels: Labels) -> bool:
    """Whether every one holds; none always does."""
    return all(matcher.matches(labels) for matcher in matchers)


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
