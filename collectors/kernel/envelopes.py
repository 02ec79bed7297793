"""The forms in which tools write a kernel record: what stands before the message, and its time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from collectors.kernel.events import Line, read_pci
from collectors.kernel.times import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """One form: what stands at the start of a line, and how to read its time.

    pattern  matched at the start; what follows is the message. Its groups "program" (a line of a
             program, not of the kernel) and "pri" (syslog's priority) are taken over
    """

    name: str
    pattern: re.Pattern[str]
    time: Callable[[re.Match[str], Clock], float | None]
    example: str


_DAY = r"(?P<day>\d{4}-\d\d-\d\d)[T ](?P<clock>\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
_ISO = _DAY + r" ?(?P<offset>Z|[+-]\d\d:?\d\d)?"
_PRI = r"(?:<(?P<pri>\d{1,3})>)?"
_HHMMSS = r"(?P<clock>\d{1,2}:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
_MONTH_DAY = r"(?P<month>[^\W\d_]{3}\.?) {1,2}(?P<date>\d{1,2})"
# The kernel's own clock, and the task or processor that CONFIG_PRINTK_CALLER adds.
_BOOT = r"\[ {0,8}(?P<boot>\d{1,10}\.\d{1,9})\]"
_CALLER = r"(?:\[ {0,8}[TC]\d{1,10}\] ?)?"
_KERNEL = r"(?:(?![^ ]{1,255}: )[^ ]{1,255} )?kernel(?:\[\d{1,10}\])?: "
_TAIL = rf"(?:{_BOOT} ?{_CALLER})?"


def _iso(found: re.Match[str], clock: Clock) -> float | None:
    return clock.iso(*found.group("day", "clock", "fraction", "offset"))


def _zoned(found: re.Match[str], clock: Clock) -> float | None:
    day, time, fraction = found.group("day", "clock", "fraction")
    return clock.iso(day, time, fraction, "Z" if found["zone"] == "UTC" else None)


def _words(found: re.Match[str], clock: Clock) -> float | None:
    groups = found.groupdict()
    return clock.worded(
        groups["month"], groups["date"], groups["clock"], groups.get("year"), groups["fraction"]
    )


def _boot(found: re.Match[str], clock: Clock) -> float | None:
    return clock.since_boot(float(found["boot"]))


def _kmsg(found: re.Match[str], clock: Clock) -> float | None:
    return clock.since_boot(int(found["usec"]) / 1e6)


def _glog(found: re.Match[str], clock: Clock) -> float | None:
    month = _ENGLISH[int(found["number"]) - 1] if 1 <= int(found["number"]) <= 12 else ""
    return clock.worded(month, found["date"], found["clock"], None, found["fraction"])


def _unix(found: re.Match[str], clock: Clock) -> float | None:
    return clock.unix(float(found["unix"]))


def _none(found: re.Match[str], clock: Clock) -> float | None:
    return None


_ENGLISH = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def _row(
    name: str, pattern: str, time: Callable[[re.Match[str], Clock], float | None], example: str
) -> Envelope:
    return Envelope(name=name, pattern=re.compile(pattern), time=time, example=example)


# The first that matches is taken.
ENVELOPES: tuple[Envelope, ...] = (
    _row("/dev/kmsg", r"(?P<pri>\d{1,5}),(?P<seq>\d{1,19}),(?P<usec>\d{1,18}),[^;\n]{0,256};",
         _kmsg, "4,1227,101012345678,c;NVRM: Xid (PCI:0000:2a:00): 43, pid=1814139"),
    _row("syslog RFC 5424", r"(?:\d{1,6} )?<(?P<pri>\d{1,3})>1 (?:-|" + _ISO + r") [^ ]{1,255} "
         r"(?:kernel|(?P<program>[^ ]{1,48})) [^ ]{1,128} [^ ]{1,32} "
         r"(?:-|(?:\[[^\]\n]{0,2048}\]){1,16}) ?\ufeff?" + _TAIL, lambda found, clock:
         _iso(found, clock) if found["day"] else None,
         "<3>1 2026-02-25T13:59:45.123Z n1 kernel - - - NVRM: Xid (PCI:0000:c3:00): 79"),
    _row("journalctl -o short-iso-precise, rsyslog", _PRI + _ISO + " " + _KERNEL + _TAIL, _iso,
         "2026-02-25T13:59:45.123456+0000 n1 kernel: NVRM: Xid (PCI:0000:c3:00): 79"),
    _row("journalctl -o short-iso, a program's", _PRI + _ISO + r" [^ ]{1,255} "
         r"(?P<program>[A-Za-z_][\w./-]{0,63})\[\d{1,10}\]: ", _iso,
         "2026-02-25T13:59:45+0000 n1 kubelet[812]: XidCriticalError: Xid=48"),
    _row("Talos", r"[^ ]{1,255}: kern: {1,8}\w{1,8}: \[" + _ISO + r"\]: ", _iso,
         "10.0.0.119: kern: warning: [2026-04-22T21:27:51.291660856Z]: NVRM: Xid"),
    _row("dmesg --time-format iso, also with --decode", r"(?:\w{1,8} {0,4}:\w{1,8} {0,4}: )?" + _ISO
         + r"(?: (?:\[ {0,8}[TC]\d{1,10}\] ?|[TC]\d{1,10};)?|$)", _iso,
         "kern  :warn  : 2026-02-25T13:59:45,123456+00:00 NVRM: Xid (PCI:0000:c3:00): 79"),
    _row("syslog RFC 3164, journalctl -o short", _PRI + _MONTH_DAY + r"(?: (?P<year>\d{4}))? "
         + _HHMMSS + " " + _KERNEL + _TAIL, _words,
         "Aug 10 15:36:05 n1 kernel: [680111.646286] NVRM: Xid (PCI:0000:55:00): 48"),
    _row("syslog, a program's", _PRI + _MONTH_DAY + r"(?: (?P<year>\d{4}))? " + _HHMMSS
         + r" [^ ]{1,255} (?P<program>[A-Za-z_][\w./@-]{0,63})(?:\[\d{1,10}\])?: ", _words,
         "Nov 29 20:10:51 n1 systemd-journald[26393]: Suppressed 4499764 messages"),
    _row("journalctl -o short-full", r"\w{2,4} " + _DAY + r" (?P<zone>\w{1,6}) " + _KERNEL + _TAIL,
         _zoned,
         "Wed 2026-02-25 13:59:45 UTC n1 kernel: NVRM: Xid (PCI:0000:c3:00): 79"),
    _row("journalctl -o short-unix", r"(?P<unix>\d{9,10}\.\d{1,9}) " + _KERNEL + _TAIL, _unix,
         "1772027985.123456 n1 kernel: NVRM: Xid (PCI:0000:c3:00): 79"),
    _row("dmesg -T, also with --decode", r"(?:\w{1,8} {0,4}:\w{1,8} {0,4}: )?\[\w{2,4}\.? "
         + _MONTH_DAY + " " + _HHMMSS + r" (?P<year>\d{4})\] ?" + _CALLER, _words,
         "[Fri Aug 30 11:43:09 2024] NVRM: Xid (PCI:0000:cb:00): 13"),
    _row("Fabric Manager", r"\[(?P<month>\w{3}) (?P<date>\d{1,2}) (?P<year>\d{4}) " + _HHMMSS
         + r"\] \[(?P<program>\w{1,12})\] (?:\[tid \d{1,10}\] )?", _words,
         "[Feb 27 2025 15:10:02] [ERROR] [tid 12727] detected NVSwitch non-fatal error 12028"),
    _row("glog of a container's health check", r"[IWEF](?P<number>\d\d)(?P<date>\d\d) " + _HHMMSS
         + r" {1,8}\d{1,10} (?P<program>[\w.-]{1,64}):\d{1,6}\] ", _glog,
         "I0810 15:36:05.551834 1 health.go:169] XidCriticalError: Xid=48 on Device=GPU-455e"),
    _row("dmesg, seconds since boot", r"(?:\w{1,8} {0,4}:\w{1,8} {0,4}: )?" + _PRI + _BOOT + " ?"
         + _CALLER + f"(?:{_KERNEL})?", _boot,
         "[155044.078590] NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus."),
    _row("dmesg --reltime", r"\[ {0,8}\+\d{1,8}\.\d{1,9}\] ?", _none,
         "[  +0.000844] nvidia 0000:03:00.0: AER: can't recover"),
    _row("kernel: without a time", _KERNEL + _TAIL,
         lambda found, clock: _boot(found, clock) if found["boot"] else None,
         "kernel: [16450076.435595] NVRM: Xid (PCI:0000:17:00): 119"),
)  # fmt: skip

_DEVICE = re.compile(r"(?:#012| |^)DEVICE=\+pci:([0-9a-f:.]{4,16})")


def open_line(data: bytes, number: int, clock: Clock) -> Line:
    """A record without its envelope; a line of no known form is all message."""
    text = data.decode("utf-8", "replace").strip("\r\n\x00")
    if text.startswith("{"):
        found_json = _open_json(text, number, clock)
        if found_json is not None:
            return found_json
    for row in ENVELOPES:
        found = row.pattern.match(text)
        if found is not None:
            return _opened(row, found, text, number, clock)
    return Line(text=text, message=text, number=number)


def _opened(
    row: Envelope, found: re.Match[str], text: str, number: int, clock: Clock
) -> Line:  # fmt: skip
    at_s = row.time(found, clock)
    groups = found.groupdict()
    if at_s is None and groups.get("boot"):
        at_s = clock.since_boot(float(groups["boot"]))
    message, cut, rest = text[found.end() :].replace("\\x0a", "\n").partition("#012 ")
    device = _DEVICE.search(rest) if cut else None
    return Line(
        text=text, message=message, at_s=at_s, number=number,
        user_space=bool(groups.get("program")) or not _of_kernel(groups.get("pri")),
        kmsg_seq=int(groups["seq"]) if groups.get("seq") else None,
        device_pci=read_pci(device[1]) if device is not None else None,
    )  # fmt: skip


def _of_kernel(priority: str | None) -> bool:
    """Facility 0 is the kernel; 1 is what syslogd gives to lines that name none."""
    return priority is None or int(priority) >> 3 <= 1


class _Journal(msgspec.Struct):
    """One line of `journalctl -o json`; journald writes text that is no text as numbers."""

    message: str | list[int] | None = msgspec.field(name="MESSAGE", default=None)
    realtime_us: str | int | None = msgspec.field(name="__REALTIME_TIMESTAMP", default=None)
    source_us: str | int | None = msgspec.field(name="_SOURCE_REALTIME_TIMESTAMP", default=None)
    transport: str = msgspec.field(name="_TRANSPORT", default="")
    identifier: Any = msgspec.field(name="SYSLOG_IDENTIFIER", default="")
    device: Any = msgspec.field(name="_KERNEL_DEVICE", default="")
    ts: Any = None
    time: Any = None
    timestamp: Any = None


_JOURNAL = msgspec.json.Decoder(_Journal)
_STAMP = re.compile(_ISO)


def _open_json(text: str, number: int, clock: Clock) -> Line | None:
    """A journald record, or another program's JSON line with its time; None for no JSON."""
    try:
        said = _JOURNAL.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if said.message is None:
        stamp = next((s for s in (said.ts, said.time, said.timestamp) if isinstance(s, str)), "")
        found = _STAMP.match(stamp)
        at_s = _iso(found, clock) if found is not None else None
        return Line(text=text, message=text, at_s=at_s, user_space=True, number=number)
    message = said.message if isinstance(said.message, str) else _of_numbers(said.message)
    source = said.transport or said.identifier
    device = str(said.device).removeprefix("+pci:")
    return Line(
        text=text, message=message, at_s=_of_microseconds(said, clock), number=number,
        user_space=source not in ("", "kernel"), device_pci=read_pci(device),
    )  # fmt: skip


def _of_numbers(numbers: list[int]) -> str:
    return bytes(n for n in numbers if 0 <= n < 256).decode("utf-8", "replace")


def _of_microseconds(said: _Journal, clock: Clock) -> float | None:
    for us in (said.source_us, said.realtime_us):
        digits = str(us)
        if digits.isdecimal() and len(digits) <= 17:
            return clock.unix(int(digits) / 1e6)
    return None
