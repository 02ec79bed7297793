"""A healthy node's oddity beside a job that is slow through its own code: nobody is isolated.

The oddity begins minutes before or after the slowdown. What begins with it cannot be told from its
cause; the grid has those.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from actions.policy import verdict
from evaluation.faults import FaultSpec
from evaluation.simulator import Simulation
from streams.fold import Fold
from streams.replay import Outcome
from telemetry.findings import ISOLATING
from telemetry.records import Arrived

SLOW_S = 900.0


def isolated(odd: str, apart_s: float, nodes: int = 8) -> Sequence[str]:
    """The nodes that any verdict isolates."""
    faults = [
        FaultSpec("slow-code", "n003", SLOW_S), FaultSpec(odd, "n003", SLOW_S + apart_s),
    ]  # fmt: skip
    run, fold, outcome = (
        Simulation(nodes, minutes=32.0, seed=1, faults=faults),
        Fold(verdict),
        Outcome(),
    )
    for offset, (arrival_s, record) in enumerate(run.records()):
        outcome.take(fold.step(Arrived(offset, arrival_s, record)))
    incidents = outcome.sorted_incidents()
    assert any(line.metric == "step_time_s" for i in incidents for line in i.evidence)
    acted = [v for i in incidents for v in i.verdicts if v.action in ISOLATING]
    return sorted({node for one in acted for node in one.targets})


@pytest.mark.parametrize("apart_s", [-130.0, 130.0])
@pytest.mark.parametrize("odd", ["ecn-only", "flap-once", "ecc-storm"])
def test_an_oddity_at_another_time_than_the_slowdown_isolates_nobody(
    odd: str, apart_s: float
) -> None:
    assert isolated(odd, apart_s) == []
