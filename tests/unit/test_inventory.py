"""Listings, bounds and peer groups of the engine's inventory."""

from __future__ import annotations

import itertools

import pytest

from streams import groups, inventory
from streams.groups import Groups
from streams.inventory import Inventory
from telemetry.records import Allocation, Job, JobNode, NodeInfo

PARTS = [
    Allocation(
        at=1.0, node="", source="inventory", started_at=0.0, seq=i, listing="l1", count=3,
        last=i == 2, nodes=[NodeInfo(name=f"n{i}", leaf="leaf-0")],
    )
    for i in range(3)
]  # fmt: skip


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_listing_is_complete_with_all_its_parts_in_any_order(order: tuple[int, ...]) -> None:
    known = Inventory()
    for place in order[:2]:
        known.allocate(PARTS[place])
    assert known.leaf_nodes("leaf-0") == ()
    known.allocate(PARTS[order[2]])
    assert known.leaf_nodes("leaf-0") == ["n0", "n1", "n2"]


def test_a_listing_that_lacks_a_part_changes_nothing() -> None:
    known = Inventory()
    for part in (PARTS[0], PARTS[2]):
        known.allocate(part)
    assert known.leaf_nodes("leaf-0") == ()


def test_names_that_nobody_listed_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "NODES_MAX", 3)
    known = Inventory()
    known.allocate(Allocation(at=1.0, node="", source="i", started_at=0.0, seq=0,
                              nodes=[NodeInfo(name="listed")]))  # fmt: skip
    for place in range(9):
        known.hear(f"stranger-{place}", 1.0)
    known.hear("listed", 2.0)
    known.hear("stranger-0", 3.0)
    assert known.last_heard_s("listed") == 2.0
    assert known.last_heard_s("stranger-0") == 3.0
    assert known.last_heard_s("stranger-8") is None


def test_groups_of_jobs_that_are_gone_make_room_and_the_others_keep_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A number that changes is a new group, and with it a new history."""
    monkeypatch.setattr(groups, "GROUPS_MAX", 4)
    known = Inventory()
    peers = Groups(known)

    def listed(*jobs: str) -> None:
        known.allocate(Allocation(
            at=1.0, node="", source="i", started_at=0.0, seq=0, listing=",".join(jobs), count=1,
            last=True, jobs=[Job(id=job, nodes=[JobNode(name=f"of-{job}")]) for job in jobs],
        ))  # fmt: skip

    listed("stays", "a", "b")
    first = peers.of(["idle", "of-a", "of-b", "of-stays"], 1.0)[0].tolist()
    listed("stays", "c", "d")
    later = peers.of(["idle", "of-c", "of-d", "of-stays"], 2.0)[0].tolist()

    assert (first[0], first[3]) == (later[0], later[3])
    assert len({*first, *later}) == 6
    assert len(peers.numbers) <= 4


def test_a_node_that_no_listing_names_is_unlisted_and_without_a_listing_nobody_is() -> None:
    listed = Inventory()
    assert listed.unlisted(["n1", "pod-7"]) == []
    listed.allocate(
        Allocation(
            at=1.0,
            node="",
            source="inventory",
            started_at=0.0,
            seq=0,
            jobs=[Job(id="j", nodes=[JobNode("n1")])],
            listing="a",
            last=True,
            count=1,
        )
    )
    assert listed.unlisted(["n1", "pod-7"]) == ["pod-7"]
