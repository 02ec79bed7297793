"""The scenario library."""

from __future__ import annotations

from itertools import pairwise

import pytest

from evaluation.faults import KINDS
from evaluation.scenarios import FAULTY, LOOK_ALIKES, SCENARIOS, demo, scenario
from telemetry.errors import SettingsError


def test_every_kind_of_fault_has_a_scenario_of_its_name() -> None:
    assert set(KINDS) | {"healthy"} == set(SCENARIOS)


def test_look_alikes_expect_no_isolation_and_most_faults_do() -> None:
    for row in (*FAULTY, *LOOK_ALIKES):
        expects = [fault["expect"] for fault in row.run().truth()["faults"]]
        assert ("isolate" in expects) <= (row in FAULTY)
        assert row in FAULTY or expects in ([], ["none"])


def test_a_twin_is_the_same_cluster_without_the_fault() -> None:
    row = scenario("ecn")
    twin = row.twin()
    assert (twin.nodes, twin.minutes, twin.faults) == (row.nodes, row.minutes, ())
    assert twin.run().truth() == {"faults": []}


def test_the_runs_of_the_demo_follow_each_other() -> None:
    runs = [run for _, run in demo()]
    for before, after in pairwise(runs):
        assert after.start_s > before.end_s


def test_an_unknown_scenario_names_the_nearest() -> None:
    with pytest.raises(SettingsError, match="did you mean 'thermal'"):
        scenario("termal")
