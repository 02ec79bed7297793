"""Xids, lost devices, failures in logs and link flaps, each beside its look-alike."""

from __future__ import annotations

import msgspec
import pytest

from detectors.base import Sighting
from detectors.critical import EACH, Critical
from telemetry.records import Control, Event, EventType, Severity
from telemetry.settings import CriticalSettings, EngineSettings
from tests.fakes import FakeView, cluster, event

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
    assert [] == detector.on_event(event("os", 1.0, severity="info"), VIEW, 1.0)


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
    assert ["evidence"] * EACH == [seen.role for seen in said]


def test_a_restart_does_not_forget_what_the_kernel_said() -> None:
    before, after = critical(), critical()
    xid(before, 79, 100.0)
    after.restore(before.snapshot())
    assert [] == exporter_says(after, 79, 120.0)


def test_a_restart_between_two_events_changes_nothing() -> None:
    straight, cut, resumed = critical(), critical(), critical()
    for detector in (straight, cut):
        xid(detector, 74, 10.0)
        detector.on_event(event("nic", 11.0, class_="health"), VIEW, 11.0)
    resumed.restore(cut.snapshot())

    for detector in (straight, resumed):
        xid(detector, 74, 20.0)
    assert straight.snapshot() == resumed.snapshot()
    assert list(straight.advance(900.0, VIEW)) == list(resumed.advance(900.0, VIEW))


# -- demands


def line(code: int, at: float, gpu: str = GPU, node: str = "n00", text: str = "", **more: object
         ) -> Event:  # fmt: skip
    one = event("xid", at, node, code=code, entity=gpu, text=text or f"NVRM: Xid ({gpu}): {code}")
    return msgspec.structs.replace(one, **more)


def told(detector: Critical, *lines: Event, view: FakeView = VIEW) -> list[Sighting]:
    return [seen for one in lines for seen in detector.on_event(one, view, one.at)]


def gpu(place: int) -> str:
    return f"pci:0000:{place:02x}:00"


def faults(said: list[Sighting]) -> list[tuple[str, str, bool]]:
    return [(s.metric, s.entity, s.certain) for s in said if s.role == "fault" and s.active]


def test_a7_a_later_code_does_not_mask_the_root() -> None:
    """The kernel says 62 and then 45, the exporter only the last: 45."""
    detector = critical()
    said = told(detector, line(62, 100.0), line(45, 100.8))
    late = told(detector, line(45, 105.0, "gpu:GPU-1", source="exporter"))

    assert [("xid_62", GPU, True)] == faults(said)
    assert "echo of Xid 62" in said[-1].text
    assert [] == late


FATAL_149 = {"word": "fatal", "action": "reset_gpu"}


def test_b7_a_root_and_its_echoes_are_one_story() -> None:
    """149 on dc:00, then ten 45s on four GPUs within two seconds."""
    detector = critical()
    root = line(149, 100.0, "pci:0000:dc:00", severity="critical", details=FATAL_149)
    echoes = [line(45, 100.2 + 0.2 * i, gpu(i % 4)) for i in range(10)]

    said = told(detector, root, *echoes)

    assert {("xid_149", "pci:0000:dc:00")} == {f[:2] for f in faults(said)}
    assert said[-1].role == "evidence"
    assert all("echo of Xid 149" in s.text for s in said[-3:])


def test_b7_a_fatal_link_error_is_proven_by_the_channels_that_it_tore_down() -> None:
    root = line(149, 100.0, severity="critical", details=FATAL_149)
    alone, torn = critical(), critical()

    assert [False] == [f[2] for f in faults(told(alone, root))]
    assert [False, True] == [f[2] for f in faults(told(torn, root, line(45, 101.0)))]
    soft = line(149, 100.0, severity="warning", details={"word": "nonfatal"})
    assert [] == faults(told(critical(), soft, line(45, 101.0)))


def test_45_alone_echoes_nothing_and_accuses_nobody() -> None:
    (seen,) = told(critical(), line(45, 100.0))
    assert ("evidence", "unknown") == (seen.role, seen.cause)
    assert "echo" not in seen.text


def test_b6_an_application_error_on_many_gpus_of_one_job_is_its_own_code() -> None:
    detector = critical()
    said = told(detector, *[line(31, 100.0 + 0.1 * i, gpu(i)) for i in range(8)])
    spread = [s for s in said if s.role == "fault"]

    assert {("user_error", "user_code", "", "j1", False)} == {
        (s.kind, s.cause, s.node, s.job, s.certain) for s in spread
    }
    assert [2, 3, 4, 5] == [s.events for s in spread]  # what comes then is said a minute later
    assert [8] == [s.events for s in detector.advance(161.0, VIEW) if s.role == "fault"]
    assert [] == [s for s in detector.advance(500.0, VIEW) if s.role == "fault" and s.active]


def test_b6_application_errors_of_peers_after_a_dead_gpu_are_not_the_user_s() -> None:
    lines = [line(79, 99.0, gpu(0)), *[line(31, 100.0 + 0.1 * i, gpu(i)) for i in range(8)]]
    assert {"xid_79"} == {f[0] for f in faults(told(critical(), *lines))}


def test_b6_an_application_error_on_one_gpu_in_three_jobs_of_a_day_accuses_the_gpu() -> None:
    detector, said = critical(), []
    for place, job in enumerate(("a", "b", "c")):
        said += told(detector, line(31, 20_000.0 * place, job=job))

    assert ("xid_31_across_jobs", GPU, False) in faults(said)
    assert [] == faults(told(critical(), *[line(31, 1e5 * i, job=f"{i}") for i in range(3)]))


WARP = "Graphics SM Warp Exception on (GPC {}, TPC {}, SM 0): Out Of Range Address"


def bursts(code: int, texts: list[str], apart_s: float = 3_600.0) -> list[tuple[str, str, bool]]:
    detector, said = critical(), []
    for place, text in enumerate(texts):
        said += told(detector, line(code, apart_s * place, text=text))
        said += detector.advance(apart_s * place + 181.0, VIEW)
    return faults(said)


def test_13_twice_at_one_place_of_one_gpu_is_to_be_diagnosed_elsewhere_it_is_user_code() -> None:
    same, other = [WARP.format(3, 2)] * 2, [WARP.format(3, 2), WARP.format(1, 0)]

    assert [("xid_13_same_place", GPU, False)] == bursts(13, same)
    assert [] == bursts(13, other)
    assert [] == bursts(13, ["no place is named"] * 2)
    assert [] == bursts(13, same, apart_s=86_401.0)


def test_31_in_two_bursts_on_one_gpu_is_to_be_diagnosed_many_lines_of_one_burst_are_not() -> None:
    assert [("xid_31_same_place", GPU, False)] == bursts(31, ["", ""])
    one = critical()
    told(one, *[line(31, float(i)) for i in range(50)])
    assert [] == faults(list(one.advance(300.0, VIEW)))


def test_b8_a_storm_of_one_code_says_and_keeps_little() -> None:
    """800,000 lines in ten minutes of 29 distinct kinds, scaled down to 20,000."""
    detector, said = critical(), []
    sizes = []
    for i in range(20_000):
        at = 600.0 * i / 20_000
        said += told(detector, line(95 if i % 29 else 94, at, gpu(i % 29)))
        if i % 100 == 0:
            said += detector.advance(at, VIEW)
        if i in (4_999, 19_999):
            sizes.append(len(msgspec.json.encode(detector.snapshot())))
    said += detector.advance(1_300.0, VIEW)

    assert sizes[1] <= 1.05 * sizes[0]
    assert len(said) <= 29 * (5 + 12 + 11 + 2)
    last = [s for s in said if s.metric == "xid_95" and s.active and s.entity == gpu(1)][-1]
    assert 20_000 // 29 <= last.events <= 20_000 // 29 + 1
    assert f"{last.events} times" in last.text


def test_b9_a_recovery_ends_what_it_recovers_from() -> None:
    detector = critical()
    (off,) = told(detector, line(163, 100.0))
    said = told(detector, line(162, 200.0))

    assert off.active
    assert [("xid_163", False), ("xid_162", True)] == [(s.metric, s.active) for s in said]
    assert [("xid_163", True)] == [
        (s.metric, s.active) for s in told(critical(), line(162, 1.0), line(163, 2.0))[1:]
    ]


def test_b9_the_pairs_are_a_setting() -> None:
    rules = EngineSettings(critical=CriticalSettings(cancels=("66:74",)))
    said = told(Critical(rules), line(74, 1.0), line(66, 2.0))
    assert [("xid_74", True), ("xid_74", False), ("xid_66", True)] == [
        (s.metric, s.active) for s in said
    ]


def test_b15_a_condition_ends_by_a_clean_window_a_boot_or_an_operator() -> None:
    def sick() -> Critical:
        detector = critical()
        told(detector, line(79, 100.0, boot_id="one"))
        return detector

    by_time = list(sick().advance(100.0 + 86_400.0, VIEW))
    by_boot = told(
        sick(),
        event("os", 200.0, severity="info"),
        msgspec.structs.replace(event("os", 300.0, severity="info"), boot_id="two"),
    )
    word = Control(at=0.0, node="", source="console", started_at=0.0, seq=0, action="released",
                   target="n00")  # fmt: skip
    by_hand = list(sick().on_control(word, ["n00"], 200.0))

    assert [[("xid_79", False)]] * 3 == [
        [(s.metric, s.active) for s in said] for said in (by_time, by_boot, by_hand)
    ]


@pytest.mark.parametrize(
    ("type_", "class_", "severity", "kind", "certain"),
    [
        ("storage", "nvme_disabled", "critical", "storage", True),
        ("storage", "fs_read_only", "critical", "storage", True),
        ("storage", "io_error", "critical", "storage", False),
        ("storage", "no_space", "warning", "storage", False),
        ("os", "panic", "critical", "host", False),
        ("os", "hard_lockup", "critical", "host", False),
        ("oom", "system", "critical", "host", False),
        ("machine_check", "uncorrected", "critical", "host", False),
    ],
)
def test_host_faults(
    type_: EventType, class_: str, severity: Severity, kind: str, certain: bool
) -> None:
    (seen,) = told(critical(), event(type_, 1.0, class_=class_, severity=severity))
    assert ("fault", kind, certain) == (seen.role, seen.kind, seen.certain)


def test_two_kinds_of_line_on_one_disk_prove_it_one_kind_does_not() -> None:
    def disk(class_: str, at: float, entity: str = "disk:nvme0n1") -> Event:
        return event("storage", at, class_=class_, entity=entity)

    alone = told(critical(), *[disk("io_error", float(i)) for i in range(9)])
    both = told(critical(), disk("io_error", 1.0), disk("fs_error", 2.0))
    apart = told(critical(), disk("io_error", 1.0), disk("fs_error", 2.0, "disk:sda"))

    assert (False, True, False) == tuple(any(s.certain for s in s_) for s_ in (alone, both, apart))


def test_a_soft_lock_up_is_evidence_three_of_them_are_a_fault() -> None:
    def stuck(at: float) -> Event:
        return event("os", at, class_="soft_lockup", severity="warning")

    assert [] == faults(told(critical(), stuck(1.0), stuck(100.0)))
    assert [("os_soft_lockup_repeated", "", False)] == faults(
        told(critical(), stuck(1.0), stuck(100.0), stuck(200.0))
    )


def test_c11_a_weak_sign_on_four_nics_isolates_nobody() -> None:
    """GB300: a check says that a character device is missing while the traffic flows."""
    said = [
        seen
        for i in range(4)
        for seen in told(
            critical(), event("nic", 1.0, class_="command_timeout", entity=f"nic:mlx5_{i}/1",
                              severity="warning")
        )
    ]  # fmt: skip
    assert {("evidence", False)} == {(s.role, s.certain) for s in said}


def test_a_processor_that_is_cool_again_ends_its_alarm() -> None:
    hot = event("thermal", 1.0, class_="throttled", severity="warning")
    cool = event("thermal", 9.0, class_="normal", severity="info")
    assert [True, False] == [s.active for s in told(critical(), hot, cool)]
