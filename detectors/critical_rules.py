"""What single events mean: Xids, kernel lines, failures of processes. Pure; rows, not code."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from detectors.base import Sighting
from telemetry.findings import Cause, Kind
from telemetry.records import Event, Severity
from telemetry.xids import XidRow, lookup

# Application errors: NVIDIA's device plugin, GPUd and Meta agree that one never evicts a node.
APPLICATION_XIDS = frozenset({13, 31, 43, 45})
# What counts against the job first, and against the GPU only where it kills several jobs.
JOB_XIDS = APPLICATION_XIDS | {66}
LOCATED_XIDS = frozenset({13, 31})
CONTAINED, RECOVERY = 94, 154
LINK5 = range(144, 151)
INJECTED = "injected"  # class of a fault that somebody put there for a test: it never acts
KERNEL = "kernel"
LINE_MAX = 512  # characters of the original line in a finding's text

_CAUSE_OF_CLASS: dict[str, Cause] = {
    "app": "user_code", "app_driver": "unknown", "driver": "site_software",
    "firmware": "hardware", "gpu": "hardware", "memory": "hardware", "memory_hint": "hardware",
    "bus": "hardware", "link": "hardware", "link5": "hardware", "power": "hardware",
}  # fmt: skip
_OF_TYPE: dict[str, tuple[Kind, Cause]] = {
    "sxid": ("nvlink_fault", "hardware"),
    "gpu_lost": ("gpu_lost", "hardware"),
    "gpu": ("gpu_fault", "hardware"),
    "nic": ("nic_fault", "network"),
    "storage": ("storage", "hardware"),
    "pcie": ("pcie_degraded", "hardware"),
    "machine_check": ("host", "hardware"),
    "thermal": ("gpu_thermal", "hardware"),
    "os": ("host", "site_software"),
    "oom": ("host", "user_code"),
}


@dataclass(frozen=True, slots=True)
class HostRule:
    """What a class of kernel lines means where its type and severity do not say it.

    fault      it opens an incident; else it is evidence
    certain    one such line proves that the machine is broken
    witnessed  two different lines of such rows on one device prove it
    repeats    `host_repeat_count` of them within `witness_s` make a fault
    """

    kind: Kind
    cause: Cause
    severity: Severity
    fault: bool = True
    certain: bool = False
    witnessed: bool = False
    repeats: bool = False


# (type, class); ByteRobust evicts at once for a disk fault, and 30 % of its incidents are the
# host's: memory, disk space, mounts, overload, panics.
HOST_RULES: dict[tuple[str, str], HostRule] = {
    ("storage", "nvme_disabled"): HostRule("storage", "hardware", "critical", certain=True),
    ("storage", "nvme_no_path"): HostRule("storage", "hardware", "critical", certain=True),
    ("storage", "raid_failure"): HostRule("storage", "hardware", "critical", certain=True),
    ("storage", "fs_read_only"): HostRule("storage", "hardware", "critical", certain=True),
    ("storage", "nvme_down"): HostRule("storage", "hardware", "critical", witnessed=True),
    ("storage", "nvme_timeout"): HostRule("storage", "hardware", "warning", False, witnessed=True),
    ("storage", "io_error"): HostRule("storage", "hardware", "critical", witnessed=True),
    ("storage", "fs_error"): HostRule("storage", "hardware", "critical", witnessed=True),
    ("storage", "beyond_end"): HostRule("storage", "site_software", "warning"),
    ("storage", "no_space"): HostRule("storage", "site_software", "warning"),
    ("storage", "lustre"): HostRule("storage", "site_software", "warning", False, repeats=True),
    ("os", "no_space"): HostRule("host", "site_software", "warning"),
    ("os", "nfs"): HostRule("host", "site_software", "warning", False, repeats=True),
    ("os", "panic"): HostRule("host", "site_software", "critical"),
    ("os", "oops"): HostRule("host", "site_software", "critical"),
    ("os", "hard_lockup"): HostRule("host", "hardware", "critical"),
    ("os", "soft_lockup"): HostRule("host", "site_software", "warning", False, repeats=True),
    ("os", "rcu_stall"): HostRule("host", "site_software", "warning", False, repeats=True),
    ("os", "hung_task"): HostRule("host", "site_software", "warning", False),
    ("os", "file_max"): HostRule("host", "site_software", "warning"),
    ("oom", "system"): HostRule("host", "user_code", "critical"),
    ("nic", "slot_power"): HostRule("gpu_power", "hardware", "warning", False),
    ("nic", "probe_failed"): HostRule("nic_fault", "network", "warning"),
    ("machine_check", "uncorrected"): HostRule("host", "hardware", "critical"),
    ("pcie", "cannot_recover"): HostRule("pcie_degraded", "hardware", "critical"),
}  # fmt: skip

# (type, class) of the line that ends a condition -> the metric of the condition
ENDS: dict[tuple[str, str], str] = {("thermal", "normal"): "thermal_event"}


def base(event: Event, metric: str, job: str, text: str) -> Sighting:
    """A sighting of the event's subject."""
    return Sighting(
        active=True, detector="critical", node=event.node, entity=event.entity, metric=metric,
        onset_s=event.at, job=job, text=text, score=1.0,
    )  # fmt: skip


def xid(event: Event, code: int, job: str) -> Sighting:
    """What one Xid of the kernel's says by itself."""
    line, row = event.text[:LINE_MAX], lookup(code)
    if row is None:
        text = f"Xid {code}, which no catalogue knows: {line}"
        return replace(base(event, f"xid_{code}", job, text), role="evidence", kind="gpu_fault")
    seen = base(event, f"xid_{code}", job, f"Xid {code} ({row.meaning}): {line}")
    waits = event.details.get("remap") == "pending"  # a reset repairs it; jobs are safe till then
    if row.isolate_on_one and code not in APPLICATION_XIDS and not waits:
        return replace(
            seen, kind=row.kind, cause="hardware", severity="critical", certain=True
        )  # fmt: skip
    # NVLink 5 says in its words whether it is fatal, 154 which repair the driver wants now.
    if (code in LINK5 or code == RECOVERY) and event.severity == "critical" and event.details:
        return replace(seen, kind=row.kind, cause="hardware", severity="critical")
    cause = xid_cause(code, row)
    return replace(seen, role="evidence", kind=row.kind, cause=cause, severity=row.severity)


def xid_cause(code: int, row: XidRow) -> Cause:
    """Who is to blame for a code."""
    if code == 45:  # the echo of something else: it accuses nobody
        return "unknown"
    return "user_code" if code in APPLICATION_XIDS else _CAUSE_OF_CLASS.get(row.class_, "unknown")


def process(event: Event, job: str) -> Sighting:
    """The user's own exception and a memory error are first causes; the rest are symptoms."""
    failure = event.class_ or "unknown"
    seen = base(event, f"process_{failure}", job, event.text[:LINE_MAX])
    if failure == "user_code":
        return replace(seen, kind="user_error", cause="user_code", severity="critical")
    if event.details.get("detail") == "ecc" and event.severity == "critical":
        # CUDA's own words for broken memory; on which node, the log of a job seldom says.
        metric = f"process_{failure}_ecc"
        return replace(
            seen, metric=metric, kind="gpu_memory", cause="hardware", severity="critical"
        )  # fmt: skip
    return replace(seen, role="evidence", kind="job_hang", cause="unknown")


def kernel(event: Event, job: str) -> Sighting:
    """A kernel line that is no Xid: by its row, else critical ones are faults."""
    metric = f"{event.type}_event" if event.code is None else f"{event.type}_{event.code}"
    seen = base(event, metric, job, event.text[:LINE_MAX])
    rule = HOST_RULES.get((event.type, event.class_))
    if rule is not None:
        hot = event.class_ == "panic" and any(w in event.text.lower() for w in _BROKEN)
        return replace(
            seen, metric=f"{event.type}_{event.class_}", kind=rule.kind,
            cause="hardware" if hot else rule.cause, severity=rule.severity,
            role="fault" if rule.fault else "evidence", certain=rule.certain or hot,
        )  # fmt: skip
    kind, cause = _OF_TYPE.get(event.type, ("host", "unknown"))
    lost = event.type == "gpu_lost"
    severity: Severity = "critical" if lost else event.severity
    fault = lost or event.severity == "critical"
    return replace(
        seen, kind=kind, cause=cause, severity=severity, certain=lost,
        role="fault" if fault else "evidence",
    )  # fmt: skip


def switch(event: Event, job: str) -> Sighting:
    """A part of a switch that failed is a fault of no node; of a port its lines are evidence."""
    seen = base(event, f"switch_{event.class_}", job, event.text[:LINE_MAX])
    if "port" in event.details:
        return replace(seen, role="evidence", kind="nic_fault", cause="network")
    return replace(seen, kind="fabric", cause="network", severity="warning")


def is_stale(event: Event, now_s: float, stale_s: float) -> bool:
    """Whether the line was old when its agent read it; one that waited in a spool was not.

    Of lines of the training log, which are read by their own rules, nothing is stale.
    """
    read_s = now_s if event.sent_at is None else event.sent_at
    return event.type != "process" and read_s - event.at > stale_s


def device_of(entity: str) -> str:
    """The device that an entity is a part of: a namespace belongs to its NVMe controller."""
    return _NAMESPACE.sub(r"\1", entity)


_NAMESPACE = re.compile(r"^(disk:nvme\d{1,4})n\d{1,4}(?:p\d{1,4})?$")
_BROKEN = ("machine check", "hardware error", "mce:")  # a panic in these words is no software's
