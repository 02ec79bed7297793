"""Settings of rails and recovery that make no sense together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args

from actions.context import DAY_S
from actions.rail_rules import QUARANTINE
from actions.windows import calendar, named
from telemetry.errors import SettingsError
from telemetry.findings import Action
from telemetry.settings import ActSettings, RailSettings

Wrong = tuple[str, str]
_KINDS = sorted({*get_args(Action), QUARANTINE})
_SCOPES = "job", "rack", "leaf", "pool", "cluster"


def wrong_rails(settings: ActSettings) -> Iterator[Wrong]:
    """Key and what is wrong with it: what would let pass what it reads as if it held."""
    rails = settings.rails
    for name in rails.mode:
        if name not in _KINDS:
            yield "act.rails.mode", f"{name!r} is none of {', '.join(_KINDS)}"
    yield from _memory(settings)
    yield from _budgets(rails)
    yield from _nodes(rails)
    if rails.breaker_close_nodes >= rails.breaker_nodes:
        why = f"{rails.breaker_close_nodes}, and it opens at {rails.breaker_nodes} already"
        yield "act.rails.breaker_close_nodes", why
    modes = settings.recovery.modes
    if not modes or len(set(modes)) != len(modes):
        yield "act.recovery.modes", f"each way of restarting once, at least one: {list(modes)}"


def _nodes(rails: RailSettings) -> Iterator[Wrong]:
    """Lists of nodes and windows, as the rails will read them."""
    reads: dict[str, Callable[[], object]] = {
        "maintenance": lambda: calendar(rails.maintenance),
        "protected": lambda: named(rails.protected, "protected"),
    }
    for name, read in reads.items():
        try:
            read()
        except SettingsError as error:
            yield f"act.rails.{name}", str(error).partition(": ")[2]


def _memory(settings: ActSettings) -> Iterator[Wrong]:
    """What is forgotten is counted by no rail."""
    rails = settings.rails
    needed_s = {
        "the daily budgets": DAY_S, "act.rails.attempts_window_s": rails.attempts_window_s,
        "act.rails.undo_s": rails.undo_s, "act.rails.cooldown_s": rails.cooldown_s,
        "act.rails.breaker_window_s": rails.breaker_window_s,
    }  # fmt: skip
    for name, least_s in needed_s.items():
        if settings.keep_s < least_s:
            yield "act.keep_s", f"{settings.keep_s:g} s, and {name} look {least_s:g} s back"


def _budgets(rails: RailSettings) -> Iterator[Wrong]:
    for scope in _SCOPES:
        hour, day = (getattr(rails, f"{scope}_nodes_per_{span}") for span in ("hour", "day"))
        if hour > day:
            yield f"act.rails.{scope}_nodes_per_hour", f"{hour}, and {day} in a day"
