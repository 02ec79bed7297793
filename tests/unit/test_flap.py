"""Links that flap, each beside the link that only fell once."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from detectors.base import Sighting, Tick
from detectors.flap import Flap
from telemetry.metrics import BY_NAME
from telemetry.records import Control, Port
from telemetry.settings import EngineSettings, FlapSettings
from tests.fakes import FakeView, cluster, event, tick

VIEW = cluster()
PORT = "nic:mlx5_3/1"
HOUR_S = 3_600.0


def flap(**changes: float) -> Flap:
    return Flap(EngineSettings(flap=msgspec.structs.replace(FlapSettings(), **changes)))


def down(
    detector: Flap, at: float, entity: str = PORT, view: FakeView = VIEW, boot_id: str = ""
) -> list[Sighting]:
    line = event("nic", at, class_="link_down", entity=entity, severity="warning")
    line = msgspec.structs.replace(line, boot_id=boot_id)
    return list(detector.on_event(line, view, at))


def counted(detector: Flap, at: float, rate: float, node: str = "n00") -> list[Sighting]:
    one = tick("nic_link_downed_total", np.array([[rate, 0.0, np.nan]]), [node, "n01", "n02"], at)
    return list(detector.on_tick(one, VIEW, at))


def beats(detector: Flap, first: float, last: float, every: float = 5.0) -> list[Sighting]:
    """What is said while nothing comes."""
    said: list[Sighting] = []
    for step in range(int((last - first) / every)):
        said += detector.advance(first + step * every, VIEW)
    return said


def with_state(one: Tick, metric: str, values: list[float]) -> Tick:
    watched = np.full((1, len(one.nodes), 1), np.nan)
    watched[0, :, 0] = values
    return replace(one, watched_metrics=(BY_NAME[metric],), watched=watched)


def test_each_tick_with_a_link_down_is_one_event_and_only_those_of_the_window_count() -> None:
    detector = flap()

    assert [1] == [s.events for s in counted(detector, 100.0, 0.1)]
    assert [] == counted(detector, 110.0, 0.0)
    assert [1] == [s.events for s in counted(detector, 500.0, 0.2)]
    assert [2] == [s.events for s in counted(detector, 700.0, 0.1)]


def test_a_drop_that_both_the_kernel_and_the_counter_tell_is_one() -> None:
    detector = flap()

    assert [1] == [s.events for s in down(detector, 104.0)]
    both = tick("nic_link_downed_total", np.array([[0.1]]), ["n00"], 100.0)
    both = replace(both, entities={"n00": {"nic": ["mlx5_3/1"]}})
    assert [1] == [s.events for s in detector.on_tick(both, VIEW, 120.0)]
    assert [2] == [s.events for s in down(detector, 180.0)]


def test_a_counter_that_is_read_in_the_tick_after_the_drop_tells_of_the_same() -> None:
    detector = flap()
    down(detector, 99.9, "nic:mlx5_0/1")

    assert [1] == [s.events for s in counted(detector, 100.0, 0.1)]
    assert [2] == [s.events for s in counted(detector, 110.0, 0.1)]  # and this of another
    assert [2] == [s.events for s in counted(detector, 110.0, 0.1)]  # the same tick again
    assert [2] == [s.events for s in down(detector, 105.0, "nic:mlx5_0/1")]
    assert [3] == [s.events for s in down(detector, 106.0, "nic:mlx5_0/1")]


def test_one_drop_is_a_network_event_that_accuses_nobody_for_certain() -> None:
    (seen,) = down(flap(), 10.0)

    assert ("nic_flap", "network", "fault", False, "warning") == (
        seen.kind, seen.cause, seen.role, seen.certain, seen.severity,
    )  # fmt: skip


def test_three_drops_within_twelve_hours_are_proof_two_or_three_in_a_day_are_not() -> None:
    quick, slow = flap(), flap()

    said = [down(quick, hours * HOUR_S)[0].certain for hours in (0, 5, 11)]
    apart = [down(slow, hours * HOUR_S)[0].certain for hours in (0, 10, 20)]

    assert [False, False, True] == said
    assert [False, False, False] == apart


def test_c8_four_drops_in_two_hours_clear_only_after_the_stable_time() -> None:
    """Down 30 s, up, four times in two hours, then stable: recovery counts from the last drop."""
    detector = flap()
    for time in range(4):
        at = 2_400.0 * time
        said = down(detector, at)
        if time >= 2:
            assert said[-1].certain
            assert [] == beats(detector, at, min(at + 2_400.0, 7_200.0))
    last_s = 7_200.0

    assert [] == beats(detector, last_s, last_s + HOUR_S)
    assert [False] == [s.active for s in beats(detector, last_s + HOUR_S, last_s + HOUR_S + 20.0)]


def test_c8_continuous_flapping_never_clears() -> None:
    detector = flap()
    said = [s for time in range(40) for s in down(detector, 600.0 * time)]

    assert [] == beats(detector, 600.0 * 39, 600.0 * 40)
    assert all(s.active for s in said)


def test_c8_a_port_that_stays_down_is_bad_in_each_sample() -> None:
    detector = flap()
    down(detector, 10.0)
    down(detector, 20.0)
    for at in range(0, 6_000, 60):
        one = tick("nic_receive_bytes_total", np.array([[1.0]]), ["n00"], at)
        one = replace(one, entities={"n00": {"nic": ["mlx5_3/1"]}})
        detector.on_tick(with_state(one, "nic_port_state", [1.0]), VIEW, at)

    assert [] == beats(detector, 6_000.0, 6_000.0 + HOUR_S - 100.0)
    assert [False] == [s.active for s in beats(detector, 9_500.0, 9_700.0)]


def test_c8_zero_is_sticky_until_an_operator_or_a_boot() -> None:
    detector = flap(stable_s=0.0)
    for time in range(3):
        down(detector, 100.0 * time, boot_id="one")

    assert [] == beats(detector, 300.0, 30 * 86_400.0, 3_600.0)
    word = Control(at=0.0, node="", source="console", started_at=0.0, seq=0, action="cleared",
                   target="n00")  # fmt: skip
    assert [False] == [s.active for s in detector.on_control(word, ["n00"], 3e6)]

    for time in range(3):
        down(detector, 3e6 + 100.0 * time, boot_id="one")
    other = msgspec.structs.replace(event("os", 3e6 + 900.0, severity="info"), boot_id="two")
    assert [False] == [s.active for s in detector.on_event(other, VIEW, 3e6 + 900.0)]


def test_c6_a_renamed_device_leaves_no_alarm_behind() -> None:
    """mlx5_3 flaps, the node reboots, the device is mlx5_7 now."""
    detector = flap(stable_s=0.0)
    down(detector, 0.0, "nic:mlx5_3/1", boot_id="one")
    down(detector, 60.0, "nic:mlx5_3/1", boot_id="one")

    gone, new = down(detector, 7_200.0, "nic:mlx5_7/1", boot_id="two"), []
    new = down(detector, 9_000.0, "nic:mlx5_7/1", boot_id="two")

    assert [("nic:mlx5_3/1", False)] == [(s.entity, s.active) for s in gone]
    assert [("nic:mlx5_7/1", 1)] == [(s.entity, s.events) for s in new]


def test_c9_a_counter_that_stands_at_seven_since_boot_is_no_flap() -> None:
    detector = flap()
    assert [] == [s for at in range(0, 3_600, 60) for s in counted(detector, at, 0.0)]


def test_c9_drops_in_the_first_minutes_after_a_boot_are_the_boot() -> None:
    detector = flap()
    hosts = tick("host_load1", np.array([[1.0]]), ["n00"], 1_000.0)
    detector.on_tick(with_state(hosts, "host_boot_time_seconds", [990.0]), VIEW, 1_000.0)

    assert [] == [s for at in (1_000.0, 1_060.0, 1_120.0) for s in counted(detector, at, 0.1)]
    assert [] == down(detector, 1_200.0)
    assert [1] == [s.events for s in down(detector, 1_300.0)]


@pytest.mark.parametrize(("entity", "role"), [("nic:ibp115s0f0", "evidence"),
                                              ("nic:eth0", "evidence"),
                                              ("nic:mlx5_3/1", "fault")])  # fmt: skip
def test_c10_an_interface_that_nobody_calls_a_fabric_port_isolates_nobody(
    entity: str, role: str
) -> None:
    detector = flap()
    said = [s for time in range(5) for s in down(detector, 60.0 * time, entity)]

    assert {role} == {s.role for s in said}
    assert (role == "fault") == any(s.certain for s in said)


@pytest.mark.parametrize("port", [Port("mlx5_8/1", fabric=False),
                                  Port("mlx5_8/1", should_be_up=False)])  # fmt: skip
def test_c4_c10_ports_outside_the_fabric_or_meant_to_be_down_are_not_judged(port: Port) -> None:
    view = cluster()
    view.ports = {("n00", "mlx5_8/1"): port}
    detector = flap()

    assert [] == [s for time in range(5) for s in down(detector, 9.0 * time, "nic:mlx5_8/1", view)]


def test_a_tick_without_the_counter_or_without_history_says_nothing() -> None:
    other = tick("nic_ack_timeouts_total", np.array([[9.0]]), ["n00"], 10.0)
    empty = tick("nic_link_downed_total", np.empty((0, 1)), ["n00"], 10.0)

    assert [] == list(flap().on_tick(other, VIEW, 10.0))
    assert [] == list(flap().on_tick(empty, VIEW, 10.0))


def test_ports_are_bounded_the_one_that_fell_longest_ago_is_cleared() -> None:
    detector = flap(ports_max=1)
    down(detector, 10.0)

    gone, new = down(detector, 20.0, "nic:mlx5_4/1")
    assert [(PORT, False), ("nic:mlx5_4/1", True)] == [(s.entity, s.active) for s in (gone, new)]


def test_what_is_long_past_takes_no_memory() -> None:
    detector = flap()
    down(detector, 10.0)
    beats(detector, 700.0, 720.0)
    beats(detector, 50_000.0, 50_020.0)
    assert [] == detector.snapshot()["ports"]
