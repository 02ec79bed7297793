"""What a kernel line says, and the shape of a row that reads one wording."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from telemetry.records import Event, EventType, Severity

TEXT_MAX = 4_096
PID_MAX = 2**31 - 1

Details = Mapping[str, str | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvent:
    """What a line, or a few lines that belong together, say.

    at_s     Unix seconds, None where no line carries a time that can be placed
    pci      "0000:c3:00", None where no line names a device by its address
    device   the entity in our spelling where a line names it otherwise: "nic:mlx5_3/1",
             "disk:nvme0n1", "gpu:<uuid>"
    details  what else this family of lines holds: unit, link, action, ...
    line     its number in the file, from 1
    """

    type: EventType
    severity: Severity
    class_: str
    text: str
    code: int | None = None
    pci: str | None = None
    pid: int | None = None
    process: str | None = None
    at_s: float | None = None
    device: str = ""
    details: Details = field(default_factory=dict)
    kmsg_seq: int | None = None
    line: int = 0

    def event(self, node: str, at_s: float) -> Event:
        """The record; its place in a stream is given by whoever merges."""
        return Event(
            at=at_s, node=node, source="kernel", started_at=0.0, seq=0,
            type=self.type, severity=self.severity, class_=self.class_, text=self.text,
            code=self.code, entity=self.device or (f"pci:{self.pci}" if self.pci else ""),
            pid=self.pid, process=self.process, details=dict(self.details),
            kmsg_seq=self.kmsg_seq,
        )  # fmt: skip

    def as_object(self, file: str) -> dict[str, Any]:
        """As `nodewarden parse kernel` prints it."""
        said = {
            "file": file, "type": self.type, "code": self.code, "pci": self.pci, "pid": self.pid,
            "process": self.process, "at": self.at_s, "severity": self.severity,
            "class": self.class_, "text": self.text,
        }  # fmt: skip
        if self.device:
            said["entity"] = self.device
        return {**said, "details": dict(self.details)} if self.details else said


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One record of the log without its envelope.

    text        as it was printed
    message     what the kernel said
    user_space  written by a program, not by the kernel
    device_pci  from the record's own dictionary ("DEVICE=+pci:...")
    number      of the line in its file, from 1
    """

    text: str
    message: str
    at_s: float | None = None
    user_space: bool = False
    kmsg_seq: int | None = None
    device_pci: str | None = None
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A line that is no event but belongs to one.

    gpu_named   the first of the lines that say that this GPU fell off the bus
    oom_begins  the killer was called; what it kills follows
    oom_limit   the killer was called for a control group's limit
    task        the process in which the kernel found what it just said
    device      the address of the device of the line before
    oops        a further line of a crash that was already told
    """

    kind: Literal["gpu_named", "oom_begins", "oom_limit", "task", "device", "oops"]
    line: Line
    pci: str | None = None
    pid: int | None = None
    process: str | None = None


Said = KernelEvent | Part
Maker = Callable[["Form", re.Match[str], Line], "Said | str | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One wording.

    marker    lower-case bytes that every such line holds; the pattern is tried on no other line
    pattern   searched in the message; its groups pci, pid, process, nic, disk are taken over
    make      the event, a part of one, why the line is broken, or None for an ordinary line
    anywhere  also believed in a program's own line, not only in the kernel's
    example   a line of this form, and `source`, where it was seen
    """

    name: str
    marker: bytes
    pattern: re.Pattern[str]
    type: EventType = "os"
    severity: Severity = "warning"
    class_: str = ""
    make: Maker
    anywhere: bool = False
    example: str = ""
    source: str = ""


def plain(form: Form, found: re.Match[str], line: Line) -> KernelEvent:
    """The event of a row whose groups say everything."""
    groups = found.groupdict()
    pci = read_pci(groups.get("pci") or "") or line.device_pci
    return KernelEvent(
        type=form.type, severity=form.severity, class_=form.class_, text=line.text[:TEXT_MAX],
        at_s=line.at_s, pci=pci, pid=read_pid(groups.get("pid")),
        process=read_process(groups.get("process")), device=_device(groups),
        kmsg_seq=line.kmsg_seq, line=line.number,
    )  # fmt: skip


def nothing(form: Form, found: re.Match[str], line: Line) -> None:
    """An ordinary line that a later, wider row would take for something."""


def _device(groups: Mapping[str, str | None]) -> str:
    nic, port, disk = groups.get("nic"), groups.get("port"), groups.get("disk")
    if nic:
        return f"nic:{nic}/{port}" if port else f"nic:{nic}"
    return f"disk:{disk}" if disk else ""


_PCI = re.compile(
    r"(?:PCI:)?(?:([0-9a-f]{4,8}):)?([0-9a-f]{2,4}):([0-9a-f]{2})(?:\.[0-7])?", re.IGNORECASE
)


def read_pci(text: str) -> str | None:
    """ "PCI:0000:C3:00.0" and its shorter forms as "0000:c3:00"; None for anything else."""
    found = _PCI.fullmatch(text.strip())
    if found is None:
        return None
    domain, bus, device = found.groups()
    if domain is None and len(bus) == 4:  # the oldest form: domain and bus are one number
        domain, bus = "0000", bus[2:]
    if len(bus) != 2:
        return None
    return f"{(domain or '0000').lower()[-4:]}:{bus}:{device}".lower()


def read_pid(text: str | None) -> int | None:
    """A process id, None for what is none."""
    number = int(text) if text and len(text) <= 10 and text.isdecimal() else None
    return number if number is not None and number <= PID_MAX else None


def read_process(name: str | None) -> str | None:
    """A process name without quotes; None for `<unknown>`."""
    bare = (name or "").strip(" `'\"\r\n")
    return None if bare in ("", "<unknown>") else bare
