"""What the ladder is made of: rungs with their branches, in order. Docs are made from it too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from actions.policy.case import Case
from telemetry.findings import Verdict

Test = Callable[[Case], bool]


@dataclass(frozen=True, slots=True)
class Branch:
    """One way out of a rung: the first that applies is taken.

    when  the condition in words, for the docs; {policy.network_events} is the setting
    does  what it asks for in words, for the docs
    """

    when: str
    does: str
    applies: Test
    say: Callable[[Case], Verdict]


@dataclass(frozen=True, slots=True)
class Rung:
    """One question of the ladder; where none of its branches applies the next rung is asked."""

    name: str
    asks: str
    applies: Test
    branches: tuple[Branch, ...]


def always(_case: Case) -> bool:
    """For the last branch of a rung."""
    return True
