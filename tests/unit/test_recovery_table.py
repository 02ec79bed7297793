"""The machine goes by its table, whatever it hears, and comes to an end."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.recovery.machine import HISTORY_MAX, Answer, Event, Look, begin, limit_s, step
from actions.recovery.table import ENDED, ROWS
from telemetry.actions import Decision, OutcomeStatus, Recovery, RecoveryState
from telemetry.findings import Verdict, When
from telemetry.settings import RecoverySettings

T = 1_700_000_000.0
SETTINGS = RecoverySettings()
MAYBE = st.sampled_from([None, True, False])
LOOKS = st.builds(
    Look, over=st.sampled_from(["", "", "", "closed"]), objection=st.sampled_from(["", "", "no"]),
    ended=st.sampled_from(["", "", "", "it ended"]), paused=st.booleans(), busy=st.booleans(),
    pending=st.booleans(), exited=st.booleans(), stands_still=st.booleans(),
    checkpoint_at=st.sampled_from([None, T - 1.0, T + 10.0]), progresses=MAYBE,
    replacements=st.sampled_from([None, 0, 1]), achieved=MAYBE, runs=MAYBE,
)  # fmt: skip
ANSWERS = st.builds(
    Answer, status=st.sampled_from(get_args(OutcomeStatus)), reason=st.just("said"),
    prevented=st.booleans(),
)  # fmt: skip
HEARD = st.lists(st.tuples(st.one_of(LOOKS, ANSWERS), st.floats(0.0, 60.0)), max_size=60)


def decision(when: When, targets: list[str]) -> Decision:
    verdict = Verdict("isolate_and_restart", "broken", targets, when, T)
    return Decision(
        id="d1", incident="a", rev=0, at=T, verdict=verdict, mode="auto", rails=[],
        state="approved", reason="approved", job="7",
    )  # fmt: skip


def is_way(before: Recovery, after: Recovery) -> bool:
    """Whether the table has that edge; where no mode is left a fall-back escalates."""
    row = ROWS[before.state]
    stays = after.state == before.state and after.since == before.since
    to = {edge.to for edge in row.edges}
    falls = any(edge.falls_back or edge.on == "triggered" for edge in row.edges)
    return stays or after.state in to or (falls and after.state == "escalated")


@given(when=st.sampled_from(get_args(When)), targets=st.sampled_from([[], ["n1"]]), heard=HEARD)
def test_whatever_it_hears_it_follows_an_edge_and_orders_each_command_once(
    when: When, targets: list[str], heard: list[tuple[Event, float]]
) -> None:
    recovery, now_s, ordered = begin(decision(when, targets), SETTINGS, False, T), T, set()
    for event, waits_s in heard:
        now_s += waits_s
        after, order = step(recovery, event, SETTINGS, now_s)
        assert is_way(recovery, after)
        assert after is recovery or after.revision == recovery.revision + 1
        assert len(after.history) <= HISTORY_MAX
        if order is not None:
            assert after.command
            assert after.command not in ordered
            assert ROWS[after.state].step == order.step
            ordered.add(after.command)
        if recovery.state in ENDED:
            assert after is recovery
        recovery = after


@given(when=st.sampled_from(get_args(When)), targets=st.sampled_from([[], ["n1"]]), heard=HEARD)
def test_after_anything_time_alone_brings_it_to_an_end(
    when: When, targets: list[str], heard: list[tuple[Event, float]]
) -> None:
    recovery, now_s = begin(decision(when, targets), SETTINGS, False, T), T
    for event, waits_s in heard:
        now_s += waits_s
        recovery, _ = step(recovery, event, SETTINGS, now_s)
    for _ in range(40):
        now_s += limit_s(recovery, SETTINGS) if recovery.state not in ENDED else 0.0
        if recovery.command and recovery.answered is None:  # whoever made the call says something
            recovery, _ = step(recovery, Answer("unknown", "no answer"), SETTINGS, now_s)
        recovery, _ = step(recovery, Look(achieved=False), SETTINGS, now_s)
    assert recovery.state in ENDED


@pytest.mark.parametrize("state", get_args(RecoveryState))
def test_every_state_has_its_row_and_every_state_that_commands_its_time_and_its_page(
    state: RecoveryState,
) -> None:
    row = ROWS[state]
    ways = [edge.on for edge in row.edges]
    assert len(ways) == len(set(ways))
    assert bool(row.step) == bool(row.limit)
    if row.step:
        assert {"refused", "failed", "unreadable", "prevented", "timed_out"} < set(ways)
        assert row.edge("timed_out").to == "escalated"
    if state == "escalated":
        assert ways == []
