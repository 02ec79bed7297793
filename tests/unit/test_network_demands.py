"""What users of network checks asked for, by label: loss without marks, shared congestion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from actions.policy import verdict
from detectors.base import Sighting
from detectors.correlation import Correlator
from detectors.should_be_zero import ShouldBeZero
from detectors.states import States
from telemetry.findings import Context, Incident
from telemetry.metrics import BY_NAME
from telemetry.settings import EngineSettings, PolicySettings
from tests.fakes import Book, FakeView, cluster, tick

RULES = EngineSettings()
NODES = [f"n{i:02d}" for i in range(8)]


def minutes_of(metric: str, rates: dict[str, float], minutes: int = 5) -> list[Sighting]:
    detector, view, said = ShouldBeZero(RULES), cluster(8), list[Sighting]()
    for place in range(minutes * 6):
        now = np.array([rates.get(node, 0.0) for node in NODES])
        said += detector.on_tick(tick(metric, np.tile(now, (6, 1)), NODES, 10.0 * place), view, 0.0)
    return said


def test_c13_no_ecn_mark_proves_no_health_loss_counters_speak_for_themselves() -> None:
    """The switch never marks: ECN stays 0 while RNR retries (1,500 a minute) and repeats climb."""
    assert [] == minutes_of("nic_ecn_marked_packets_total", {})
    for metric, rate in (("nic_rnr_retry_errors_total", 1_500.0 / 60.0),
                         ("nic_adaptive_retransmissions_total", 148.0)):  # fmt: skip
        assert {"n03"} == {s.node for s in minutes_of(metric, {"n03": rate})}, metric


def slow(onset_s: float = 100.0) -> Sighting:
    return Sighting(True, "straggler", "", "", "step_time_s", onset_s, kind="job_slow", job="j1",
                    text="step time 6.3 s against 5 s", observed=6.3, expected=5.0,
                    unit="s")  # fmt: skip


def rate(node: str, metric: str, detector: str, onset_s: float = 105.0) -> Sighting:
    return Sighting(True, detector, node, "nic:mlx5_0/1", metric, onset_s, role="evidence",
                    kind="nic_congested", cause="network", observed=20_000.0, expected=0.0,
                    score=8.0, text=f"{metric} of {node}")  # fmt: skip


def decided(view: FakeView, *groups: Sequence[Sighting]) -> list[tuple[Incident, list[str]]]:
    """The newest incidents and whom the ladder would isolate."""
    correlator, book, newest = Correlator(RULES), Book(), dict[str, Incident]()
    for place, seen in enumerate(groups):
        now_s = 110.0 + 10.0 * place
        found = [book.say(one, now_s) for one in seen]
        newest.update((i.id, i) for i in correlator.take(found, view, now_s))
    context = Context(
        job_nodes=list(view.job_nodes("j1", 0.0)), job_progressing=True, replacements=4, ledger=[],
        blind_share=0.0, protected=[],
    )  # fmt: skip
    said = [(i, verdict(i, context, PolicySettings(), 400.0)) for i in newest.values()]
    return [
        (i, v.targets if v.action in ("isolate", "isolate_and_restart") else []) for i, v in said
    ]


def both(node: str, metric: str) -> list[Sighting]:
    return [rate(node, metric, "should_be_zero"), rate(node, metric, "zscore")]


def test_c14_congestion_of_a_whole_job_is_one_incident_of_one_node_is_that_node_s() -> None:
    view = cluster(64, leaf_size=16)
    everybody = [rate(f"n{i:02d}", "nic_cnp_sent_packets_total", "should_be_zero")
                 for i in range(64)]  # fmt: skip

    ((fabric, nobody),) = decided(view, [slow()], everybody)
    ((_, one),) = decided(view, [slow()], both("n17", "nic_cnp_sent_packets_total"))

    assert [] == nobody
    assert fabric.kind in ("fabric", "fleet_shift")
    assert ["n17"] == one


def test_c15_ack_time_outs_at_the_peers_of_a_dead_node_isolate_none_of_them() -> None:
    """n00 loses a GPU; five seconds later n01 to n07 wait for its acknowledgements."""
    dead = Sighting(True, "critical", "n00", "pci:0000:c3:00", "xid_79", 100.0, kind="gpu_lost",
                    cause="hardware", severity="critical", certain=True, job="j1",
                    text="Xid 79")  # fmt: skip
    waits = [seen for node in NODES[1:] for seen in both(node, "nic_ack_timeouts_total")]

    for story in ([[dead], waits, [slow()]], [waits, [slow()], [dead]]):
        isolated = {node for _, targets in decided(cluster(8), *story) for node in targets}
        assert {"n00"} == isolated


def test_c15_one_end_that_waits_accuses_nobody_else() -> None:
    assert all(
        targets in ([], ["n05"])
        for _, targets in decided(cluster(8), [slow()], both("n05", "nic_ack_timeouts_total"))
    )


@pytest.mark.parametrize("state", [0.0, 1.0, 2.0, 3.0, 5.0, 9.0])
def test_d9_whatever_is_not_the_good_value_is_bad(state: float) -> None:
    """A port is well when it is active, and in no other state, named or new."""
    detector, said = States(RULES), list[Sighting]()
    for place in range(40):
        one = tick("nic_receive_bytes_total", np.zeros((1, 2)), ["n00", "n01"], 10.0 * place)
        watched = np.array([[[4.0 if place < 3 else state], [4.0]]])
        one = replace(one, watched_metrics=(BY_NAME["nic_port_state"],), watched=watched)
        said += detector.on_tick(one, cluster(8), 10.0 * place)
    assert [("n00", "nic_fault", True)] == [(s.node, s.kind, s.active) for s in said]


def test_d8_a_value_that_is_missing_is_neither_bad_nor_good() -> None:
    detector, said = States(RULES), list[Sighting]()
    for place in range(60):
        one = tick("nic_receive_bytes_total", np.zeros((1, 2)), ["n00", "n01"], 10.0 * place)
        state = 4.0 if place < 3 else np.nan
        watched = np.array([[[state], [4.0]]])
        one = replace(one, watched_metrics=(BY_NAME["nic_port_state"],), watched=watched)
        said += detector.on_tick(one, cluster(8), 10.0 * place)
    assert [] == said


def test_ports_that_are_down_behind_one_leaf_are_the_switch_s_though_the_job_is_large() -> None:
    """Three nodes of 64 share a leaf and a dead port; two of them were polled a tick earlier."""
    detector, view, said = States(RULES), cluster(64, leaf_size=8), list[Sighting]()
    names = [f"n{i:02d}" for i in range(64)]
    for place in range(40):
        one = tick("nic_receive_bytes_total", np.zeros((1, 64)), names, 10.0 * place)
        state = np.full((1, 64, 1), 4.0)
        state[0, :2, 0] = 4.0 if place < 3 else 1.0
        state[0, 2, 0] = 4.0 if place < 5 else 1.0
        one = replace(one, watched_metrics=(BY_NAME["nic_port_state"],), watched=state)
        said += detector.on_tick(one, view, 10.0 * place)

    assert {"evidence"} == {s.role for s in said if s.node}
    assert not any(s.certain for s in said)
