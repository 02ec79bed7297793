"""Devices that vanish and drivers that hang, each beside the telemetry that only lost them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from detectors.base import Sighting, Tick
from detectors.devices import Devices
from telemetry.metrics import BY_NAME
from telemetry.records import Event
from telemetry.settings import EngineSettings
from tests.fakes import cluster, event, tick

VIEW = cluster(4)
NODES = ["n00", "n01"]


def devices() -> Devices:
    return Devices(EngineSettings())


def showing(at: float, gpus: dict[str, int], source: str = "gpu") -> Tick:
    """A tick in which each node shows so many of its eight devices."""
    metric = BY_NAME["gpu_throttle_reasons_mask" if source == "gpu" else "nic_port_state"]
    values = np.full((1, len(gpus), 8), np.nan)
    for column, count in enumerate(gpus.values()):
        values[0, column, :count] = 4.0
    base = tick("gpu_power_watts", np.zeros((1, len(gpus))), list(gpus), at, 15.0)
    return replace(base, source=source, watched_metrics=(metric,), watched=values)


def fed(
    detector: Devices, counts: list[dict[str, int]], first: float = 0.0, source: str = "gpu"
) -> list[Sighting]:
    said: list[Sighting] = []
    for place, gpus in enumerate(counts):
        at = first + 15.0 * place
        said += detector.on_tick(showing(at, gpus, source), VIEW, at)
    return said


def heard(detector: Devices, one: Event) -> list[Sighting]:
    return list(detector.on_event(one, VIEW, one.at))


ALL, LESS = {"n00": 8, "n01": 8}, {"n00": 7, "n01": 8}


def test_a8_a_gpu_that_vanishes_without_a_kernel_log_is_a_page_that_says_so() -> None:
    detector = devices()
    (seen,) = fed(detector, [ALL] * 4 + [LESS] * 3)

    assert ("n00", "gpu_lost", "fault", False) == (seen.node, seen.kind, seen.role, seen.certain)
    assert (7.0, 8.0, 60.0) == (seen.observed, seen.expected, seen.onset_s)
    assert "coverage is partial" in seen.text


def test_two_missed_ticks_and_a_fleet_that_is_whole_say_nothing() -> None:
    assert [] == fed(devices(), [ALL, LESS, LESS, ALL] * 5)
    assert [] == fed(devices(), [LESS] * 9)


def test_any_second_sign_makes_it_certain_before_or_after() -> None:
    sign = event("xid", 61.0, code=79, source="exporter")
    before, after = devices(), devices()

    fed(before, [ALL] * 4)
    heard(before, sign)
    (early,) = fed(before, [LESS], 60.0)
    (page,) = fed(after, [ALL] * 4 + [LESS] * 3)
    (late,) = heard(after, msgspec.structs.replace(sign, at=110.0))

    assert early.certain
    assert (False, True, page.onset_s) == (page.certain, late.certain, late.onset_s)


def test_an_application_error_or_a_sign_of_long_ago_proves_nothing() -> None:
    for sign in (event("xid", 61.0, code=31), event("xid", -9_000.0, code=79)):
        detector = devices()
        heard(detector, sign)
        assert [False] == [s.certain for s in fed(detector, [ALL] * 4 + [LESS] * 9)]


def test_it_clears_when_the_device_is_back() -> None:
    detector = devices()
    fed(detector, [ALL] * 4 + [LESS] * 3)
    assert [False] == [s.active for s in fed(detector, [LESS, ALL, ALL], 105.0)]


GONE = {"n01": 8}


def test_a_silent_source_is_no_lost_device_with_a_task_that_hangs_in_the_driver_it_is() -> None:
    detector = devices()
    assert [] == fed(detector, [ALL] * 4 + [GONE] * 20)

    hung = event("os", 300.0, class_="hung_task", severity="warning",
                 text="INFO: task nv_queue:2431 blocked for more than 120 seconds.")  # fmt: skip
    heard(detector, hung)
    (seen,) = fed(detector, [GONE], 360.0)
    assert ("gpu_fault", True, "n00") == (seen.kind, seen.certain, seen.node)

    other = devices()
    fed(other, [ALL] * 4 + [GONE] * 20)
    heard(other, msgspec.structs.replace(hung, text="INFO: task jfsmount:136986 blocked"))
    assert [] == fed(other, [GONE], 360.0)


def test_d10_nothing_is_judged_in_the_first_minutes_after_a_boot() -> None:
    detector = devices()
    heard(detector, msgspec.structs.replace(event("os", 0.0, severity="info"), boot_id="one"))
    fed(detector, [ALL] * 4)
    heard(detector, msgspec.structs.replace(event("os", 60.0, severity="info"), boot_id="two"))

    assert [] == fed(detector, [LESS] * 16, 75.0)
    assert [] == fed(detector, [ALL] * 40, 315.0)


def test_c7_a_nic_that_vanishes_is_one_sighting_however_many_ports_it_had() -> None:
    less = {"n00": 6, "n01": 8}
    (seen,) = fed(devices(), [ALL] * 4 + [less] * 9, source="nic")
    assert ("nic_fault", "network", False) == (seen.kind, seen.cause, seen.certain)


def test_c6_a_renamed_port_is_none_that_is_gone() -> None:
    """Eight ports before, eight of which one has another name after."""
    detector = devices()
    fed(detector, [ALL] * 4, source="nic")
    moved = showing(60.0, ALL, "nic")
    shifted = np.roll(moved.watched, 1, axis=2)
    assert [] == list(detector.on_tick(replace(moved, watched=shifted), VIEW, 60.0))


def test_a_boot_or_an_operator_ends_it() -> None:
    detector = devices()
    fed(detector, [ALL] * 4 + [LESS] * 3)
    assert [False] == [s.active for s in detector.forget("n00")]


def test_a_restart_of_ours_changes_nothing() -> None:
    counts = [ALL] * 4 + [LESS] * 9 + [ALL]
    straight, first, second = devices(), devices(), devices()
    whole = fed(straight, counts)
    before = fed(first, counts[:6])
    second.restore(first.snapshot())
    assert whole == [*before, *fed(second, counts[6:], 90.0)]
    assert straight.snapshot() == second.snapshot()
