"""Which node runs which part: who stays keeps its place."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.launcher.layout import Layout


def test_spare_nodes_take_the_places_of_excluded_ones() -> None:
    layout = Layout.of(["a", "b", "c", "d", "e"], 3)
    assert (("a", "b", "c"), ("d", "e")) == (layout.nodes, layout.spares)
    after = layout.without(["b"])
    assert isinstance(after, Layout)
    assert (("a", "d", "c"), ("e",), ("b",)) == (after.nodes, after.spares, after.excluded)


def test_an_excluded_spare_takes_no_place() -> None:
    after = Layout.of(["a", "b", "c", "d"], 2).without(["a", "c"])
    assert isinstance(after, Layout)
    assert (("d", "b"), (), ("a", "c")) == (after.nodes, after.spares, after.excluded)


def test_too_few_spares_are_said_in_numbers() -> None:
    layout = Layout.of(["a", "b", "c"], 2)
    assert "2 spare nodes are needed and the allocation has 1" == layout.without(["a", "b"])


def test_more_nodes_than_allocated_are_no_layout() -> None:
    with pytest.raises(ValueError, match="3 nodes are wanted and 2 are allocated"):
        Layout.of(["a", "b"], 3)


NAMES = [f"n{number}" for number in range(8)]


@settings(deadline=None)
@given(st.integers(1, 8), st.lists(st.sets(st.sampled_from(NAMES), max_size=3), max_size=4))
def test_no_node_is_lost_or_works_twice(count: int, exclusions: list[set[str]]) -> None:
    layout = Layout.of(NAMES, count)
    for exclude in exclusions:
        after = layout.without(exclude)
        if isinstance(after, str):
            continue
        everybody = [*after.nodes, *after.spares, *after.excluded]
        assert sorted(NAMES) == sorted(everybody)
        assert count == len(after.nodes)
        assert not exclude & {*after.nodes, *after.spares}
        for before, now in zip(layout.nodes, after.nodes, strict=True):
            assert now == before or before in exclude
        layout = after
