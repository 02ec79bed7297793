"""Xid and SXid lines in all wordings.

What follows the number is free text and may hold any other number.
"""

from __future__ import annotations

import re
from dataclasses import replace

from collectors.kernel.events import (
    TEXT_MAX,
    Form,
    KernelEvent,
    Line,
    read_pci,
    read_pid,
    read_process,
)  # fmt: skip
from collectors.kernel.nvlink5 import decode, reason
from telemetry.records import Severity
from telemetry.xids import lookup

INJECTED = "injected"  # class of a fault that somebody put there for a test

_I = re.IGNORECASE
# `NVRM: Xid (PCI:0000:c3:00): 79, pid=1234, name=python3, text`; older drivers leave out "PCI:",
# the domain, pid or name.
_XID = re.compile(
    r"NVRM: {1,4}Xid ?\( ?(?P<pci>[^()\n]{1,40}) ?\) ?: ?(?P<code>\d{1,5})(?![0-9A-Za-z])", _I
)
_PID = re.compile(r", pid=(\d{1,12})(?![0-9])")
_NAME = re.compile(r", name=([^,\n]{1,64})")


def _xid(form: Form, found: re.Match[str], line: Line) -> KernelEvent | str:
    whole = _XID.search(line.message, found.start())
    if whole is None:
        return "Xid line without a device or a code"
    pci = read_pci(whole["pci"])
    if pci is None:
        return f"Xid line with the device {whole['pci']!r}"
    end = whole.end()
    pid = _PID.search(line.message, end, end + 40)
    name = _NAME.search(line.message, end, end + 160)
    event = replace(
        _bare(int(whole["code"]), line), pci=pci,
        pid=read_pid(pid[1]) if pid is not None else None,
        process=read_process(name[1]) if name is not None else None,
    )  # fmt: skip
    return _detailed(event, line.message[end : end + TEXT_MAX])


def _bare(code: int, line: Line) -> KernelEvent:
    row = lookup(code)
    return KernelEvent(
        type="xid", code=code, at_s=line.at_s, text=line.text[:TEXT_MAX], kmsg_seq=line.kmsg_seq,
        line=line.number, severity=row.severity if row is not None else "warning",
        class_=row.class_ if row is not None else "unknown",
    )  # fmt: skip


def _detailed(event: KernelEvent, rest: str) -> KernelEvent:
    if event.code in range(144, 151):
        return _nvlink5(event, rest)
    if event.code == 74:
        return _nvlink(event, rest)
    if event.code == 154:
        return _recovery(event, rest)
    if event.code in (63, 64, 156, 157, 160, 161):
        return _remap(event, rest)
    return event


# `NETIR_LINK_EVT Fatal XC0 i0 Link -1 (0x004505c6 0x00000000 ...)`; "i1" is a fault that was
# injected, no instance; the words are intrinfo, errorStatus and up to four more.
_LINK5 = re.compile(
    r"(?P<unit>[A-Z][\w/]{1,47}) {1,4}(?P<word>Fatal|Non-?fatal) {1,4}XC ?(?P<xc>\d{1,2})"
    r" {1,4}i ?(?P<injected>\d{1,2}) {1,4}Link {1,2}(?P<link>-?\d{1,3})"
    r"(?: {1,4}[(\[](?P<words>[0-9a-fx ]{3,80}))?", _I,
)  # fmt: skip


def _nvlink5(event: KernelEvent, rest: str) -> KernelEvent:
    found = _LINK5.search(rest)
    if found is None or event.code is None:
        return event
    fatal = found["word"].lower() == "fatal"
    words = [_hex(word) for word in (found["words"] or "").split()]
    interrupt, status = (*words, None, None)[:2]
    action = decode(event.code, found["unit"], fatal, interrupt, status)
    details: dict[str, str | int] = {
        "unit": found["unit"], "word": "fatal" if fatal else "nonfatal", "xc": int(found["xc"]),
        "injected": int(found["injected"] != "0" and int(found["injected"]) > 0),
        "link": int(found["link"]), "action": action,
    }  # fmt: skip
    if words:
        details["words"] = (found["words"] or "").strip()
    if interrupt is not None:
        details["sub_code"] = reason(interrupt)
    if details["injected"]:
        return replace(event, severity="info", class_=INJECTED, details=details)
    severity: Severity = "critical" if fatal and action != "check_peer" else "warning"
    return replace(event, severity="info" if action == "ignore" else severity, details=details)


def _hex(word: str) -> int | None:
    try:
        return int(word, 16)
    except ValueError:
        return None


_LINK = re.compile(
    r"NVLink: (?P<word>\w{1,16}) error detected on link (?P<link>-?\d{1,3})"
    r"(?: ?\((?P<words>[0-9a-fx, ]{3,160})\))?", _I,
)  # fmt: skip


def _nvlink(event: KernelEvent, rest: str) -> KernelEvent:
    """`NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, ...)`: the registers 0 to 6."""
    found = _LINK.search(rest)
    if found is None:
        return event
    details: dict[str, str | int] = {"word": found["word"].lower(), "link": int(found["link"])}
    for number, word in enumerate((found["words"] or "").replace(",", " ").split()[:7]):
        details[f"reg{number}"] = word
    return replace(event, details=details)


RECOVERY: dict[int, str] = {  # nvmlDeviceGpuRecoveryAction
    0: "none", 1: "reset_gpu", 2: "reboot_node", 3: "drain_peers", 4: "drain_and_reset",
    5: "recover_imex_domain", 6: "reset_bus", 7: "reboot_node",
}  # fmt: skip
_RECOVERY = re.compile(
    r"recovery action changed from (?P<from>0x[0-9a-f]{1,8}) ?(?:\([^)\n]{0,64}\))?"
    r" to (?P<to>0x[0-9a-f]{1,8})", _I,
)  # fmt: skip


def _recovery(event: KernelEvent, rest: str) -> KernelEvent:
    """154 says what the driver wants done now, and what it wanted before; only the first counts."""
    found = _RECOVERY.search(rest)
    if found is None:
        return event
    number = int(found["to"], 16)
    action = RECOVERY.get(number, "unknown")
    before = RECOVERY.get(int(found["from"], 16), "unknown")
    severity: Severity = {"none": "info", "drain_peers": "warning"}.get(action, "critical")  # type: ignore[assignment]
    return replace(event, severity=severity, details={"action": action, "before": before})


_REMAP: tuple[tuple[re.Pattern[str], str, Severity], ...] = (
    (re.compile(r"already pending", _I), "pending", "warning"),
    (re.compile(r"table is full|all reserved rows|no more spare|remapping failed|failure", _I),
     "failed", "critical"),
    (re.compile(r"marked for remapping|for repair|pending", _I), "pending", "info"),
)  # fmt: skip


def _remap(event: KernelEvent, rest: str) -> KernelEvent:
    """Whether the repair waits for a reset or could not be made; jobs are safe while it waits."""
    for pattern, state, severity in _REMAP:
        if pattern.search(rest) is not None:
            action = "reset_gpu_later" if state == "pending" else "reset_gpu"
            if "node reboot" in rest:
                action = "reboot_node_later"
            return replace(event, severity=severity, details={"remap": state, "action": action})
    return event


def _plugin(form: Form, found: re.Match[str], line: Line) -> KernelEvent:
    """A device plugin's line names the GPU by UUID, or only by a handle."""
    event = _bare(int(found["code"]), line)
    uuid = found.groupdict().get("uuid")
    return replace(event, device=f"gpu:{uuid}") if uuid else event


# NVSwitch: "Fatal" and "Non-fatal" are words of the line; further lines repeat the number with
# its registers only.
_SXID = re.compile(
    r"nvidia-nvswitch(?P<switch>\d{1,4}): SXid \((?P<pci>[^()\n]{1,40})\): ?(?P<code>\d{1,6})"
    r"(?![0-9A-Za-z])(?:, ?(?P<word>Fatal|Non-?fatal)\b)?(?:, ?Link (?P<link>\d{1,3})\b)?", _I,
)  # fmt: skip
_SXID_DETAIL = re.compile(r"^,? ?(?:Severity \d|Data \{|Engine instance)", _I)
# The fabric stops, whatever the word: the Fabric Manager's table, and a controller that halted.
ALWAYS_FATAL = frozenset({10003, 12020, 22003, 22011, *range(23001, 23018), 26006})


def _sxid(form: Form, found: re.Match[str], line: Line) -> KernelEvent | str:
    whole = _SXID.search(line.message, found.start())
    if whole is None:
        return "SXid line without a device or a code"
    pci = read_pci(whole["pci"])
    if pci is None:
        return f"SXid line with the device {whole['pci']!r}"
    if _SXID_DETAIL.match(line.message[whole.end() : whole.end() + 40]) is not None:
        return _switch(whole, line, pci, "info", "detail")
    return _switch(whole, line, pci, *_gravity(int(whole["code"]), whole["word"]))


def _gravity(code: int, word: str | None) -> tuple[Severity, str]:
    if code in ALWAYS_FATAL or (word is not None and word.lower() == "fatal"):
        return "critical", "fatal"
    return "warning", "nonfatal" if word is not None else "unknown"


def _switch(
    found: re.Match[str], line: Line, pci: str, severity: Severity, class_: str
) -> KernelEvent:
    groups = found.groupdict()
    details = {
        name: int(groups[name]) for name in ("switch", "link") if groups.get(name) is not None
    }
    return KernelEvent(
        type="sxid", code=int(groups["code"]), pci=pci, severity=severity, class_=class_,
        text=line.text[:TEXT_MAX], at_s=line.at_s, details=details, kmsg_seq=line.kmsg_seq,
        line=line.number,
    )  # fmt: skip


def _fabric_manager(form: Form, found: re.Match[str], line: Line) -> KernelEvent | str:
    pci = read_pci(found["pci"])
    if pci is None:
        return f"NVSwitch error with the device {found['pci']!r}"
    return _switch(found, line, pci, *_gravity(int(found["code"]), found["word"]))


FORMS: tuple[Form, ...] = (
    Form(
        name="SXid of an NVSwitch", marker=b"sxid (", anywhere=True, type="sxid", make=_sxid,
        pattern=re.compile(r"nvidia-nvswitch\d{1,4}: SXid \(", _I),
        example="nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 sourcetrack"
                " timeout error (First)",
        source="github issue NVIDIA/open-gpu-kernel-modules",
    ),
    Form(
        name="NVSwitch error in the Fabric Manager's log", marker=b"detected nvswitch",
        anywhere=True, type="sxid", make=_fabric_manager,
        pattern=re.compile(
            r"detected NVSwitch (?P<word>fatal|non-fatal) error (?P<code>\d{1,6}) on fid \d{1,4} on"
            r" NVSwitch pci bus id (?P<pci>[0-9a-f:.]{4,20})(?: physical id (?P<switch>\d{1,4}))?"
            r"(?: port (?P<link>\d{1,4}))?", _I),
        example="detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch pci bus id"
                " 00000000:86:00.0 physical id 3 port 61",
        source="leptonai/gpud testdata (Apache-2.0)",
    ),
    Form(
        name="Xid", marker=b"nvrm:", anywhere=True, type="xid", make=_xid,
        pattern=re.compile(r"NVRM: {1,4}Xid(?![A-Za-z])", _I),
        example="NVRM: Xid (PCI:0000:c3:00): 79, pid=1234, name=python3, GPU has fallen off the"
                " bus.",
        source="NVIDIA Xid documentation",
    ),
    Form(
        name="Xid in a device plugin's log", marker=b"xidcriticalerror", anywhere=True, type="xid",
        make=_plugin,
        pattern=re.compile(
            r"XidCriticalError: Xid=(?P<code>\d{1,5})\b(?: on Device=(?P<uuid>GPU-[\w-]{1,64}))?"),
        example="XidCriticalError: Xid=48 on Device=GPU-455e672a-0000-0000-0000-000000000000;"
                " marking device as unhealthy.",
        source="NVIDIA/k8s-device-plugin",
    ),
    Form(
        name="Xid in an older device plugin's log", marker=b"eventdata:", anywhere=True, type="xid",
        make=_plugin, pattern=re.compile(r"EventType:8 EventData:(?P<code>\d{1,5})\b"),
        example="Processing event {Device:{Handle:0x7f0dcf40bdf8} EventType:8 EventData:94"
                " GpuInstanceId:4294967295 ComputeInstanceId:4294967295}",
        source="NVIDIA/k8s-device-plugin",
    ),
)  # fmt: skip
