"""Alertmanager's silences of whole nodes: maintenance that people entered where they get paged.

A silence is a window where all that it asks is which node (or which cluster) an alert is of. One of
a single alert, or of a severity, says nothing of the node. What cannot be understood is never taken
for "no maintenance": the whole answer is then refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from collectors.flat import dict_of, list_of, name_of, text_of
from telemetry.errors import InputError, ListingIncomplete, SourceUnavailable
from telemetry.http_get import HttpGet
from telemetry.ports import Clock
from telemetry.records import Maintenance
from telemetry.settings import SilencesSettings

PATH = "/api/v2/silences"
KEY = "act.silences.url"
OK = 200
SILENCES_MAX, MATCHERS_MAX = 10_000, 32
VALUE_MAX, PATTERN_MAX, NAME_MAX = 4_096, 2_048, 128
REPEATS_MAX = 3  # without end, in one pattern: with more, a look takes too long
TOKEN_MAX = 16_384
_COSTLY = re.compile(r"\)[*+{]|\\[0-9gk]|\(\?(?![:i)])")  # RE2 has neither look-around nor \1


class Matcher(NamedTuple):
    """One condition on a label; `pattern` where it is a regular expression."""

    name: str
    value: str
    pattern: re.Pattern[str] | None
    equal: bool

    def holds(self, spellings: Iterable[str]) -> bool:
        """Whether it holds of something that any of these may stand for."""
        if self.pattern is None:
            return (self.value in spellings) == self.equal
        found = any(self.pattern.fullmatch(one[:NAME_MAX]) for one in spellings)
        return found == self.equal


class Silence(NamedTuple):
    """One that is not over; Unix seconds."""

    id: str
    by: str
    since: float
    until: float
    matchers: list[Matcher]


class AlertmanagerSilences:
    """Asks one Alertmanager. Raises SettingsError where the URL or the CA file is none."""

    def __init__(self, settings: SilencesSettings, clock: Clock) -> None:
        self._settings = settings
        server, prefix = _split(settings.url)
        self._path = prefix + PATH
        self._http = HttpGet(
            server, KEY, settings.timeout_s, settings.answer_max_bytes, clock,
            settings.ca_file, "act.silences.ca_file",
        )  # fmt: skip

    def read(self) -> list[Silence]:
        """Those that are not over. Raises SourceUnavailable, InputError where there is no token."""
        headers = {"Accept": "application/json", "User-Agent": "nodewarden"}
        if self._settings.token_file:
            headers["Authorization"] = f"Bearer {_token(Path(self._settings.token_file))}"
        answer = self._http.get(self._path, headers)
        if answer.status != OK:
            raise SourceUnavailable(f"{self._http.url}: silences: answers {answer.status}")
        return read_silences(answer.body, f"{self._http.url}: silences")


def read_silences(body: bytes, asked: str) -> list[Silence]:
    """An answer of `GET /api/v2/silences`. Raises ListingIncomplete."""
    try:
        rows = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ListingIncomplete(f"{asked}: the answer breaks off") from error
    if not isinstance(rows, list) or len(rows) > SILENCES_MAX:
        raise ListingIncomplete(f"{asked}: no list of at most {SILENCES_MAX} silences")
    found = (_silence(dict_of(row), asked) for row in rows)
    return [silence for silence in found if silence is not None]


def windows_of(
    silences: Sequence[Silence], nodes: Mapping[str, Collection[str]], cluster: str,
    settings: SilencesSettings,
) -> list[Maintenance]:  # fmt: skip
    """The windows that they are; of a silence of the whole cluster one that names no node.

    nodes  those that are known, each with its other names
    """
    if not silences:
        return []
    listed = [(node, _spellings((node, *others), settings.ports)) for node, others in nodes.items()]
    found = []
    for silence in silences:
        about = [one for one in silence.matchers if one.name in settings.labels]
        rest = [one for one in silence.matchers if one.name not in settings.labels]
        ours = all(one.name == "cluster" and one.holds([cluster]) for one in rest)
        if not silence.matchers or not ours:
            continue
        held = [node for node, names in listed if all(one.holds(names) for one in about)]
        if held or not about:
            name = f"silence {silence.id} by {silence.by or 'somebody'}"
            found.append(Maintenance(name, silence.since, silence.until, held if about else []))
    return sorted(found, key=lambda window: (window.since, window.name))


def _spellings(names: Iterable[str], ports: Sequence[str]) -> frozenset[str]:
    """What a label may hold where it means the node: with a port, as an instance has it."""
    spelled = {spelling for name in names for spelling in (name, name.partition(".")[0])}
    return frozenset(
        f"{name}{port}" for name in spelled for port in ("", *(f":{p}" for p in ports))
    )


def _split(url: str) -> tuple[str, str]:
    """The server, and the path under which it answers; a URL that is none as it is."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url, ""
    if not parts.netloc:
        return url, ""
    return f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")


def _silence(row: dict[str, Any], asked: str) -> Silence | None:
    """None where it is over."""
    name = name_of(row.get("id"))
    state = text_of(dict_of(row.get("status")).get("state"))
    if state == "expired":
        return None
    since, until = _time(row.get("startsAt")), _time(row.get("endsAt"))
    matchers = list_of(row.get("matchers"))
    if not name or state not in ("active", "pending") or since is None or until is None:
        raise ListingIncomplete(f"{asked}: a silence without id, state or times")
    if not 0 < len(matchers) <= MATCHERS_MAX:
        raise ListingIncomplete(f"{asked}: {name}: {len(matchers)} matchers")
    by = name_of(row.get("createdBy"))
    return Silence(name, by, since, until, [_matcher(one, f"{asked}: {name}") for one in matchers])


def _matcher(value: Any, asked: str) -> Matcher:
    row = dict_of(value)
    name, said = row.get("name"), row.get("value")
    regex, equal = row.get("isRegex"), row.get("isEqual", True)
    if not isinstance(name, str) or not isinstance(said, str) or len(said) > VALUE_MAX:
        raise ListingIncomplete(f"{asked}: a matcher without name or value")
    if not isinstance(regex, bool) or not isinstance(equal, bool):
        raise ListingIncomplete(f"{asked}: {name_of(name)}: a matcher that says not how it matches")
    return Matcher(name, said, _pattern(said, asked) if regex else None, equal)


def _pattern(text: str, asked: str) -> re.Pattern[str]:
    """A regular expression of RE2 that also Python matches in a bounded time."""
    repeats = max(len(re.findall(r"(?<!\\)[*+]|,\}", branch)) for branch in text.split("|"))
    if len(text) > PATTERN_MAX or repeats > REPEATS_MAX or _COSTLY.search(text):
        raise ListingIncomplete(f"{asked}: {text_of(text, 100)!r} is too costly to match")
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ListingIncomplete(f"{asked}: {text_of(text, 100)!r}: {error}") from error


def _time(value: object) -> float | None:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
        return None if moment is None or moment.tzinfo is None else moment.timestamp()
    except (ValueError, OverflowError):
        return None


def _token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            token = file.read(TOKEN_MAX + 1).decode("ascii", "replace").strip()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; it holds Alertmanager's token") from error
    if not re.fullmatch(r"[\x21-\x7e]{1,16384}", token):
        raise InputError(f"{path}: holds no token")
    return token
