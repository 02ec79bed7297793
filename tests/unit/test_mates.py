"""Nobody is accused by an outlier before it is known who suffers with him.

`robust_peers` names a shift in a minute. What saves the innocent is that `should_be_zero` speaks of
every mate by then, also of mates whose own groups are too small to be compared.
"""

from __future__ import annotations

import numpy as np
import pytest

from detectors.base import FindingBook
from detectors.correlation import Correlator
from detectors.robust_peers import RobustPeers
from detectors.should_be_zero import ShouldBeZero
from telemetry.findings import Incident
from telemetry.settings import EngineSettings
from tests.fakes import FakeView, tick
from tests.unit.test_correlation import slow

ECN = "nic_ecn_marked_packets_total"
BIG = [f"a{i}" for i in range(8)]  # one job, a node behind each leaf
SMALL = ["b0", "c0", "d0"]  # jobs of one node, all behind the leaf of a0
NODES = [*BIG, *SMALL]
VIEW = FakeView(
    jobs={"j1": BIG, "j2": ["b0"], "j3": ["c0"], "j4": ["d0"]},
    leaves={"leaf0": ["a0", *SMALL], **{f"leaf{i}": [f"a{i}"] for i in range(1, 8)}},
)


def incidents(interval_s: float, onset: dict[str, int], ticks: int) -> list[Incident]:
    """All revisions of a slow job's incident; ECN begins on a node at its tick of `onset`."""
    rules = EngineSettings()
    detectors = [ShouldBeZero(rules), RobustPeers(rules)]
    book, correlator, said = FindingBook("main"), Correlator(rules), []
    history = np.zeros((64, len(NODES)))
    quiet = max(20, round(400 / interval_s))
    for at in range(quiet + ticks):
        now_s = at * interval_s
        row = [2e4 if at >= quiet + onset.get(node, 10**6) else 0.0 for node in NODES]
        history = np.vstack([history[1:], row])
        one = tick(ECN, history, NODES, now_s, interval_s)
        group = np.array([0] * 8 + [1, 2, 3], dtype=np.int64)
        object.__setattr__(one, "group", group)
        seen = [s for detector in detectors for s in detector.on_tick(one, VIEW, now_s)]
        if at == quiet + 1:
            seen = [slow(onset_s=now_s), *seen]
        found = [f for s in seen if (f := book.say(s, now_s)) is not None]
        said += correlator.take(found, VIEW, now_s)
    return said


@pytest.mark.parametrize(
    ("interval_s", "lag"),
    [*((s, lag) for s in (1.0, 5.0, 10.0, 15.0, 30.0, 60.0) for lag in (0, 1)),
     (1.0, 20), (5.0, 6), (10.0, 3), (15.0, 2)],
)  # fmt: skip
def test_a_leaf_s_mates_in_other_jobs_save_the_one_that_can_be_compared(
    interval_s: float, lag: int
) -> None:
    """They begin up to a tick later, or half a minute where ticks are short."""
    onset = {"a0": 0, "b0": lag, "c0": lag, "d0": lag}

    said = incidents(interval_s, onset, ticks=max(20, round(150 / interval_s)))

    assert [] == [s.node for incident in said for s in incident.suspects if s.node]
    assert ("fabric", ["leaf:leaf0"]) == (said[-1].kind, [s.entity for s in said[-1].suspects])


@pytest.mark.parametrize("interval_s", [1.0, 10.0, 30.0, 60.0])
def test_one_of_them_alone_is_named(interval_s: float) -> None:
    """The look-alike the other way round: behind the same leaf, but nobody suffers with it."""
    said = incidents(interval_s, {"a0": 0}, ticks=max(10, round(90 / interval_s)))

    assert ["a0"] == [suspect.node for suspect in said[-1].suspects]
    assert said[-1].kind == "nic_congested"
