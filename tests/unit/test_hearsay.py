"""What nodes tell of other nodes: one kind of evidence, from enough of them; one alone: none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from actions.policy import verdict
from detectors.base import Sighting
from telemetry.findings import ISOLATING, Context, Incident
from telemetry.settings import PolicySettings
from tests.fakes import FakeView, cluster
from tests.unit.test_correlation import (
    Desk,
    fault,
    nonzero,
    outlier,
    silent,
    slow,
    suspects,
)

ACK = "nic_ack_timeouts_total"


def told(by: str, of: str, onset_s: float = 100.0, metric: str = "process_nccl") -> Sighting:
    """`by` cannot reach `of`."""
    return Sighting(True, "dist_error", by, f"peer:{of}", metric, onset_s, role="evidence",
                    kind="nic_fault", cause="network", text=f"{by} waits for {of}")  # fmt: skip


def decided(incident: Incident, view: FakeView) -> str:
    context = Context(job_nodes=list(view.jobs["j1"]), job_progressing=True, replacements=1,
                      ledger=[], blind_share=0.0, protected=[])  # fmt: skip
    said = verdict(incident, context, PolicySettings(), 10_000.0)
    return said.action if said.targets else ""


@pytest.mark.parametrize(
    ("nodes", "tellers", "named"),
    [(16, 2, False), (16, 3, True), (64, 6, False), (64, 7, True), (2, 1, False), (3, 2, False)],
)
def test_enough_others_name_a_node_and_fewer_name_nobody(
    nodes: int, tellers: int, named: bool
) -> None:
    """At least three, and at least a tenth of the job."""
    desk = Desk(cluster(nodes, 8))
    names = list(desk.view.jobs["j1"])
    desk.see(150.0, slow(), *(told(by, names[0]) for by in names[1 : tellers + 1]))

    said = desk.only()
    assert ([names[0]] if named else []) == suspects(said)
    assert named == (decided(said, desk.view) in ISOLATING)


def test_one_other_node_never_gets_a_node_isolated_however_often_and_loudly_it_tells() -> None:
    desk = Desk()
    loud = [
        replace(told("n05", "n03", 100.0 + at, f"process_{at}"), role="fault", certain=True,
                severity="critical", score=99.0, events=50)
        for at in range(20)
    ]  # fmt: skip
    desk.see(150.0, slow(), *loud)

    assert [] == suspects(desk.only())
    assert "" == decided(desk.only(), desk.view)


def test_what_one_node_tells_of_another_opens_nothing_even_as_a_certain_fault() -> None:
    assert [] == Desk().see(150.0, replace(told("n05", "n03"), role="fault", certain=True))


def test_a_node_that_tells_of_everybody_and_one_that_tells_of_itself_accuse_nobody() -> None:
    desk = Desk()
    all_others = [told("n05", f"n{at:02d}") for at in range(16)]
    desk.see(150.0, slow(), *all_others)

    assert [] == suspects(desk.only())


def test_however_many_ways_others_tell_it_is_one_kind_of_evidence() -> None:
    once, often, both = Desk(), Desk(), Desk()
    tellers = [f"n{at:02d}" for at in range(4, 9)]
    seen = [told(by, "n03") for by in tellers]
    more = [
        replace(told(by, "n03", metric="process_ib"), kind="gpu_lost", cause="hardware")
        for by in tellers
    ]
    once.see(150.0, slow(), *seen)
    often.see(150.0, slow(), *seen, *more)
    both.see(150.0, slow(), *seen, outlier("n03"))

    assert once.only().confidence == often.only().confidence < both.only().confidence


def test_nodes_of_other_jobs_do_not_count() -> None:
    view = FakeView(jobs={"j1": ["a0", "a1", "a2", "a3"], "j2": ["b0", "b1", "b2"]})
    desk = Desk(view)
    desk.see(150.0, slow(), *(told(by, "a0") for by in ("b0", "b1", "b2", "a1", "a2")))

    assert [] == suspects(desk.only())


def test_what_others_tell_stands_in_the_incident_of_the_node() -> None:
    desk = Desk()
    desk.see(110.0, fault("n03", certain=False))
    desk.see(120.0, told("n05", "n03", 115.0))

    said = desk.only()
    assert ["n03", "n05"] == [line.node for line in said.evidence]
    assert ["n03"] == suspects(said)


# Peers of a dead node (C15)


def acks(nodes: Sequence[str], onset_s: float) -> list[Sighting]:
    return [nonzero(node, ACK, onset_s) for node in nodes] + [
        outlier(node, ACK, onset_s) for node in nodes
    ]


@pytest.mark.parametrize("peers_first", [False, True])
def test_time_outs_at_the_peers_of_a_lost_gpu_belong_to_its_incident(peers_first: bool) -> None:
    desk = Desk()
    peers = [f"n{at:02d}" for at in range(4, 11)]
    seen = [[fault("n03", onset_s=100.0)], acks(peers, 105.0)]
    for at, some in enumerate(reversed(seen) if peers_first else seen):
        desk.see(110.0 + at, *some)

    said = desk.only()
    assert ["n03"] == suspects(said)
    assert set(peers) == {line.node for line in said.evidence} - {"n03"}


def test_time_outs_at_the_peers_of_a_silent_node_belong_to_its_incident() -> None:
    desk = Desk()
    desk.see(165.0, silent("n03"), *acks(["n05"], 105.0), nonzero("n06", onset_s=105.0))

    said = desk.only()
    assert ["n03", "n05"] == sorted({line.node for line in said.evidence})
    assert ["n03"] == suspects(said)


@pytest.mark.parametrize("dead", [True, False])
def test_time_outs_accuse_no_peer_while_a_node_of_the_job_is_dead(dead: bool) -> None:
    """Its twin: nobody is dead, and the node whose time-outs stand out is looked at."""
    desk = Desk()
    desk.see(200.0, *([silent("n03")] if dead else []), slow(105.0), *acks(["n05"], 105.0))

    named = {node for incident in desk.newest.values() for node in suspects(incident)}
    assert ({"n03"} if dead else {"n05"}) == named


def test_a_node_with_evidence_of_its_own_is_named_beside_a_dead_one() -> None:
    desk = Desk()
    desk.see(200.0, silent("n03"), slow(105.0), outlier("n05"))

    assert {"n03", "n05"} == {n for one in desk.newest.values() for n in suspects(one)}
