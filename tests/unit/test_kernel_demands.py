"""What users of other monitors asked for, by label: kernel lines through the parser to the rule."""

from __future__ import annotations

import pytest

from collectors.kernel.times import Clock
from collectors.kernel_log import KernelLog, records
from detectors.base import Sighting
from detectors.critical import Critical
from telemetry.records import Event
from telemetry.settings import EngineSettings
from tests.fakes import cluster

AT_S = 1_772_027_985.0
VIEW = cluster()


def told(*lines: str, gap_s: float = 1.0, boot_s: float = AT_S) -> list[Event]:
    """The lines of node n00, `gap_s` apart."""
    text = "\n".join(f"[{gap_s * at:12.6f}] {line}" for at, line in enumerate(lines))
    log = KernelLog("kernel/n00.log", Clock(boot_s=boot_s))
    said = list(records(log, [text.encode()], "n00"))
    events = [one for one in said if isinstance(one, Event)]
    assert len(events) == len(said)
    return events


def judged(events: list[Event]) -> list[Sighting]:
    detector = Critical(EngineSettings())
    return [seen for event in events for seen in detector.on_event(event, VIEW, event.at)]


def xid(code: int, rest: str = "", pci: str = "0000:c1:00") -> str:
    return f"NVRM: Xid (PCI:{pci}): {code}{rest}"


def test_b1_a_gpu_off_the_bus_is_told_by_its_address_alone() -> None:
    """No UUID is looked up, so none can be missing."""
    (event,) = told(xid(79, ", pid='<unknown>', name=<unknown>, GPU has fallen off the bus."))
    assert (79, "pci:0000:c1:00") == (event.code, event.entity)
    (seen,) = judged([event])
    assert (True, "gpu_lost", "pci:0000:c1:00") == (seen.certain, seen.kind, seen.entity)


FAMILIES = {
    13: ", pid=1, name=a, Graphics SM Warp Exception on (GPC 1, TPC 0): Out Of Range Address",
    31: ", pid=1, name=a, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted",
    43: ", pid=1, name=a, Ch 00000008",
    45: ", pid=1, name=a, Ch 0000000c caused by previous Xid 149",
    48: ", pid=1, name=a, An uncorrectable double bit error (DBE) has been detected",
    61: ", pid=1, name=a, 0cec(3098) 00000000 00000000",
    62: ", pid=1, name=a, 203c(3090) 85020c09 ffffbd53",
    63: ", pid=1, name=a, Row Remapper: New row marked for remapping, reset gpu to activate.",
    64: ", pid=1, name=a, Row Remapper Error: (0x0) - All reserved rows for bank are remapped",
    74: ", pid=1, name=a, NVLink: fatal error detected on link 1",
    79: ", pid=1, name=a, GPU has fallen off the bus.",
    92: ", pid=1, name=a, Disabling ECC single-bit error interrupts in framebuffer",
    94: ", pid=1, name=a, Contained: SM (0x1). RST: No, D-RST: No",
    95: ", pid=1, name=a, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
    109: ", pid=1, name=a, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005",
    119: ", pid=1, name=a, Timeout after 6s of waiting for RPC response from GPU4 GSP!",
    120: ", pid=1, name=a, GSP task exception: load access fault",
    140: ", pid=1, name=a, An uncorrectable ECC error detected DRAM:-2147483648, LTC:0",
    143: ", pid=1, name=a, Error status 0x65 while polling for FSP boot complete",
    144: ", pid=1, name=a, SAW_MVB Fatal XC0 i0 Link 00 (0x00000001 0x00000002)",
    145: ", pid=1, name=a, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00000001)",
    146: ", pid=1, name=a, TLW_CTRL Fatal XC0 i0 Link 00 (0x00000009 0x00000004)",
    147: ", pid=1, name=a, TREX Nonfatal XC0 i0 Link 00 (0x0000000e 0x00000001)",
    148: ", pid=1, name=a, NVLPW_CTRL/NVLPW Nonfatal XC0 i0 Link 00 (0x0000000f 0x80000000)",
    149: ", pid=1, name=a, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)",
    150: ", pid=1, name=a, MSE_WATCHDOG Fatal XC0 i0 Link 00 (0x00000000 0x00000001)",
    154: ", pid=1, name=a, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot)",
    160: ", pid=1, name=a, Marking Channel 3 in FBPA 2 along with its pair for repair.",
    162: ", pid=1, name=a, Power Smoothing hardware re-engaged",
    163: ", pid=1, name=a, Power Smoothing hardware disengaged",
}  # fmt: skip


@pytest.mark.parametrize("code", FAMILIES)
def test_b2_each_family_gives_its_code_address_pid_and_name(code: int) -> None:
    (event,) = told(xid(code, FAMILIES[code]))
    assert ("xid", code, "pci:0000:c1:00") == (event.type, event.code, event.entity)
    assert (1, "a") == (event.pid, event.process)


def test_b2_the_fields_of_a_link_line_are_not_swapped() -> None:
    (event,) = told(xid(149, ", NETIR_LINK_EVT Fatal XC1 i0 Link 08 (0x004505c6 0x00000001 0x2)"))
    want = {
        "unit": "NETIR_LINK_EVT", "word": "fatal", "xc": 1, "injected": 0, "link": 8,
        "action": "check_link", "words": "0x004505c6 0x00000001 0x2", "sub_code": 4,
    }  # fmt: skip
    assert want == event.details


@pytest.mark.parametrize("injected", ["i1", "i 2", "i 01"])
def test_b2_an_injected_fault_accuses_nobody(injected: str) -> None:
    line = xid(149, f", NETIR_LINK_EVT Fatal XC0 {injected} Link 08 (0x004505c6 0x00000000)")
    events = told(*[line] * 6)
    assert {("injected", "info")} == {(event.class_, event.severity) for event in events}
    assert [] == judged(events)
    assert judged(told(line.replace(injected, "i0")))


@pytest.mark.parametrize(
    ("line", "severity", "word", "link", "action"),
    [
        (xid(145, ", RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)"), "warning",
         "nonfatal", 13, "log"),
        (xid(149, ", NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000)"), "critical", "fatal", -1,
         "report_if_alone"),
        (xid(149, ", NETIR_LINK_EVT Fatal XC0 i0 Link 09 (0x025525c6 0x00000000)"), "warning",
         "fatal", 9, "check_peer"),
    ],
)  # fmt: skip
def test_b3_the_line_s_own_word_and_sub_code_count(
    line: str, severity: str, word: str, link: int, action: str
) -> None:
    (event,) = told(line)
    assert (severity, word, link, action) == (
        event.severity, event.details["word"], event.details["link"], event.details["action"],
    )  # fmt: skip
    assert [False] == [seen.certain for seen in judged([event])]


def test_b4_a_pending_remap_waits_and_a_failed_one_is_a_fault() -> None:
    pending, failed, again = told(
        xid(63, FAMILIES[63]), xid(64, FAMILIES[64], "0000:c2:00"),
        xid(64, ", Row Remapper: (0x0) - Attempting to remap a row that is already pending",
            "0000:c3:00"),
    )  # fmt: skip
    assert {"remap": "pending", "action": "reset_gpu_later"} == pending.details == again.details
    assert {"remap": "failed", "action": "reset_gpu"} == failed.details
    assert ("info", "critical", "warning") == (pending.severity, failed.severity, again.severity)
    assert [False, True, False] == [seen.certain for seen in judged([pending, failed, again])]


def test_b5_a_contained_error_restarts_the_app_and_only_its_repeats_accuse_the_gpu() -> None:
    once = judged(told(xid(94, FAMILIES[94])))
    assert [("xid_94", "evidence", False)] == [(s.metric, s.role, s.certain) for s in once]
    daily = judged(told(*[xid(94, FAMILIES[94])] * 5, gap_s=1_200.0))
    assert ["xid_94_repeated"] == [seen.metric for seen in daily if seen.role == "fault"]
    assert not any(seen.certain for seen in daily)
    hourly = judged(told(*[xid(94, FAMILIES[94])] * 5, gap_s=600.0))
    assert [True] == [seen.certain for seen in hourly if seen.role == "fault"]
    (uncontained,) = judged(told(xid(95, FAMILIES[95])))
    assert uncontained.certain


def test_b14_seconds_since_boot_become_wall_time_with_the_boot_s_own_start() -> None:
    (event,) = told(xid(79), boot_s=AT_S - 123_456.7)
    assert AT_S - 123_456.7 == event.at
    old, new = told(xid(48), xid(79), gap_s=86_400.0)
    assert 86_400.0 == new.at - old.at  # what the ring buffer kept is as old as it is


def test_b18_one_code_on_two_gpus_is_two_faults() -> None:
    found = judged(told(xid(48, pci="0000:1a:00"), xid(48, pci="0000:9b:00"), gap_s=0.0))
    assert ["pci:0000:1a:00", "pci:0000:9b:00"] == [seen.entity for seen in found]
    assert [(True, 1)] * 2 == [(seen.certain, seen.events) for seen in found]


def test_a_crashed_program_accuses_no_host() -> None:
    (event,) = told("python3[4711]: segfault at 0 ip 00007f53772fbfc4 sp 0 error 4 in libc.so.6")
    (seen,) = judged([event])
    assert ("evidence", "unknown", "job_hang") == (seen.role, seen.cause, seen.kind)


@pytest.mark.parametrize(
    ("line", "role", "kind"),
    [
        ("NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.", "fault", "gpu_lost"),
        ("NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x62:0x65:2168)", "fault", "gpu_fault"),
        ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff", "fault", "storage"),
        ("nvme nvme1: I/O 775 QID 2 timeout, aborting", "evidence", "storage"),
        ("watchdog: BUG: soft lockup - CPU#0 stuck for 27s! [a:1]", "evidence", "host"),
        ("Memory cgroup out of memory: Kill process 1 (a) score 1 or", "evidence", "host"),
        ("CPU1: Core temperature above threshold, cpu clock throttled", "evidence", "gpu_thermal"),
        ("EDAC MC0: 1 CE read ECC error on CPU#0", None, None),
    ],
)
def test_a_kernel_line_is_evidence_unless_the_machine_is_broken(
    line: str, role: str | None, kind: str | None
) -> None:
    found = judged(told(line))
    assert ([] if role is None else [(role, kind)]) == [(seen.role, seen.kind) for seen in found]
    assert (kind == "gpu_lost") == any(seen.certain for seen in found)
