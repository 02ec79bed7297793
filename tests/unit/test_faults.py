"""Faults as text: what is written is what is meant, all else is refused with a remedy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.cluster import Cluster
from evaluation.faults import (
    KINDS,
    OFFSET_MAX_S,
    SIZES,
    FaultSpec,
    SizeName,
    parse_fault,
    place_faults,
)
from telemetry.errors import SettingsError

CLUSTER = Cluster(nodes=32, gpus=8, seed=1)

names = st.from_regex(r"[A-Za-z0-9_.-]{1,20}", fullmatch=True)
offsets = st.integers(0, int(OFFSET_MAX_S))


@given(kind=st.sampled_from(sorted(KINDS)), target=names, offset_s=offsets)
def test_a_well_written_fault_is_what_was_written(kind: str, target: str, offset_s: int) -> None:
    assert parse_fault(f"{kind}@{target}+{offset_s}") == FaultSpec(kind, target, float(offset_s))


@given(minutes=st.integers(0, 1_000))
def test_a_unit_multiplies(minutes: int) -> None:
    assert parse_fault(f"ecn@n003+{minutes}m") == parse_fault(f"ecn@n003+{minutes * 60}s")


@given(size=st.sampled_from(SIZES), multiple=st.integers(1, 99))
def test_a_size_is_a_name_or_a_multiple_in_either_spelling(size: SizeName, multiple: int) -> None:
    for mark in ("*", ":size="):
        assert parse_fault(f"ecn@n003+60{mark}{size}").size == size
        assert parse_fault(f"ecn@n003+60{mark}{multiple}").size == float(multiple)
    assert parse_fault("ecn@n003+60").size == "typical"


def test_a_size_multiplies_what_the_fault_does() -> None:
    specs = [FaultSpec("slow-rank", "n003", 1.0, size=size) for size in SIZES]
    faults = place_faults(specs, CLUSTER, 0.0, 60.0)
    assert [fault.slow(2.0) for fault in faults] == pytest.approx([1.5, 1.25, 1.075])
    assert [fault.slow(0.5) for fault in faults] == [1.0, 1.0, 1.0]


@given(text=st.text(max_size=60))
def test_any_text_is_a_fault_or_one_line_that_says_why_not(text: str) -> None:
    spec: FaultSpec | None = None
    said = ""
    try:
        spec = parse_fault(text)
    except SettingsError as error:
        said = str(error)
    assert "\n" not in said
    assert (spec is None) is bool(said)
    assert spec is None or (spec.kind in KINDS and 0.0 <= spec.offset_s <= OFFSET_MAX_S)


@given(kind=names, target=names, offset=st.text("0123456789.smh+-e", max_size=12))
def test_nearly_right_text_never_raises_anything_else(kind: str, target: str, offset: str) -> None:
    try:
        spec = parse_fault(f"{kind}@{target}+{offset}")
    except SettingsError:
        return
    assert spec.kind == kind
    assert spec.target == target


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("xid78@n003+60", "did you mean 'xid79'.*kinds are xid79, thermal, "),
        ("ecn@n003", r"KIND@NODE\+OFFSET"),
        ("ecn+60", r"KIND@NODE\+OFFSET"),
        ("ecn@n003+-5", r"KIND@NODE\+OFFSET"),
        ("ecn@n003+5d", r"KIND@NODE\+OFFSET"),
        ("ecn@n003+٣", r"KIND@NODE\+OFFSET"),
        ("ecn@n003+99999h", "at most"),
        ("ecn@n003+60*huge", "obvious, typical, barely"),
        ("ecn@n003+60*0", "obvious, typical, barely"),
    ],
)
def test_a_wrong_fault_names_its_remedy(text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        parse_fault(text)


def test_a_target_is_a_name_an_index_or_for_a_leaf_fault_a_leaf() -> None:
    specs = [FaultSpec("hot", "n009", 1.0), FaultSpec("hot", "9", 2.0)]
    assert [f.places for f in place_faults(specs, CLUSTER, 0.0, 60.0)] == [(9,), (9,)]
    by_leaf, by_node = (
        place_faults([FaultSpec("leaf", target, 1.0)], CLUSTER, 0.0, 60.0)[0]
        for target in ("leaf-01", "n012")
    )
    assert by_leaf.places == by_node.places == tuple(range(8, 16))


def test_stage_imbalance_is_of_the_whole_stage_and_blames_nobody() -> None:
    (fault,) = place_faults([FaultSpec("stage-imbalance", "n031", 1.0)], CLUSTER, 0.0, 60.0)
    assert fault.places == tuple(range(24, 32))
    assert fault.truth(CLUSTER)["nodes"] == []


def test_every_kind_says_what_is_expected_and_isolation_always_names_a_node() -> None:
    for kind in KINDS.values():
        (fault,) = place_faults([FaultSpec(kind.name, "n003", 1.0)], CLUSTER, 0.0, 60.0)
        truth = fault.truth(CLUSTER)
        assert (truth["nodes"] == ["n003"]) or kind.expect != "isolate"
        assert truth["onset"] == 1.0


@pytest.mark.parametrize(
    ("nodes", "gpus", "seed"), [(0, 8, 1), (20_001, 8, 1), (8, 0, 1), (8, 8, -1)]
)
def test_an_impossible_cluster_is_refused(nodes: int, gpus: int, seed: int) -> None:
    with pytest.raises(SettingsError):
        Cluster(nodes, gpus, seed)
