"""A site without agents: its Prometheus scrapes every 15 or 30 s, each node at a moment of its own,
misses a scrape now and then, and is asked ten seconds later. The right node, and no other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluation.faults import parse_fault
from evaluation.simulator import Simulation
from telemetry.findings import ISOLATING
from tests.folding import folded, numbered
from tests.scraped import Arrival, Reading, Stored, missing, scraped, stored, told

ONSET_S = {15.0: 540.0, 30.0: 1_080.0}  # a job's pace is known after 31 scraped steps
FAIR_S = {15.0: 330.0, 30.0: 660.0}  # until the node is named
FAULTS = {"ecn": "nic_congested", "thermal": "gpu_thermal", "slow-rank": "gpu_slow"}
NODES, MISSED_SHARE = 8, 0.05


def simulated(fault: str, interval_s: float, scrapes: int = 1, seed: int = 1) -> Simulation:
    """A run whose exporters say something new so often an interval; `fault` "" for none."""
    faults = [parse_fault(f"{fault}@n003+{ONSET_S[interval_s]:.0f}")] if fault else []
    every_s, seconds = interval_s / scrapes, ONSET_S[interval_s] + FAIR_S[interval_s]
    return Simulation(
        NODES, 2, minutes=seconds / 60.0, seed=seed, faults=faults,
        gpu_interval_s=every_s, nic_interval_s=every_s,
    )  # fmt: skip


def verdicts(log: list[Arrival]) -> tuple[set[str], set[str], float]:
    """Kinds of what a verdict isolates for, the nodes, and when the first one is given."""
    fold, outcome = folded(numbered(log))
    assert 0 == fold.counters.rejected
    acted = [
        (one, verdict)
        for one in outcome.sorted_incidents()
        for verdict in one.verdicts
        if verdict.action in ISOLATING
    ]
    kinds: set[str] = {one.kind for one, _ in acted}
    nodes = {node for _, verdict in acted for node in verdict.targets}
    return kinds, nodes, min((verdict.at for _, verdict in acted), default=0.0)


@pytest.mark.parametrize("interval_s", sorted(ONSET_S))
@pytest.mark.parametrize("fault", FAULTS)
def test_scrapes_alone_name_the_node(fault: str, interval_s: float, tmp_path: Path) -> None:
    run = simulated(fault, interval_s)
    samples = scraped(run, tmp_path / "run", interval_s)
    kept = stored(samples, missing(MISSED_SHARE))
    kinds, nodes, at_s = verdicts(told(run, kept, interval_s, Reading()))
    assert ({FAULTS[fault]}, {"n003"}) == (kinds, nodes)
    assert at_s > run.start_s + ONSET_S[interval_s]


@pytest.mark.parametrize("interval_s", sorted(ONSET_S))
def test_a_healthy_site_has_nobody_isolated(interval_s: float, tmp_path: Path) -> None:
    run = simulated("", interval_s)
    samples = scraped(run, tmp_path / "run", interval_s)
    kept = stored(samples, missing(MISSED_SHARE))
    assert (set(), set(), 0.0) == verdicts(told(run, kept, interval_s, Reading()))


def pair(run: Simulation, directory: Path, *, merged: bool) -> list[Stored]:
    """What two Prometheus servers scraped that scrape every node a third of 15 s apart.

    merged   one stands in for the other, in turns of 5 min and after half a minute of nothing, as
             Mimir and Thanos make one of them; else all of both is there
    """
    third_s = 5.0
    samples = scraped(run, directory, third_s)
    missed = missing(MISSED_SHARE)
    found: list[Stored] = []
    for number, name in enumerate(("a", "b")):

        def kept(node: str, at_s: float, number: int = number) -> bool:
            since_s = at_s - run.start_s
            mine = int(since_s // third_s) % 3 == number
            turn, within_s = divmod(since_s, 300.0)
            up = turn % 2 == number and (within_s >= 30.0 or turn == 0)
            return mine and missed(node, at_s) and (up or not merged)

        found += stored(samples, kept, "" if merged else name)
    return found


@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("fault", ["ecn", ""])
def test_a_pair_of_prometheus_names_the_node(fault: str, merged: bool, tmp_path: Path) -> None:
    run = simulated(fault, 15.0, scrapes=3)
    log = told(run, pair(run, tmp_path / "run", merged=merged), 15.0, Reading())
    kinds, nodes, _ = verdicts(log)
    wanted = ({FAULTS[fault]}, {"n003"}) if fault else (set(), set())
    assert wanted == (kinds, nodes)
