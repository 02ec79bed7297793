"""States that speak for themselves, told apart bit by bit; a state that many share is theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from detectors.base import Sighting, Tick
from detectors.states import States
from telemetry.metrics import BY_NAME
from telemetry.records import Port
from telemetry.settings import EngineSettings
from tests.fakes import FakeView, cluster

INTERVAL_S = 15.0
MASK, REMAP, PORT = "gpu_throttle_reasons_mask", "gpu_row_remap_failure_state", "nic_port_state"
NAN = float("nan")


def tick(index: int, metric: str, view: FakeView, values: Mapping[str, float]) -> Tick:
    """One tick; nodes not in `values` are healthy: 0, or an active port."""
    nodes = tuple(view.job_nodes("j1", 0.0))
    device = BY_NAME[metric].device
    watched = np.full((1, len(nodes), 8), NAN)
    watched[:, :, :2] = 4.0 if metric == PORT else 0.0
    for node, value in values.items():
        watched[0, nodes.index(node), 1] = value
    name = "GPU-{}" if device == "gpu" else "mlx5_{}/1"
    empty = np.empty((1, 0, len(nodes)))
    return Tick(
        source=device, index=index, at_s=index * INTERVAL_S, interval_s=INTERVAL_S, nodes=nodes,
        group=np.zeros(len(nodes), dtype=np.int64), metrics=(), worst=empty,
        flags=empty.astype(np.int8), mean=empty[0], sd=empty[0],
        entity=empty[0].astype(np.int64),
        entities={node: {device: [name.format(i) for i in range(2)]} for node in nodes},
        watched_metrics=(BY_NAME[metric],), watched=watched,
    )  # fmt: skip


def run(
    metric: str, series: Sequence[Mapping[str, float]], view: FakeView | None = None
) -> list[Sighting]:
    detector, view = States(EngineSettings()), view or cluster(64)
    said: list[Sighting] = []
    for index, values in enumerate(series):
        said += detector.on_tick(tick(index, metric, view, values), view, index * INTERVAL_S)
        kept = detector.snapshot()
        detector = States(EngineSettings())
        detector.restore(kept)
    return said


def masks(*values: float) -> list[dict[str, float]]:
    return [{"n05": value} for value in values]


@pytest.mark.parametrize(("bit", "kind"), [(0x80, "gpu_power"), (0x40, "gpu_thermal")])
def test_d6_brake_and_thermal_bits_act_after_three_polls(bit: int, kind: str) -> None:
    assert run(MASK, masks(0, bit, bit)) == []
    (seen,) = run(MASK, masks(0, bit, bit, bit, bit))
    assert (seen.kind, seen.certain, seen.role, seen.node) == (kind, True, "fault", "n05")
    assert seen.entity == "gpu:GPU-1"
    assert seen.onset_s == INTERVAL_S


@pytest.mark.parametrize("bit", [0x0, 0x1, 0x2, 0x4, 0x10, 0x20, 0x100])
def test_d5_d6_idle_clocks_and_power_cap_are_no_faults(bit: int) -> None:
    assert run(MASK, masks(*[bit] * 20)) == []


def test_d6_all_hardware_bits_at_once_are_each_said() -> None:
    said = run(MASK, masks(*[0xE8] * 4))
    assert {seen.metric for seen in said} == {"power_brake", "hw_thermal_slowdown", "hw_slowdown"}
    assert [seen.role for seen in said if seen.metric == "hw_slowdown"] == ["evidence"]


def test_a_single_poll_of_a_bit_is_noise_and_a_missing_sample_neither_breaks_nor_counts() -> None:
    assert run(MASK, masks(0x80, 0, 0x80, 0, 0x80, 0)) == []
    assert run(MASK, masks(0x80, NAN, 0x80)) == []
    assert len(run(MASK, masks(0x80, NAN, 0x80, NAN, 0x80))) == 1


def test_it_clears_with_the_first_good_sample() -> None:
    said = run(MASK, masks(*[0x80] * 4, NAN, 0))
    assert [seen.active for seen in said] == [True, False]


def test_a_state_that_a_tenth_of_the_job_shares_isolates_nobody() -> None:
    """A cooling zone: seven of 64 nodes throttle together."""
    sick = {f"n{i:02d}": float(0x40) for i in range(7)}
    said = run(MASK, [sick] * 4)
    assert not any(seen.certain for seen in said)
    (fleet,) = [seen for seen in said if seen.role == "fault"]
    assert (fleet.kind, fleet.cause, fleet.node) == ("fleet_shift", "common_mode", "")


def test_a_remap_failure_that_was_there_at_first_sight_is_old_news() -> None:
    (old,) = run(REMAP, masks(1, 1, 1))
    assert (old.role, old.certain, old.severity) == ("evidence", False, "info")
    (fresh,) = run(REMAP, masks(0, 1, 1))
    assert (fresh.kind, fresh.certain) == ("gpu_memory", True)


def test_a_port_that_goes_down_and_stays_down_is_a_fault() -> None:
    assert run(PORT, masks(4, *[1] * 10)) == []
    (seen,) = run(PORT, masks(4, *[1] * 17))
    assert (seen.kind, seen.cause, seen.certain) == ("nic_fault", "network", True)


def test_c4_a_port_that_was_never_up_is_news_at_most() -> None:
    (seen,) = run(PORT, masks(*[1] * 20))
    assert (seen.role, seen.severity, seen.certain) == ("evidence", "info", False)


@pytest.mark.parametrize(
    "port", [Port("mlx5_1/1", should_be_up=False), Port("mlx5_1/1", fabric=False)]
)
def test_c4_ports_meant_to_be_down_and_management_ports_are_not_judged(port: Port) -> None:
    view = cluster(64)
    view.ports = {("n05", "mlx5_1/1"): port}
    assert run(PORT, masks(4, *[1] * 40), view) == []


@pytest.mark.parametrize(
    ("metric", "kind"),
    [("host_fan_state", "gpu_thermal"), ("host_power_supply_state", "gpu_power")],
)
def test_a_fan_or_a_power_supply_that_fails_is_critical_by_itself(metric: str, kind: str) -> None:
    """A warning is none, nor a sensor that was critical at first sight: an empty slot reads so."""
    (seen,) = run(metric, masks(0, 2, 2, 2))
    assert (seen.kind, seen.cause, seen.certain, seen.role) == (kind, "hardware", True, "fault")
    assert [] == run(metric, masks(0, *[1] * 10))
    (old,) = run(metric, masks(*[2] * 10))
    assert (old.role, old.certain) == ("evidence", False)
