"""One sentence for each incident: who, what, since when, how sure, what would be told."""

from __future__ import annotations

import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.story import CAUSE_WORDS, KIND_WORDS, act, ordered, story, timeline, who
from console.text import duration, number, several, short, utc, visible
from telemetry.findings import ACTING, Action, Cause, Kind, Suspect, When
from tests.unit.report_demo import ONSET, incident, verdict


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_has_a_story(kind: Kind) -> None:
    text = story(incident(kind))

    assert text.startswith(f"gpu-a017 (nic:mlx5_3/1) {KIND_WORDS[kind]} since 2026-03-01 13:45:00")
    assert text.endswith(".")


def test_the_words_cover_the_closed_lists_and_nothing_else() -> None:
    assert set(KIND_WORDS) == set(get_args(Kind))
    assert set(CAUSE_WORDS) == set(get_args(Cause))


def test_the_story_says_who_what_since_when_how_sure_and_what_would_be_told() -> None:
    assert story(incident()) == (
        "gpu-a017 (nic:mlx5_3/1) has a congested network port since 2026-03-01 13:45:00 UTC "
        "(job llm-70b); 93 % sure, cause: the network; the scheduler would be told to isolate "
        "gpu-a017 and restart job llm-70b at the next checkpoint."
    )


@pytest.mark.parametrize("action", get_args(Action))
@pytest.mark.parametrize("when", get_args(When))
def test_only_what_acts_is_told_to_the_scheduler(action: Action, when: When) -> None:
    said = verdict(action=action, when=when)
    text = story(incident(verdict=said))

    assert ("the scheduler would be told to" in text) == (action in ACTING)
    assert act(said, "j")


def test_nobody_is_said_to_be_isolated_by_a_page() -> None:
    assert act(verdict(action="page"), "j") == "Page a person, isolate nobody"


def test_confidence_is_never_rounded_up_to_certainty() -> None:
    assert "99 % sure" in story(incident(confidence=0.9999))
    assert "not sure" in story(incident(confidence=math.nan))
    assert "certain" in story(incident(certain=True))


@pytest.mark.parametrize(
    ("scope", "names", "wanted"),
    [
        ("leaf:l3", ["a", "b"], "Leaf switch l3 (2 nodes: a and b)"),
        ("leaf:l3", [], "Leaf switch l3"),
        ("job:j1", [], "Job j1"),
        ("job:j1", ["a"], "a"),
        ("node:n1", [], "n1"),
        ("node:n1", ["n1"], "n1"),
        ("cluster", [], "The cluster"),
        ("node:n1", list("abcde"), "a, b, c and 2 more"),
    ],
)
def test_who_follows_the_scope(scope: str, names: list[str], wanted: str) -> None:
    suspects = [Suspect(node, "", 0.5) for node in names]

    assert who(incident(scope=scope, suspects=suspects)) == wanted


def test_without_evidence_it_began_when_it_was_opened() -> None:
    assert "since 2026-03-01 13:55:00 UTC" in story(incident(evidence=[]))


def test_the_timeline_is_in_order_and_holds_every_verdict_once() -> None:
    first, second = verdict(), verdict(at=ONSET + 900, action="page", targets=[])
    entries = timeline(incident(verdict=first, verdicts=[first, second], closed_at=ONSET + 2_000))

    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
    assert sum(entry.what.startswith("verdict: ") for entry in entries) == 2
    assert entries[-1].what == "incident closed after 23 min 20 s"


def test_what_acts_comes_first_then_the_severe_then_the_old() -> None:
    idle = verdict(action="none", targets=[])
    incidents = [
        incident(id="info", severity="info", verdict=idle),
        incident(id="young", verdict=idle, opened_at=ONSET + 5_000),
        incident(id="old", verdict=idle),
        incident(id="acts", severity="warning"),
    ]

    assert [incidents[place].id for place in ordered(incidents)] == ["acts", "old", "young", "info"]


def test_hidden_characters_are_shown_as_escapes() -> None:
    assert visible("a\x1b[0m\u202e\u2028\ud800\U000e0001\tb") == (
        r"a\x1b[0m\u202e\u2028\ud800\U000e0001 b"
    )


def test_letters_of_any_script_stay() -> None:
    assert visible("Knoten-ä 节点 é") == "Knoten-ä 节点 é"


def test_stacked_accents_cannot_climb_over_other_lines() -> None:
    assert visible("a" + "\u0301" * 4) == "a\u0301\u0301\\u0301\\u0301"


@given(st.text(), st.integers(1, 50))
def test_visible_text_is_one_bounded_printable_line(text: str, limit: int) -> None:
    shown = visible(text, limit)

    assert shown.isprintable() or all(c.isprintable() or c.isspace() for c in shown)
    assert len(shown.splitlines()) <= 1
    assert len(shown) <= 10 * limit + 60
    assert shown.encode() or not text


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [(0, "0 s"), (0.42, "0.4 s"), (9.96, "10 s"), (59.6, "1 min"), (605, "10 min 5 s"),
     (12_000, "3 h 20 min"), (187_200, "2 d 4 h"), (-90, "-1 min 30 s"), (None, "–"),
     (math.nan, "–"), (math.inf, "–")],
)  # fmt: skip
def test_durations(seconds: float | None, wanted: str) -> None:
    assert duration(seconds) == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(None, "–"), (math.nan, "–"), (0.0, "0"), (-0.0, "0"), (18_234.5, "18,234.5"), (5.0, "5"),
     (0.00012, "0.00012"), (1e-9, "1e-09"), (1_234_567.0, "1,234,570"), (-3.25, "-3.25"),
     (1e15, "1e+15")],
)  # fmt: skip
def test_numbers(value: float | None, wanted: str) -> None:
    assert number(value) == wanted


def test_axis_numbers_are_short() -> None:
    assert [short(v) for v in (0.0, 0.05, 2_500.0, 2e4, 1.5e6)] == [
        "0",
        "0.05",
        "2500",
        "20 k",
        "1.5 M",
    ]


@given(st.none() | st.floats())
def test_any_time_can_be_told(at: float | None) -> None:
    assert utc(at).endswith("UTC") or utc(at) == "unknown time"


def test_several() -> None:
    assert [several(list(names)) for names in ("", "a", "ab", "abc", "abcd")] == [
        "", "a", "a and b", "a, b and c", "a, b, c and 1 more",
    ]  # fmt: skip
