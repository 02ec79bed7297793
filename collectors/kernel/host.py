"""The machine itself: PCIe, machine checks, memory, heat, and the kernel's own falls."""

from __future__ import annotations

import re
from dataclasses import replace

from collectors.kernel.events import (
    Form,
    KernelEvent,
    Line,
    Part,
    plain,
    read_pid,
    read_process,
)  # fmt: skip

_I = re.IGNORECASE
_ADDRESS = r"(?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"


def _row(
    name: str, marker: bytes, pattern: str, class_: str, example: str, **changes: object
) -> Form:
    base = Form(
        name=name, marker=marker, class_=class_, make=plain, pattern=re.compile(pattern, _I),
        example=example, source="public issue threads",
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def _task(form: Form, found: re.Match[str], line: Line) -> Part:
    return Part(
        kind="task", line=line, pid=read_pid(found["pid"]), process=read_process(found["process"])
    )


def _oops(form: Form, found: re.Match[str], line: Line) -> Part:
    return Part(kind="oops", line=line)


def _device(form: Form, found: re.Match[str], line: Line) -> Part:
    return Part(kind="device", line=line, pci=plain(form, found, line).pci)


def _check(form: Form, found: re.Match[str], line: Line) -> KernelEvent:
    """Registers of a machine check: news only by the words that they hold."""
    said, text = plain(form, found, line), line.message.lower()
    if "corrected" in text.replace("uncorrected", "") or "logged" in text:
        return replace(said, class_="corrected")
    bad = re.search(r"severity: (?:fatal|recoverable)|uncorrected|machine check exception"
                    r"|processor context corrupt", text)  # fmt: skip
    return replace(said, severity="critical", class_="uncorrected") if bad is not None else said


PCIE: tuple[Form, ...] = (
    _row("PCIe cannot recover", b"aer: ", rf"{_ADDRESS}: AER: can't recover", "cannot_recover",
         "nvidia 0000:03:00.0: AER: can't recover (no error_detected callback)", type="pcie",
         severity="critical"),
    _row("PCIe error, corrected", b"pcie bus error",
         rf"{_ADDRESS}: (?:AER: )?PCIe Bus Error: severity=Correct(?:able|ed)", "corrected",
         "pcieport 0000:00:03.1: PCIe Bus Error: severity=Correctable, type=Data Link Layer,"
         " (Transmitter ID)", type="pcie", severity="info"),
    _row("PCIe error, fatal", b"pcie bus error",
         rf"{_ADDRESS}: (?:AER: )?PCIe Bus Error: severity=Uncorrect(?:able|ed) \(Fatal\)",
         "uncorrected", "pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Fatal),"
         " type=Transaction Layer, (Requester ID)", type="pcie", severity="critical"),
    _row("PCIe error, not fatal", b"pcie bus error",
         rf"{_ADDRESS}: (?:AER: )?PCIe Bus Error: severity=", "uncorrected",
         "pcieport 0000:00:03.0: AER: PCIe Bus Error: severity=Uncorrected (Non-Fatal),"
         " type=Transaction Layer, (Requester ID)", type="pcie"),
    _row("PCIe error message, corrected", b"aer: ",
         rf"{_ADDRESS}: AER: (?:Multiple )?Correct(?:able|ed) error (?:message )?received",
         "corrected", "pcieport 0000:00:03.1: AER: Correctable error message received from"
         " 0000:00:00.0", type="pcie", severity="info"),
    _row("PCIe error message", b"aer: ",
         rf"{_ADDRESS}: AER: (?:Multiple )?Uncorrect(?:able|ed) \((?:Non-)?Fatal\) error (?:message"
         r" )?received", "uncorrected", "pcieport 0000:00:03.0: AER: Uncorrected (Non-Fatal) error"
         " received: 0000:00:03.0", type="pcie"),
    _row("PCIe link reset", b"aer: ",
         rf"{_ADDRESS}: AER: (?:Root|Downstream) Port link has been reset", "link_reset",
         "pcieport 0000:00:03.0: AER: Root Port link has been reset (0)", type="pcie"),
    _row("PCIe device gone", b"inaccessible",
         rf"{_ADDRESS}: Unable to change power state from \w{{2,8}} to \w{{2,8}}, device"
         r" inaccessible", "inaccessible", "pcieport 0000:04:02.0: Unable to change power state"
         " from D3hot to D0, device inaccessible", type="pcie", severity="critical"),
    _row("PCIe hot-plug", b"pcieport",
         rf"{_ADDRESS}: (?:pciehp: )?Slot\([\w-]{{1,16}}\): (?:Link Down|Card not present)",
         "link_down", "pcieport 0000:80:01.0: pciehp: Slot(3): Link Down", type="pcie"),
    _row("PCIe containment", b"pcieport",
         rf"{_ADDRESS}: (?:DPC: )?containment event", "containment",
         "pcieport 0000:80:01.0: DPC: containment event, status:0x1f01 source:0x0000", type="pcie"),
)  # fmt: skip

THERMAL: tuple[Form, ...] = (
    _row("processor too hot", b"temperature",
         r"CPU\d{1,5}: (?:Core|Package) temperature(?:/power limit)? above threshold", "throttled",
         "CPU1: Core temperature above threshold, cpu clock throttled (total events = 1)",
         type="thermal"),
    _row("processor cool again", b"temperature",
         r"CPU\d{1,5}: (?:Core|Package) temperature/speed normal", "normal",
         "CPU0: Core temperature/speed normal", type="thermal", severity="info"),
    _row("machine too hot", b"temperature",
         r"thermal_zone\d{1,4}: critical temperature reached|thermal: critical temperature",
         "critical", "thermal thermal_zone0: critical temperature reached (105 C), shutting down",
         type="thermal", severity="critical", source="Linux thermal core"),
)  # fmt: skip

MACHINE: tuple[Form, ...] = (
    _row("memory error, not corrected", b"edac ",
         r"EDAC (?:\w{1,16} )?MC\d{1,4}: \d{1,9} UE ", "uncorrected",
         "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0 (channel:0 slot:0)",
         type="machine_check", severity="critical", source="Linux EDAC"),
    _row("memory error, corrected", b"edac ", r"EDAC (?:\w{1,16} )?MC\d{1,4}: \d{1,9} CE ",
         "corrected", "EDAC MC0: 2 CE read ECC error on CPU#0Channel#1_DIMM#1 (channel:1 slot:1)",
         type="machine_check", severity="info"),
    _row("memory page given up", b"memory failure:", r"Memory failure: 0x[0-9a-f]{1,16}: ",
         "uncorrected", "Memory failure: 0x1d1b99: recovery action for dirty LRU page: Recovered",
         type="machine_check", source="Linux mm"),
    _row("machine check", b"hardware error]: ", r"\[Hardware Error\]: ", "detail",
         "{35}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4",
         type="machine_check", severity="info", make=_check),
)  # fmt: skip

SYSTEM: tuple[Form, ...] = (
    _row("soft lock-up", b"bug: soft lockup",
         r"BUG: soft lockup - CPU#\d{1,5} stuck for \d{1,9}s!"
         r"(?: \[(?P<process>[^\]\n]{1,64}):(?P<pid>\d{1,10})\])?", "soft_lockup",
         "watchdog: BUG: soft lockup - CPU#0 stuck for 27s! [cuda-EvtHandlr:2255424]"),
    _row("hard lock-up", b"hard lockup", r"Watchdog detected hard LOCKUP on cpu \d", "hard_lockup",
         "NMI watchdog: Watchdog detected hard LOCKUP on cpu 12", severity="critical",
         source="Linux watchdog"),
    _row("task blocked", b"blocked for more than",
         r"INFO: task (?P<process>[^\n]{1,64}?):(?P<pid>\d{1,10}) blocked for more than \d",
         "hung_task", "INFO: task jfsmount:136986 blocked for more than 120 seconds."),
    _row("RCU stall", b"stall",
         r"INFO: \w{1,24} (?:self-detected stalls? on CPU|detected (?:expedited )?stalls? on CPUs)",
         "rcu_stall", "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:", source="Linux RCU"),
    _row("kernel panic", b"kernel panic", r"Kernel panic - not syncing: ", "panic",
         "Kernel panic - not syncing: hung_task: blocked tasks", severity="critical"),
    _row("kernel bug", b"bug: ",
         r"BUG: (?:unable to handle|kernel NULL pointer|Bad page|scheduling while atomic)", "oops",
         "BUG: unable to handle kernel NULL pointer dereference at           (null)",
         severity="critical", source="leptonai/gpud testdata (Apache-2.0)"),
    _row("kernel bug at a place", b"kernel bug at", r"kernel BUG at [^ \n]{1,128}!", "oops",
         "kernel BUG at mm/slub.c:3901!", severity="critical", source="Linux"),
    _row("crash, its number", b"oops: ", r"\bOops: [^\[\n]{0,40}\[#\d", "oops",
         "Oops: 0002 [#1] SMP", severity="critical", make=_oops,
         source="leptonai/gpud testdata (Apache-2.0)"),
    _row("process of a crash", b" comm: ",
         r"CPU: \d{1,5} (?:UID: \d{1,10} )?PID: (?P<pid>\d{1,10}) Comm: (?P<process>.{1,64}?)"
         r" (?:Not tainted|Tainted|Kdump)", "detail",
         "CPU: 24 PID: 1364 Comm: khungtaskd Tainted: P           OE     5.15.0-1053-nvidia",
         severity="info", make=_task),
    _row("segmentation fault", b"segfault at",
         r"(?P<process>[^\n]{1,64}?)\[(?P<pid>\d{1,10})\]: segfault at [0-9a-f]{1,16} ip ",
         "segfault", "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp"
         " 00007f7c12fd7c30 error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]"),
    _row("protection fault", b"general protection",
         r"traps: (?P<process>[^\n]{1,64}?)\[(?P<pid>\d{1,10})\] general protection", "segfault",
         "traps: python3[4711] general protection fault ip:7f1 sp:7ff error:0 in libc.so.6",
         source="Linux x86"),
    _row("too many open files", b"file-max limit", r"VFS: file-max limit \d{1,19} reached",
         "file_max", "VFS: file-max limit 1000000 reached",
         source="leptonai/gpud testdata (Apache-2.0)"),
    _row("NFS does not answer", b"not responding",
         r"nfs: server [^ \n]{1,128} not responding", "nfs", "nfs: server 10.0.0.5 not responding,"
         " timed out"),
    _row("NFS lock lost", b"lock reclaim failed",
         r"nfs4_reclaim_open_state: Lock reclaim failed!", "nfs",
         "nfs4_reclaim_open_state: Lock reclaim failed!"),
)  # fmt: skip

# After all that the kernel says: dictionary lines of /dev/kmsg.
DICTIONARY: tuple[Form, ...] = (
    _row("device of the record before", b" device=+pci:", rf"^ DEVICE=\+pci:{_ADDRESS}$", "detail",
         " DEVICE=+pci:0000:04:02.0", make=_device),
)  # fmt: skip

FORMS: tuple[Form, ...] = (*PCIE, *THERMAL, *MACHINE, *SYSTEM, *DICTIONARY)
