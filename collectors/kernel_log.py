"""Kernel log lines, as `dmesg --time-format iso` prints them, into events. Pure.

An ordinary line costs one search for each marker. Adding a wording is adding a row to `FORMS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from telemetry.codec import AT_MAX_S, AT_MIN_S, rejected
from telemetry.records import Event, EventType, Rejected, Severity
from telemetry.xids import lookup

LINE_BYTES_MAX = 65_536
TEXT_MAX = 4_096
PID_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvent:
    """What a line says, before it is known where it stands.

    at_s   Unix seconds, None where the line carries no time
    pci    "0000:c3:00", None where the line names no device
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

    def event(self, node: str, at_s: float) -> Event:
        """The record; its place in a stream is given by whoever merges."""
        return Event(
            at=at_s, node=node, source="kernel", started_at=0.0, seq=0,
            type=self.type, severity=self.severity, class_=self.class_, text=self.text,
            code=self.code, entity=f"pci:{self.pci}" if self.pci else "",
            pid=self.pid, process=self.process,
        )  # fmt: skip


Maker = Callable[[str, float | None], KernelEvent | str]


@dataclass(frozen=True, slots=True)
class Form:
    """One family of lines: bytes that every one of them holds, and what to make of it.

    make   (line, at_s) -> the event, or why the line is broken
    """

    marker: bytes
    make: Maker


def read_line(line: bytes, place: str, tz: tzinfo = UTC) -> KernelEvent | Rejected | None:
    """What one line says; None for an ordinary one, a `Rejected` for one that is broken."""
    form = next((row for row in FORMS if row.marker in line), None)
    if form is None:
        return None
    if len(line) > LINE_BYTES_MAX:
        return rejected("line too long", line, place)
    text = line.decode("utf-8", "replace").strip("\r\n\x00")
    at_s = read_time(text, tz)
    made = form.make(text, at_s)
    return rejected(made, line, place, at_s) if isinstance(made, str) else made


def parse_line(line: bytes, place: str, node: str, tz: tzinfo = UTC) -> Event | Rejected | None:
    """`read_line` as a record of `node`; a line without a time cannot be placed."""
    said = read_line(line, place, tz)
    if not isinstance(said, KernelEvent):
        return said
    if said.at_s is None:
        return rejected("no date", line, place)
    return said.event(node, said.at_s)


_TIME = re.compile(
    r"\s{0,8}(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)?(?=\s|$)"
)


def read_time(text: str, tz: tzinfo) -> float | None:
    """Unix seconds of the ISO time that a line starts with; without an offset it is in `tz`."""
    found = _TIME.match(text)
    if found is None:
        return None
    day, clock, fraction, offset = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{offset or ''}")
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=tz)
        at_s = moment.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)
    except (ValueError, OverflowError):
        return None
    return at_s if AT_MIN_S <= at_s < AT_MAX_S else None


# `NVRM: Xid (PCI:0000:c3:00): 79, pid=1234, name=python3, text`; older drivers leave out "PCI:",
# the domain, pid or name. What follows the number is free text and may hold any other number.
_XID = re.compile(r"NVRM: Xid\s?\(([^()\n]{1,40})\): ?(\d{1,5})(?![0-9A-Za-z])")
_PID = re.compile(r", pid=(\d{1,12})(?![0-9])")
_NAME = re.compile(r", name=([^,\n]{1,64})")
_PCI = re.compile(
    r"(?:PCI:)?(?:([0-9a-f]{4,8}):)?([0-9a-f]{2,4}):([0-9a-f]{2})(?:\.[0-7])?", re.IGNORECASE
)


def _xid(text: str, at_s: float | None) -> KernelEvent | str:
    found = _XID.search(text)
    if found is None:
        return "Xid line without a device or a code"
    pci = read_pci(found[1])
    if pci is None:
        return f"Xid line with the device {found[1]!r}"
    code = int(found[2])
    row = lookup(code)
    end = found.end()
    pid = _PID.search(text, end, end + 40)
    name = _NAME.search(text, end, end + 160)
    number = int(pid[1]) if pid is not None else None
    return KernelEvent(
        type="xid", code=code, pci=pci, at_s=at_s, text=text[:TEXT_MAX],
        severity=row.severity if row is not None else "warning",
        class_=row.class_ if row is not None else "unknown",
        pid=number if number is not None and number <= PID_MAX else None,
        process=_process(name[1]) if name is not None else None,
    )  # fmt: skip


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


def _process(name: str) -> str | None:
    bare = name.strip(" `'\"\r\n")
    return None if bare in ("", "<unknown>") else bare


FORMS: tuple[Form, ...] = (Form(b"NVRM: Xid", _xid),)
