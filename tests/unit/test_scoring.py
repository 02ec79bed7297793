"""Scoring: found, missed, wrong and the delay, by the fixed rule."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.scoring import GRACE_S, Expect, Truth, TruthFault, load_truth, score
from telemetry.errors import InputError
from telemetry.findings import Action, Incident, Verdict

END_S = 10_000.0


def verdict(at_s: float, *nodes: str, action: Action = "isolate_and_restart") -> Verdict:
    return Verdict(action=action, reason="", targets=list(nodes), when="now", at=at_s)


def incident(*verdicts: Verdict, name: str = "i1") -> Incident:
    first, *later = verdicts
    return Incident(
        id=name, rev=0, scope="cluster", opened_at=first.at, closed_at=None, job="",
        cause="unknown", kind="host", severity="critical", confidence=1.0, suspects=[],
        evidence=[], verdict=first, verdicts=later,
    )  # fmt: skip


def fault(
    *nodes: str, onset: float = 1_000.0, until: float | None = 2_000.0, expect: Expect = "isolate"
) -> TruthFault:
    return TruthFault(kind="gpu_lost", nodes=list(nodes), onset=onset, until=until, expect=expect)


@pytest.mark.parametrize(
    ("at_s", "found"),
    [
        (999.9, False),
        (1_000.0, True),
        (1_500.0, True),
        (2_000.0 + GRACE_S, True),
        (2_000.1 + GRACE_S, False),
    ],
)
def test_a_verdict_counts_from_the_onset_until_15_minutes_after_the_end(
    at_s: float, found: bool
) -> None:
    result = score([incident(verdict(at_s, "n1"))], Truth([fault("n1")]), END_S)
    assert (result.found, result.missed, result.wrong) == (found, not found, not found)
    assert result.delay == (at_s - 1_000.0 if found else None)


def test_a_fault_without_an_end_lasts_until_the_recording_ends() -> None:
    truth = Truth([fault("n1", until=None)])
    late = END_S + GRACE_S
    assert score([incident(verdict(late, "n1"))], truth, END_S).found == 1
    assert score([incident(verdict(late + 0.1, "n1"))], truth, END_S).found == 0


@pytest.mark.parametrize("action", ["page", "diagnose", "restart", "rollback", "none"])
def test_only_isolation_counts(action: Action) -> None:
    result = score([incident(verdict(1_500.0, "n1", action=action))], Truth([fault("n1")]), END_S)
    assert (result.found, result.wrong) == (0, 0)


def test_one_of_the_nodes_is_enough_and_a_bystander_is_wrong() -> None:
    result = score([incident(verdict(1_500.0, "n2", "n9"))], Truth([fault("n1", "n2")]), END_S)
    assert (result.found, result.wrong) == (1, 1)
    assert [i.node for i in result.wrong_isolations] == ["n9"]


@pytest.mark.parametrize("expect", ["page", "none"])
def test_isolating_for_a_fault_that_does_not_expect_it_is_wrong(expect: Expect) -> None:
    result = score([incident(verdict(1_500.0, "n1"))], Truth([fault("n1", expect=expect)]), END_S)
    assert (result.expected, result.found, result.missed, result.wrong) == (0, 0, 0, 1)
    assert result.delay is None


def test_the_first_verdict_gives_the_delay_wherever_it_stands() -> None:
    found = incident(verdict(1_700.0, "n1"), verdict(1_300.0, "n1"))
    other = incident(verdict(1_200.0, "n1", action="page"), verdict(1_400.0, "n1"), name="i2")
    result = score([found, other], Truth([fault("n1")]), END_S)
    assert (result.found, result.delay) == (1, 300.0)


def test_a_node_is_wrong_once_however_often_it_was_isolated() -> None:
    twice = incident(verdict(100.0, "n1"), verdict(200.0, "n1"))
    result = score([twice], Truth([]), END_S)
    assert result.wrong == 1
    assert result.wrong_isolations[0].at == 100.0


def test_the_right_node_at_the_wrong_time_is_wrong_as_well() -> None:
    seen = incident(verdict(1_500.0, "n1"), verdict(5_000.0, "n1"))
    result = score([seen], Truth([fault("n1")]), END_S)
    assert (result.found, result.wrong) == (1, 1)


def test_the_delay_is_the_mean_over_the_found() -> None:
    truth = Truth([fault("n1"), fault("n2"), fault("n3")])
    seen = [incident(verdict(1_100.0, "n1")), incident(verdict(1_300.0, "n2"), name="i2")]
    result = score(seen, truth, END_S)
    assert (result.found, result.missed, result.delay, result.delay_max) == (2, 1, 200.0, 300.0)


def test_no_incidents_and_no_faults_give_a_score_of_nothing() -> None:
    assert msgspec.to_builtins(score([], Truth([]), END_S)) == {
        "expected": 0, "found": 0, "missed": 0, "wrong": 0, "delay": None, "delay_max": None,
        "outcomes": [], "wrong_isolations": [],
    }  # fmt: skip


@given(
    times=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12_000)), max_size=8),
    faults=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9_000)), max_size=4),
)
def test_every_isolation_is_either_explained_or_wrong(
    times: list[tuple[str, int]], faults: list[tuple[str, int]]
) -> None:
    truth = Truth([fault(node, onset=float(at), until=at + 500.0) for node, at in faults])
    seen = [incident(verdict(float(at), node), name=str(k)) for k, (node, at) in enumerate(times)]
    result = score(seen, truth, END_S)
    explained = {
        node
        for node, at in times
        if any(
            f.nodes == [node] and f.onset <= at <= f.onset + 500.0 + GRACE_S for f in truth.faults
        )
    }
    assert result.found + result.missed == result.expected == len(faults)
    assert {i.node for i in result.wrong_isolations} >= {node for node, _ in times} - explained
    assert (result.found == 0) is (not explained)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "truth.json"
    path.write_text(text, encoding="utf-8")
    return path


def test_truth_is_read(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '{"faults": [{"kind": "gpu_lost", "nodes": ["n1"], "onset": 1, "expect": "isolate"}]}',
    )
    (found,) = load_truth(path, ["n1", "n2"]).faults
    assert (found.kind, found.nodes, found.onset, found.until) == ("gpu_lost", ["n1"], 1.0, None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "truth.json"),
        ("[]", "truth.json"),
        ('{"faults": [{"kind": "x"}]}', "nodes"),
        ('{"faults": [{"kind": "x", "nodes": [], "onset": 1, "expect": "maybe"}]}', "maybe"),
        (
            '{"faults": [{"kind": "x", "nodes": ["n01"], "onset": 1, "expect": "none"}]}',
            "unknown node 'n01', did you mean 'n001'",
        ),
        (
            '{"faults": [{"kind": "x", "nodes": [], "onset": 9, "until": 1, "expect": "none"}]}',
            "until lies before onset",
        ),
        ("[" * 100_000, "truth.json"),
    ],
)
def test_an_unusable_truth_is_one_line_that_names_the_file(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(InputError, match=says) as caught:
        load_truth(written(tmp_path, text), ["n001", "n002"])
    assert "truth.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_truth_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"truth\.json"):
        load_truth(tmp_path / "truth.json", [])
