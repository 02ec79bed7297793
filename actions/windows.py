"""Maintenance windows: the calendar of the settings, beside those that others say.

In a window everything is decided and recorded; nobody is paged and nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache

from telemetry.actions import Window
from telemetry.errors import SettingsError
from telemetry.hostlist import expand


@lru_cache(maxsize=16)
def calendar(lines: tuple[str, ...]) -> tuple[Window, ...]:
    """The windows of "SINCE/UNTIL n[1-4],n7" lines; `SettingsError` where one is no window."""
    return tuple(_window(line) for line in lines)


def _window(line: str) -> Window:
    span, _, nodes = line.partition(" ")
    since, _, until = span.partition("/")
    try:
        since_s, until_s = (datetime.fromisoformat(time).timestamp() for time in (since, until))
    except ValueError as error:
        raise SettingsError(f"[act.rails] maintenance: {line!r}: {error}") from error
    if since_s >= until_s:
        raise SettingsError(f"[act.rails] maintenance: {line!r} ends before it begins")
    return Window(line, since_s, until_s, named((nodes,), "maintenance") if nodes else [])


@lru_cache(maxsize=16)
def named(lists: tuple[str, ...], setting: str) -> list[str]:
    """The nodes of host lists ("login[1-2]"); `SettingsError` where one is no list."""
    found: list[str] = []
    for text in lists:
        names = expand(text)
        if isinstance(names, str):
            raise SettingsError(f"[act.rails] {setting}: {names}")
        found += names
    return found


def covering(
    windows: Iterable[Window], nodes: Sequence[str], now_s: float
) -> tuple[Window | None, list[str]]:
    """The first open window of any of `nodes`, and which of them no open window covers.

    A window that names no node covers everything, also what is about no node.
    """
    opened = [window for window in windows if window.since <= now_s < window.until]
    everything = next((window for window in opened if not window.nodes), None)
    if everything is not None:
        return everything, []
    held = {node: window for window in reversed(opened) for node in window.nodes}
    found = [held[node] for node in nodes if node in held]
    return (found[0] if found else None), [node for node in nodes if node not in held]
