"""The nodes that are wanted out: as a plain table says, and at no cost that grows with a storm."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from actions.context import Site, rail_context
from actions.ledger import Ledger
from actions.rails import decide
from actions.wanted import Wanted
from telemetry.actions import Decision
from telemetry.settings import ActSettings, RailSettings
from tests.acting import incident

AT = 1_700_000_000.0
SETTINGS = ActSettings(rails=RailSettings(mode_default="auto"), first_observe_s=0.0)
SAID = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 20)), max_size=40)


@given(said=SAID, since=st.integers(-1, 21), before=st.integers(0, 21))
def test_it_says_what_a_plain_table_says(
    said: list[tuple[str, int]], since: int, before: int
) -> None:
    wanted, plain = Wanted(100), dict[str, float]()
    for node, at in said:
        wanted.take(node, float(at))
        plain[node] = max(plain.get(node, 0.0), float(at))
    wanted.forget(float(before))
    recent = wanted.since(float(since))
    expected = {node: at for node, at in plain.items() if at >= before and at > since}
    assert expected == dict(recent)
    assert len(expected) == len(recent)
    assert sorted(expected.values(), reverse=True) == list(recent.values())
    assert all((node in recent) == (node in expected) for node in "abcdef")


def test_of_too_many_the_newest_are_kept() -> None:
    wanted = Wanted(3)
    for number in range(10):
        wanted.take(f"n{number}", AT + number)
    assert ["n9", "n8", "n7"] == list(wanted.since(0.0))


def lines_of(work: Callable[[], object]) -> int:
    """Lines of Python that it runs: a measure of work that no other process changes."""
    count = 0

    def trace(_frame: FrameType, event: str, _arg: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def one_more(decisions: int, action: str) -> int:
    """Lines that a decision takes after so many others, each about a node of its own."""
    ledger = Ledger()

    def say(number: int) -> Decision:
        story = incident(f"i{number}")
        verdict = msgspec.structs.replace(
            story.verdict, action=action, targets=[f"n{number}"], at=AT
        )
        context = rail_context(ledger, Site(), SETTINGS, AT + 1.0)
        return decide(verdict, story, context, SETTINGS.rails, AT + 1.0)

    for number in range(decisions):
        ledger.take(say(number))
    return lines_of(lambda: say(decisions))


def test_in_a_storm_a_decision_costs_no_more_than_the_one_before() -> None:
    for action in ("isolate", "none"):  # a verdict that asks no breaker reads of the last that did
        few, many = one_more(50, action), one_more(800, action)
        assert many <= few + 20, (action, few, many)
