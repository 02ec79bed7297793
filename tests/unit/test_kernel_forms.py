"""Every wording: its row reads its own example, in any envelope, and neighbours stay silent."""

from __future__ import annotations

from typing import Any

import pytest

from collectors.kernel.events import Form, KernelEvent, Line
from collectors.kernel.forms import FORMS, SEARCHED, may_say, said_by
from collectors.kernel.nvlink5 import RULES, decode, reason
from collectors.kernel_log import KernelLog

BEFORE = "Feb 25 13:59:45 n1 kernel: [  985.000000] "


def read(*lines: str) -> list[KernelEvent]:
    log = KernelLog("x")
    found = [*log.feed("\n".join(lines).encode()), *log.finish()]
    return [one for one in found if isinstance(one, KernelEvent)]


def one(line: str) -> KernelEvent:
    (event,) = read(line)
    return event


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_each_row_reads_its_own_example_and_names_where_it_was_seen(form: Form) -> None:
    holds = [row for row in FORMS if row.marker in form.example.lower().encode()]
    first = next(row for row in holds if row.pattern.search(form.example))
    assert form.name == first.name
    assert form.source
    assert form.marker == form.marker.lower()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_each_example_is_found_in_a_whole_log(form: Form) -> None:
    line = (BEFORE + form.example).encode()
    words = [word for word in SEARCHED if word in line.lower()]
    if form.name != "device of the record before" and form.make.__name__ != "nothing":
        assert may_say(line, words)
    said = said_by(Line(text=form.example, message=form.example))
    assert not isinstance(said, str)


@pytest.mark.parametrize(
    "line",
    [
        "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link INIT",
        "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE",
        "mlx5_core 0000:41:00.0 eth0: Link up",
        "mlx5_core 0000:41:00.0: Port module event: module 0, Cable plugged",
        "mlx5_core 0000:41:00.0: print_health_info:458:(pid 0): synd 0x0: ok",
        "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
        "bnxt_en 0000:3b:00.0 ens1f0: NIC Link is Up, 100000 Mbps",
        "amdgpu 0000:03:00.0: amdgpu: PSP is resuming...",
        "amdgpu 0000:03:00.0: amdgpu: 0 uncorrectable hardware errors detected in total in umc",
        "nfs: server 10.0.0.5 OK",
        "EXT4-fs: Remounting filesystem read-write",
        "nvme nvme0: pci function 0000:01:00.0",
        "pcieport 0000:00:01.0: AER: enabled with IRQ 122",
        "EDAC MC0: Giving out device to module skx_edac",
        "rcu: Hierarchical RCU implementation.",
        "oom_reaper: reaped process 13536 (memorymonster), now anon-rss:0kB",
        "systemd[1]: a.service: A process of this unit has been killed by the OOM killer.",
        "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
        "mce: CPU0: Thermal monitoring enabled (TM1)",
        "audit: type=1400 comm=\"bash\" error timeout failure down",
    ],
)  # fmt: skip
def test_an_ordinary_line_says_nothing(line: str) -> None:
    assert [] == read(line)


@pytest.mark.parametrize(
    ("line", "type_", "class_", "severity", "entity"),
    [
        ("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN", "nic", "link_down", "warning",
         "nic:mlx5_5/1"),
        ("mlx5_core 0000:41:00.0 eth0: Link down", "nic", "link_down", "warning", "nic:eth0"),
        ("ice 0000:41:00.0 ens1f0: NIC Link is Down", "nic", "link_down", "warning", "nic:ens1f0"),
        ("mlx5_core 0000:41:00.0: poll_health:852:(pid 0): Fatal error 1 detected", "nic", "health",
         "critical", "pci:0000:41:00"),
        ("EDAC skx MC1: 1 UE memory read error on CPU_SrcID#0", "machine_check", "uncorrected",
         "critical", ""),
        ("{3}[Hardware Error]: event severity: fatal", "machine_check", "uncorrected", "critical",
         ""),
        ("{3}[Hardware Error]: event severity: corrected", "machine_check", "corrected", "info",
         ""),
        ("mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 7: be", "machine_check",
         "uncorrected", "critical", ""),
        ("blk_update_request: critical medium error, dev sdb, sector 20481", "storage", "io_error",
         "critical", "disk:sdb"),
        ("amdgpu 0000:c3:00.0: amdgpu: device lost from bus!", "gpu_lost", "fallen", "critical",
         "pci:0000:c3:00"),
        ("pcieport 0000:80:01.0: pciehp: Slot(3): Card not present", "pcie", "link_down", "warning",
         "pci:0000:80:01"),
        ("rcu: INFO: rcu_preempt self-detected stall on CPU", "os", "rcu_stall", "warning", ""),
        ("thermal thermal_zone0: critical temperature reached (105 C), shutting down", "thermal",
         "critical", "critical", ""),
    ],
)  # fmt: skip
def test_a_wording_gives_type_class_severity_and_entity(
    line: str, type_: str, class_: str, severity: str, entity: str
) -> None:
    event = one(line)
    assert (type_, class_, severity) == (event.type, event.class_, event.severity)
    assert entity == event.event("n1", 1.0).entity


LOST = ("NVRM: The NVIDIA GPU 0000:18:00.0",
        "NVRM: (PCI ID: 10de:2901) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.")  # fmt: skip


@pytest.mark.parametrize(
    "lines",
    [
        LOST,
        tuple(f"[ 1843.308145] {line}" for line in LOST),
        (LOST[0], "usb 1-1: between", *LOST[1:]),
        ("4,12,1,-;" + "\\x0a".join(LOST),),
        ("NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.",),
        ("NVRM: GPU at PCI:0000:18:00: GPU-efbdfde9", "NVRM: GPU 0000:18:00.0: GPU has fallen off"
         " the bus."),
    ],
)  # fmt: skip
def test_a_lost_gpu_is_told_once_however_many_lines_say_it(lines: tuple[str, ...]) -> None:
    (event,) = read(*lines)
    assert ("gpu_lost", "critical", 79, "0000:18:00") == (
        event.type, event.severity, event.code, event.pci,
    )  # fmt: skip


def test_a_gpu_that_is_only_named_is_not_lost_and_lends_its_name_to_no_far_line() -> None:
    assert [] == read(LOST[0], "NVRM: installed in this system is not supported")
    far = read(LOST[0], *["usb 1-1: new"] * 20, LOST[2])
    assert [None] == [event.pci for event in far]


def test_a_failed_start_is_no_xid_62_and_under_an_xid_of_that_gpu_no_news() -> None:
    failed = "NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x62:0x65:2168)"
    assert ("gpu", None, "init_failed", "0000:02:00") == (
        one(failed).type, one(failed).code, one(failed).class_, one(failed).pci,
    )  # fmt: skip
    xid = "NVRM: Xid (PCI:0000:02:00): 143, Error status 0x65 while polling for FSP boot complete"
    assert [143] == [event.code for event in read(xid, failed)]
    assert [143, None] == [event.code for event in read(xid, failed.replace("02:00", "03:00"))]
    assert [143, None] == [event.code for event in read(xid, *["usb 1-1: new"] * 20, failed)]


def test_a_number_alone_above_the_whole_line_is_the_same_xid() -> None:
    bare = "NVRM: Xid (PCI:0000:b3:00.0): 79"
    whole = f"{bare}, pid=12345, GPU has fallen off the bus."
    assert [12345] == [event.pid for event in read(bare, whole)]
    assert [None] == [event.pid for event in read(bare)]
    assert [79, 48] == [event.code for event in read(bare, whole.replace("79", "48"))]


def test_a_crash_takes_its_process_from_the_lines_below_and_is_told_once() -> None:
    task = "CPU: 0 PID: 1899 Comm: bash Not tainted 4.7.0 #1"
    crash = "BUG: unable to handle kernel NULL pointer dereference at 0000000000000000"
    (event,) = read(crash, "IP: [<ffff>] x", "Oops: 0002 [#1] SMP", task)
    assert ("oops", 1899, "bash", "critical") == (
        event.class_, event.pid, event.process, event.severity,
    )  # fmt: skip
    assert [("oops", 1899)] == [(e.class_, e.pid) for e in read("Oops: 0002 [#1] SMP", task)]
    assert [("panic", None)] == [(e.class_, e.pid) for e in read("Kernel panic - not syncing: x")]
    both = read(crash, "Kernel panic - not syncing: Fatal exception")
    assert ["oops", "panic"] == [event.class_ for event in both]
    assert [("detail", "info", 1899)] == [(e.class_, e.severity, e.pid) for e in read(task)]


def test_two_kills_of_one_log_are_two_events_and_a_group_is_told_from_the_machine() -> None:
    found = read(
        "a invoked oom-killer: gfp_mask=0x0",
        "Task in /docker/1 killed as a result of limit of /docker/1",
        "Killed process 5 (a) total-vm:1kB",
        "b invoked oom-killer: gfp_mask=0x0",
        "Out of memory: Killed process 5 (b) total-vm:1kB",
    )
    assert [("a", "cgroup"), ("b", "system")] == [(e.process, e.class_) for e in found]


def test_link_registers_and_words_are_read() -> None:
    event = one("NVRM: Xid (PCI:0003:00:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal"
                " error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)")  # fmt: skip
    assert ("fatal", 14, "0x10000") == tuple(event.details[k] for k in ("word", "link", "reg2"))
    assert "reg6" in event.details


@pytest.mark.parametrize(
    ("before", "after", "action", "severity"),
    [
        ("0x0 (None)", "0x4 (Drain and Reset)", "drain_and_reset", "critical"),
        ("0x4 (Drain and Reset)", "0x1 (GPU Reset Required)", "reset_gpu", "critical"),
        ("0x0 (None)", "0x2 (Node Reboot Required)", "reboot_node", "critical"),
        ("0x2 (Node Reboot Required)", "0x0 (None)", "none", "info"),
        ("0x0 (None)", "0x3 (Drain P2P)", "drain_peers", "warning"),
        ("0x0 (None)", "0x63 (New)", "unknown", "critical"),
    ],
)
def test_of_a_recovery_action_the_new_value_counts(
    before: str, after: str, action: str, severity: str
) -> None:
    event = one("NVRM: Xid (PCI:0000:55:00): 154, GPU recovery action changed from "
                f"{before} to {after}")  # fmt: skip
    assert (action, severity) == (event.details["action"], event.severity)


@pytest.mark.parametrize(
    ("text", "severity", "class_"),
    [
        ("24007, Fatal, Link 28 sourcetrack timeout error (First)", "critical", "fatal"),
        ("20009, Non-fatal, Link 04 RX Short Error Rate", "warning", "nonfatal"),
        ("20034, Severity 1 Engine instance 60 Sub-engine instance 00", "info", "detail"),
        ("20034, Data {0x10000000, 0x10000000}", "info", "detail"),
        ("22003, Minion halt", "critical", "fatal"),
        ("26008, SOE Watchdog error", "warning", "unknown"),
    ],
)
def test_an_sxid_is_as_grave_as_its_word_says(text: str, severity: str, class_: str) -> None:
    event = one(f"nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): {text}")
    assert ("sxid", "0000:c3:00") == (event.type, event.pci)
    assert (severity, class_) == (event.severity, event.class_)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.code} {rule.unit} {rule.action}")
def test_each_nvlink_rule_is_reached_by_each_of_its_words(rule: Any) -> None:
    for status in rule.statuses or (0,):
        interrupt = status << 20 if rule.unit == "NETIR_LINK_" else 0
        for fatal in (True, False) if rule.fatal is None else (rule.fatal,):
            assert rule.action == decode(rule.code, rule.unit + "X", fatal, interrupt, status)


def test_a_word_that_contradicts_the_table_wins() -> None:
    assert "log" == decode(145, "RLW_REMAP", False, 0, 0x40)
    assert "reset_gpu" == decode(145, "RLW_REMAP", True, 0, 0x1)
    assert "reset_gpu" == decode(144, "SAW_EGR", True, None, None)
    assert 0b000100 == reason(0x004505C6)
