"""Xids, lost devices, failures in logs and link flaps, each beside its look-alike."""

from __future__ import annotations

import numpy as np
import pytest

from detectors.base import Sighting
from detectors.critical import Critical
from telemetry.settings import CriticalSettings, EngineSettings
from tests.fakes import cluster, event, tick

VIEW = cluster()
GPU = "pci:0000:c3:00"


def critical(conditions_max: int = 100) -> Critical:
    return Critical(EngineSettings(critical=CriticalSettings(conditions_max=conditions_max)))


def xid(detector: Critical, code: int, at: float, entity: str = GPU) -> list[Sighting]:
    line = event("xid", at, code=code, entity=entity, text=f"NVRM: Xid (PCI:0000:c3:00): {code}")
    return list(detector.on_event(line, VIEW, at))


@pytest.mark.parametrize(
    ("code", "kind"), [(79, "gpu_lost"), (48, "gpu_memory"), (95, "gpu_memory")]
)
def test_a_fatal_xid_is_certain_at_once(code: int, kind: str) -> None:
    (seen,) = xid(critical(), code, 10.0)

    assert (True, "fault", kind, "critical") == (seen.certain, seen.role, seen.kind, seen.severity)
    assert ("n00", GPU, "j1", 10.0) == (seen.node, seen.entity, seen.job, seen.onset_s)


@pytest.mark.parametrize(
    ("code", "cause"),
    [(13, "user_code"), (31, "user_code"), (43, "user_code"), (45, "unknown"), (999, "unknown")],
)
def test_an_application_or_unknown_xid_is_evidence_and_never_certain(code: int, cause: str) -> None:
    (seen,) = xid(critical(), code, 10.0)

    assert (False, "evidence", cause) == (seen.certain, seen.role, seen.cause)


def test_a_repeat_counts_up_and_two_gpus_are_two_sightings() -> None:
    detector = critical()
    xid(detector, 79, 10.0)

    (again,) = xid(detector, 79, 20.0)
    (other,) = xid(detector, 79, 30.0, "pci:0000:d3:00")

    assert (2, 10.0) == (again.events, again.onset_s)
    assert (1, 30.0) == (other.events, other.onset_s)


def test_the_same_hardware_xid_five_times_a_day_is_a_fault_an_application_error_is_not() -> None:
    detector = critical()

    link = [seen for i in range(5) for seen in xid(detector, 74, 100.0 * i)]
    app = [seen for i in range(5) for seen in xid(detector, 31, 100.0 * i)]
    rare = [seen for i in range(5) for seen in xid(detector, 80, 86_401.0 * i)]

    assert [("xid_74_repeated", "hardware")] == [
        (s.metric, s.cause) for s in link if s.role == "fault"
    ]
    assert [] == [s for s in app + rare if s.role == "fault"]


def test_a_condition_ends_when_nothing_was_heard_of_it_for_clear_s() -> None:
    detector = critical()
    xid(detector, 79, 10.0)

    assert [] == list(detector.advance(610.0, VIEW))
    assert [("xid_79", False)] == [(s.metric, s.active) for s in detector.advance(611.0, VIEW)]
    assert [] == list(detector.advance(612.0, VIEW))


def test_an_exception_in_user_code_is_a_fault_a_collective_that_broke_is_a_symptom() -> None:
    user = event("process", 5.0, class_="user_code", text="IndexError", job="j9", entity="rank:3")
    nccl = event("process", 5.0, class_="nccl", text="NCCL WARN timeout")

    (fault,) = critical().on_event(user, VIEW, 5.0)
    (symptom,) = critical().on_event(nccl, VIEW, 5.0)

    assert ("fault", "user_error", "user_code", "j9") == (
        fault.role, fault.kind, fault.cause, fault.job,
    )  # fmt: skip
    assert "IndexError" == fault.text
    assert ("evidence", "unknown") == (symptom.role, symptom.cause)


def test_kernel_alarms_by_type_and_severity() -> None:
    detector = critical()

    (lost,) = detector.on_event(event("gpu_lost", 1.0, severity="warning"), VIEW, 1.0)
    (hot,) = detector.on_event(event("thermal", 1.0), VIEW, 1.0)
    (warm,) = detector.on_event(event("thermal", 1.0, node="n01", severity="warning"), VIEW, 1.0)
    (switch,) = detector.on_event(event("sxid", 1.0, code=12028), VIEW, 1.0)

    assert (True, "gpu_lost", "critical") == (lost.certain, lost.kind, lost.severity)
    assert (False, "fault", "gpu_thermal") == (hot.certain, hot.role, hot.kind)
    assert "evidence" == warm.role
    assert "sxid_12028" == switch.metric
    assert () == detector.on_event(event("os", 1.0, severity="info"), VIEW, 1.0)


def test_each_tick_with_a_link_down_is_one_event_and_only_those_of_the_window_count() -> None:
    detector = critical()

    def at(time_s: float, rate: float) -> list[int]:
        values = np.array([[rate, 0.0, np.nan]])
        one = tick("nic_link_downed_total", values, ["n00", "n01", "n02"], time_s)
        return [seen.events for seen in detector.on_tick(one, VIEW, time_s)]

    assert [1] == at(100.0, 0.1)
    assert [] == at(110.0, 0.0)
    assert [1] == at(500.0, 0.2)
    assert [2] == at(700.0, 0.1)
    assert [2] == at(700.0, 0.1)  # the same tick again


def test_link_down_lines_of_the_kernel_count_like_the_counter() -> None:
    detector = critical()
    down = event("nic", 10.0, class_="link_down", entity="nic:mlx5_3/1", severity="warning")

    (seen,) = detector.on_event(down, VIEW, 10.0)

    assert ("nic_flap", "network", "fault", False) == (
        seen.kind, seen.cause, seen.role, seen.certain,
    )  # fmt: skip


def test_a_tick_without_the_counter_or_without_history_says_nothing() -> None:
    detector = critical()
    other = tick("nic_ack_timeouts_total", np.array([[9.0]]), ["n00"], 10.0)
    empty = tick("nic_link_downed_total", np.empty((0, 1)), ["n00"], 10.0)

    assert () == detector.on_tick(other, VIEW, 10.0)
    assert () == detector.on_tick(empty, VIEW, 10.0)


def test_conditions_are_bounded_the_oldest_is_cleared() -> None:
    detector = critical(conditions_max=1)
    xid(detector, 79, 10.0)

    gone, new = xid(detector, 79, 20.0, "pci:0000:d3:00")

    assert (False, GPU) == (gone.active, gone.entity)
    assert (True, "pci:0000:d3:00") == (new.active, new.entity)


def test_repeat_counts_are_bounded() -> None:
    detector = critical(conditions_max=1)
    for i in range(4):
        xid(detector, 74, 10.0 * i)
    xid(detector, 74, 50.0, "pci:0000:d3:00")

    assert [] == [seen for seen in xid(detector, 74, 60.0) if seen.role == "fault"]


def exporter_says(detector: Critical, code: int, at: float) -> list[Sighting]:
    said = event("xid", at, code=code, entity="gpu:GPU-1", source="exporter")
    return list(detector.on_event(said, VIEW, at))


def test_a9_an_xid_that_only_an_exporter_says_is_a_warning_and_isolates_nobody() -> None:
    (seen,) = exporter_says(critical(), 94, 100.0)
    assert ("evidence", "warning", False) == (seen.role, seen.severity, seen.certain)

    (worst,) = exporter_says(critical(), 79, 100.0)
    assert ("evidence", "warning", False) == (worst.role, worst.severity, worst.certain)


@pytest.mark.parametrize(("at", "told"), [(41.0, 0), (159.0, 0), (161.0, 1)])
def test_a9_an_exporter_that_repeats_the_kernel_within_a_minute_tells_nothing_new(
    at: float, told: int
) -> None:
    detector = critical()
    (kernel,) = xid(detector, 79, 100.0)

    assert kernel.certain
    assert told == len(exporter_says(detector, 79, at))


def test_a9_the_kernel_s_word_after_the_exporter_s_has_its_whole_effect() -> None:
    detector = critical()
    exporter_says(detector, 79, 100.0)

    (kernel,) = xid(detector, 79, 110.0)
    assert (True, "fault") == (kernel.certain, kernel.role)


def test_what_the_exporter_repeats_does_not_count_as_a_repeat() -> None:
    detector = critical()
    said = [seen for i in range(6) for seen in exporter_says(detector, 74, 100.0 * i)]
    assert ["evidence"] * 6 == [seen.role for seen in said]


def test_a_restart_does_not_forget_what_the_kernel_said() -> None:
    before, after = critical(), critical()
    xid(before, 79, 100.0)
    after.restore(before.snapshot())
    assert [] == exporter_says(after, 79, 120.0)


def test_a_restart_between_two_events_changes_nothing() -> None:
    straight, cut, resumed = critical(), critical(), critical()
    for detector in (straight, cut):
        xid(detector, 74, 10.0)
        detector.on_event(event("nic", 11.0, class_="link_down"), VIEW, 11.0)
    resumed.restore(cut.snapshot())

    for detector in (straight, resumed):
        xid(detector, 74, 20.0)
    assert straight.snapshot() == resumed.snapshot()
    assert list(straight.advance(900.0, VIEW)) == list(resumed.advance(900.0, VIEW))
