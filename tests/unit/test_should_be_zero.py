"""Metrics that should be zero, judged without peers."""

from __future__ import annotations

import numpy as np
import pytest

from detectors.base import FloatArray, Sighting
from detectors.should_be_zero import ShouldBeZero
from telemetry.settings import EngineSettings, ShouldBeZeroSettings
from tests.fakes import cluster, tick

VIEW = cluster()
ECN = "nic_ecn_marked_packets_total"
NODES = ["n00", "n01", "n02"]
NAN = np.nan


RULES = EngineSettings(should_be_zero=ShouldBeZeroSettings(hold_s=120.0))


def judge(
    detector: ShouldBeZero, values: FloatArray, at_s: float = 120.0, nodes: list[str] = NODES,
    partial: bool = False, interval_s: float = 10.0,
) -> list[Sighting]:  # fmt: skip
    one = tick(ECN, values, nodes, at_s, interval_s, partial)
    return list(detector.on_tick(one, VIEW, at_s))


def columns(*series: list[float]) -> FloatArray:
    return np.array(series).T


def test_every_node_that_suffers_is_said_once_whoever_else_does() -> None:
    detector = ShouldBeZero(RULES)
    values = columns([9e3] * 12, [9e3] * 12, [0.0] * 12)

    said = judge(detector, values)

    assert ["n00", "n01"] == [seen.node for seen in said]
    assert {("evidence", "nic_congested", "network", 9e3, 10.0, "nic:mlx5_0/1", "j1")} == {
        (s.role, s.kind, s.cause, s.observed, s.onset_s, s.entity, s.job) for s in said
    }
    assert [] == judge(detector, values, 130.0)


@pytest.mark.parametrize(
    "series",
    [
        [999.0] * 12,  # below the effect
        [0.0] * 10 + [9e3] * 2,  # not for long enough
        [9e3, 9e3, 0.0, 9e3] * 3,  # three samples of four
        [NAN] * 11 + [9e3],  # one sample proves nothing
        [NAN] * 8 + [9e3] * 4,  # nor do a few of the window
        [NAN] * 12,  # missing is not abnormal
    ],
)
def test_look_alikes_say_nothing(series: list[float]) -> None:
    assert [] == judge(ShouldBeZero(RULES), columns(series, series, series))


def test_two_samples_suffice_where_the_source_is_slow() -> None:
    values = columns([9e3] * 2, [0.0] * 2, [NAN] * 2)

    assert ["n00"] == [s.node for s in judge(ShouldBeZero(RULES), values, interval_s=60)]


def test_it_clears_when_half_of_the_window_is_below_and_not_when_it_is_missing() -> None:
    detector = ShouldBeZero(RULES)
    judge(detector, columns([9e3] * 12, [0.0] * 12, [0.0] * 12))

    assert [] == judge(detector, columns([NAN] * 12, [0.0] * 12, [0.0] * 12), 130.0)
    assert [] == judge(detector, columns([9e3] * 7 + [0.0] * 5, [0.0] * 12, [0.0] * 12), 140.0)
    half = columns([9e3] * 6 + [0.0] * 6, [0.0] * 12, [0.0] * 12)
    assert [("n00", False)] == [(s.node, s.active) for s in judge(detector, half, 150.0)]


def test_a_node_that_left_is_cleared_but_a_late_frame_says_nothing_of_other_nodes() -> None:
    detector = ShouldBeZero(RULES)
    judge(detector, columns([9e3] * 12, [0.0] * 12, [0.0] * 12))

    assert [] == judge(detector, columns([0.0] * 12), 100.0, ["n01"], partial=True)
    assert ["n00"] == [s.node for s in judge(detector, columns([0.0] * 12), 130.0, ["n01"])]


def test_performance_metrics_are_not_its_business() -> None:
    warm = tick("gpu_temperature_celsius", columns([90.0] * 12), ["n00"], 120.0)

    assert () == ShouldBeZero(RULES).on_tick(warm, VIEW, 120.0)


def test_a_restart_changes_nothing() -> None:
    straight, resumed = ShouldBeZero(RULES), ShouldBeZero(RULES)
    judge(straight, columns([9e3] * 12, [0.0] * 12, [0.0] * 12))
    resumed.restore(straight.snapshot())

    zero = columns([0.0] * 12, [0.0] * 12, [0.0] * 12)
    assert judge(straight, zero, 130.0) == judge(resumed, zero, 130.0) != []
