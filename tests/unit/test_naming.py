"""Who is accused by what: outliers count once, and lying telemetry accuses nobody."""

from __future__ import annotations

from dataclasses import replace

from detectors.base import Sighting
from tests.unit.test_correlation import Desk, hot, outlier, slow, suspects, throttled


def robust(seen: Sighting) -> Sighting:
    """The same outlier as `robust_peers` tells it."""
    return replace(seen, detector="robust_peers")


def lie(node: str, metric: str) -> Sighting:
    return Sighting(True, "telemetry_quality", node, "stuck", metric, 100.0, role="evidence",
                    kind="telemetry_gap", cause="telemetry", severity="info",
                    text="stuck")  # fmt: skip


def test_a_robust_outlier_names_its_node_beside_a_slow_job() -> None:
    desk = Desk()
    desk.see(100.0, slow(), robust(outlier("n03")))

    assert (["n03"], "nic_congested") == (suspects(desk.only()), desk.only().kind)


def test_a_robust_outlier_alone_opens_nothing() -> None:
    assert [] == Desk().see(100.0, robust(outlier("n03")), robust(hot("n04")))


def test_two_ways_to_compare_with_the_peers_are_one_kind_of_evidence() -> None:
    one, both = Desk(), Desk()
    one.see(100.0, slow(), robust(outlier("n03")))
    both.see(100.0, slow(), outlier("n03"), robust(outlier("n03")))

    assert one.only().confidence == both.only().confidence


def test_robust_outliers_of_everybody_and_of_a_leaf_name_nobody() -> None:
    everybody, leaf = Desk(), Desk()
    everybody.see(100.0, slow(), *(robust(hot(f"n{i:02d}")) for i in range(8)))
    leaf.see(100.0, slow(), *(robust(outlier(f"n{i:02d}")) for i in range(4)))

    assert [] == suspects(everybody.only())
    assert ["leaf:leaf0"] == suspects(leaf.only())


def test_an_outlier_on_a_metric_that_lies_accuses_nobody() -> None:
    """Its healthy twin does: the collector's fault is another metric's, or another node's."""
    ratio = "gpu_engine_active_ratio"
    idle = outlier("n03", ratio, kind="gpu_slow", cause="hardware", observed=1.0)
    lying, other_node, other_metric = Desk(), Desk(), Desk()
    lying.see(100.0, slow(), lie("n03", ratio), idle)
    other_node.see(100.0, slow(), lie("n04", ratio), idle)
    other_metric.see(100.0, slow(), lie("n03", "gpu_power_watts"), idle)

    assert [] == suspects(lying.only())
    assert ["n03"] == suspects(other_node.only()) == suspects(other_metric.only())


def test_a_collectors_fault_on_many_nodes_is_no_common_illness() -> None:
    desk = Desk()
    power = "gpu_power_watts"
    desk.see(100.0, slow(), *(lie(f"n{i:02d}", power) for i in range(12)), robust(throttled("n03")))

    assert ["n03"] == suspects(desk.only())
