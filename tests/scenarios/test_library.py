"""Scenarios at 64 nodes: the right node for each fault, nobody for each look-alike.

`test_grid` asks the same of every kind of fault.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
import pytest

from evaluation.scenarios import SCENARIOS, Scenario
from evaluation.scoring import Score, Truth, score
from streams.replay import Outcome
from telemetry.findings import Incident
from telemetry.records import Arrived
from tests.folding import folded, fresh, numbered

SEED = 41

# scenario: (kind, cause, first acting or last action)
WANTED = {
    "xid79": ("gpu_lost", "hardware", "isolate_and_restart"),
    "ecn": ("nic_congested", "network", "isolate_and_restart"),
    "thermal": ("gpu_thermal", "hardware", "isolate_and_restart"),
    "nan": ("loss_anomaly", "unknown", "diagnose"),
    "silent": ("node_silent", "unknown", "isolate_and_restart"),
    "leaf": ("fabric", "network", "page"),
    "usercode": ("user_error", "user_code", "page"),
}
ALIKE = ("healthy", "ecn-only", "hot", "agent-dead", "slow-code", "stage-imbalance", "phase-change",
         "xid13")  # fmt: skip


@lru_cache(maxsize=4)
def run(name: str, seed: int) -> tuple[tuple[Incident, ...], Score]:
    """A scenario's incidents and its score."""
    print(f"scenario {name}, seed {seed}")
    simulation = SCENARIOS[name].run(seed)
    fold, outcome = folded(numbered(simulation.records()))
    incidents = outcome.sorted_incidents()
    truth = msgspec.convert(simulation.truth(), Truth)
    return tuple(incidents), score(incidents, truth, fold.counters.last_at or 0.0)


@pytest.mark.parametrize("name", sorted(WANTED))
def test_a_fault_is_named_with_its_kind_and_cause(name: str) -> None:
    incidents, scored = run(name, SEED)

    (incident,) = incidents
    assert (incident.kind, incident.cause, incident.verdict.action) == WANTED[name]
    assert scored.missed == scored.wrong == 0


@pytest.mark.parametrize("name", ALIKE)
def test_a_look_alike_isolates_nobody(name: str) -> None:
    incidents, scored = run(name, SEED)

    assert [v.targets for i in incidents for v in i.verdicts if v.targets] == []
    assert scored.wrong == 0


def test_a_healthy_run_opens_no_incident() -> None:
    assert run("healthy", SEED)[0] == ()


@pytest.mark.slow
def test_a_healthy_day_of_128_nodes_isolates_nobody() -> None:
    """24 h; no incident at all, so nobody is paged either."""
    day = Scenario("day", "nothing is wrong", (), nodes=128, minutes=24 * 60.0).run(SEED)
    fold, outcome = fresh(), Outcome()
    for offset, (arrival, record) in enumerate(day.records()):
        outcome.take(fold.step(Arrived(offset, arrival, record)))

    assert fold.counters.conserved()
    assert fold.counters.late == fold.counters.lost == 0
    assert outcome.sorted_incidents() == []
