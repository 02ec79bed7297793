"""What users of network checks asked for, through the whole fold: C13 and C15."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from actions.policy import verdict
from evaluation.faults import FaultSpec
from evaluation.simulator import Simulation
from streams.fold import Fold
from streams.replay import Outcome
from telemetry.findings import ISOLATING, Incident
from telemetry.records import Arrived, Frame

ECN, ACK = "nic_ecn_marked_packets_total", "nic_ack_timeouts_total"
ONSET_S = 600.0


def told(records: Iterator[tuple[float, object]]) -> tuple[list[Incident], set[str]]:
    """The incidents, and the nodes that any verdict isolates."""
    fold, outcome = Fold(verdict), Outcome()
    for offset, (arrival_s, record) in enumerate(records):
        outcome.take(fold.step(Arrived(offset, arrival_s, record)))  # type: ignore[arg-type]
    incidents = outcome.sorted_incidents()
    acted = [v for i in incidents for v in i.verdicts if v.action in ISOLATING]
    return incidents, {node for one in acted for node in one.targets}


def unmarked(run: Simulation) -> Iterator[tuple[float, object]]:
    """The run behind a switch that never marks: ECN counters stand at 0 everywhere."""
    for arrival_s, record in run.records():
        if isinstance(record, Frame) and ECN in record.metrics:
            none = [None if value is None else 0.0 for value in record.metrics[ECN]]
            changed = msgspec.structs.replace(record, metrics={**record.metrics, ECN: none})
            yield arrival_s, changed
        else:
            yield arrival_s, record


def waiting(run: Simulation, dead: str, per_s: float) -> Iterator[tuple[float, object]]:
    """The run, with peers of `dead` whose ports time out from five seconds after the onset on."""
    since_s = run.start_s + ONSET_S + 5.0
    for arrival_s, record in run.records():
        if isinstance(record, Frame) and ACK in record.metrics and record.node != dead:
            more = per_s * max(0.0, record.at - since_s)
            late = [None if v is None else v + more for v in record.metrics[ACK]]
            changed = msgspec.structs.replace(record, metrics={**record.metrics, ACK: late})
            yield arrival_s, changed
        else:
            yield arrival_s, record


def test_c13_without_a_single_ecn_mark_loss_counters_name_the_port_s_node() -> None:
    run = Simulation(8, minutes=20.0, seed=1, faults=[FaultSpec("nic-loss", "n003", ONSET_S)])
    incidents, isolated = told(unmarked(run))

    assert {"n003"} == isolated
    (incident,) = [i for i in incidents if i.suspects]
    assert incident.cause == "network"
    assert ECN not in {line.metric for line in incident.evidence}


@pytest.mark.parametrize("kind", ["xid79", "silent"])
def test_c15_time_outs_at_the_peers_of_a_dead_node_are_echoes_of_its_death(kind: str) -> None:
    """A GPU that falls off the bus, or a node that dies without a word."""
    run = Simulation(8, minutes=20.0, seed=1, faults=[FaultSpec(kind, "n003", ONSET_S)])
    incidents, isolated = told(waiting(run, "n003", 20.0))

    assert {"n003"} == isolated
    assert {"n003"} == {s.node for i in incidents for s in i.suspects if s.node}
    (root,) = [i for i in incidents if i.suspects]
    peers = {line.node for line in root.evidence if line.metric == ACK}
    assert {f"n{i:03d}" for i in range(8)} - {"n003"} == peers
