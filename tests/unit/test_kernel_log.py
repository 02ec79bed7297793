"""Kernel log lines: Xid in every wording, decoys, times, damage."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.kernel_log import KernelEvent, KernelLog, read_line, read_pci, records
from telemetry.records import Event, Rejected

DATE = "2026-02-25T13:59:45,123456+00:00 "
AT_S = 1_772_027_985.123456
FELL = "NVRM: Xid (PCI:0000:c3:00): 79, pid=1234, name=python3, GPU has fallen off the bus."


def said(line: str) -> KernelEvent:
    found = read_line((DATE + line).encode(), "n1.log:1")
    assert isinstance(found, KernelEvent)
    return found


def test_an_xid_line_becomes_an_event_of_its_node() -> None:
    (event,) = records(KernelLog("kernel/n3.log"), [(DATE + FELL).encode()], "n3")
    assert isinstance(event, Event)
    assert ("n3", "kernel", AT_S) == (event.node, event.source, event.at)
    assert ("xid", 79, "pci:0000:c3:00") == (event.type, event.code, event.entity)
    assert (1234, "python3", DATE + FELL) == (event.pid, event.process, event.text)


def test_severity_and_class_are_the_catalogue_s() -> None:
    assert ("critical", "bus") == (said(FELL).severity, said(FELL).class_)
    strange = said("NVRM: Xid (PCI:0000:c3:00): 999, what is this")
    assert ("warning", "unknown", 999) == (strange.severity, strange.class_, strange.code)


@pytest.mark.parametrize(
    ("device", "pci"),
    [("PCI:0000:c3:00", "0000:c3:00"), ("PCI:0000:C3:00.0", "0000:c3:00"),
     ("0000:c3:00", "0000:c3:00"), ("c3:00", "0000:c3:00"), ("00c3:00", "0000:c3:00"),
     ("PCI:00000009:01:00", "0009:01:00"), ("PCI:", None), ("", None), ("PCI:zz:00", None)],
)  # fmt: skip
def test_the_device_is_written_in_one_way(device: str, pci: str | None) -> None:
    assert pci == read_pci(device)


def test_a_45_caused_by_a_149_is_a_45() -> None:
    line = "NVRM: Xid (PCI:0000:ed:00): 45, pid=1, name=python3, Ch 0c caused by previous Xid 149"
    assert 45 == said(line).code


@pytest.mark.parametrize(
    ("words", "pid", "name"),
    [
        ("pid='<unknown>', name=<unknown>, text", None, None),
        ("pid=1896, Row Remapper: new", 1896, None),
        ("name=plasmashell, MMU Fault", None, "plasmashell"),
        ("pid=..., name=python3, text", None, "python3"),
        ("pid=7, name=nvc:[driver], Timeout", 7, "nvc:[driver]"),
        ("pid=7, name=Hogwarts Legacy., channel", 7, "Hogwarts Legacy."),
        ("pid=99999999999, name=x, y", None, "x"),
        ("GPU has fallen off the bus.", None, None),
    ],
)
def test_pid_and_name_may_be_missing_or_strange(
    words: str, pid: int | None, name: str | None
) -> None:
    found = said(f"NVRM: Xid (PCI:0000:c3:00): 79, {words}")
    assert (pid, name) == (found.pid, found.process)


@pytest.mark.parametrize(
    "line",
    [
        "usb 1-1: a line that says Xid (PCI:0000:01:00): 99, but is not the driver's",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01",
        "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)",
        "",
    ],
)
def test_an_ordinary_line_says_nothing(line: str) -> None:
    assert read_line((DATE + line).encode(), "x") is None


@pytest.mark.parametrize(
    "line",
    ["NVRM: Xid (PCI:0000:66:00): abc, pid=2280636", "NVRM: Xid: 31", "NVRM: Xid (PCI:0000",
     "NVRM: Xid (nonsense): 79, x", "NVRM: Xid (PCI:0000:66:00): 12ab"],
)  # fmt: skip
def test_a_recognised_but_broken_line_is_rejected_at_its_time(line: str) -> None:
    found = read_line((DATE + line).encode(), "kernel/n1.log:4")
    assert isinstance(found, Rejected)
    assert ("kernel/n1.log:4", AT_S) == (found.place, found.at)


@pytest.mark.parametrize(
    ("date", "at_s"),
    [
        ("2026-02-25T13:59:45,123456+00:00", AT_S),
        ("2026-02-25T13:59:45.123456Z", AT_S),
        ("2026-02-25T15:59:45,123456+0200", AT_S),
        ("2026-02-25T14:59:45,123456", AT_S),  # in the capture's own zone, an hour east
        ("2026-02-25 14:59:45.123456", AT_S),
        ("2026-02-30T14:59:45", None),
        ("1970-01-01T00:00:00+00:00", None),
        ("[ 1843.308145]", None),
    ],
)
def test_times_carry_their_zone_or_take_the_capture_s(date: str, at_s: float | None) -> None:
    found = read_line(f"{date} {FELL}".encode(), "x", ZoneInfo("Europe/Berlin"))
    assert isinstance(found, KernelEvent)
    assert at_s == found.at_s


def test_an_event_without_a_date_cannot_be_placed() -> None:
    (found,) = records(KernelLog("kernel/n1.log"), [b"\n\n", FELL.encode()], "n1")
    assert isinstance(found, Rejected)
    assert ("no date", "kernel/n1.log:3") == (found.reason, found.place)


def test_a_line_beyond_64_kb_is_rejected() -> None:
    found = read_line((DATE + FELL + "x" * 70_000).encode(), "x")
    assert isinstance(found, Rejected)
    assert 65_536 == len(found.text)


def test_the_text_is_kept_to_4096_characters() -> None:
    assert 4_096 == len(said(FELL + "x" * 10_000).text)


@pytest.mark.parametrize("filler", ["NVRM: Xid (", ":", "("])
def test_hostile_lines_cost_their_length(filler: str) -> None:
    """Linear: milliseconds. With backtracking the test would not end."""
    line = (DATE + "NVRM: Xid (" + filler * (60_000 // len(filler))).encode()
    assert not isinstance(read_line(line, "x"), KernelEvent)


@given(st.binary(max_size=300))
def test_no_bytes_raise(data: bytes) -> None:
    read_line(b"NVRM: Xid " + data, "x")
    read_line(data + FELL.encode(), "x")


@given(at=st.integers(0, len(DATE + FELL)), junk=st.binary(max_size=4), cut=st.integers(0, 9))
def test_damage_gives_an_event_a_rejection_or_nothing(at: int, junk: bytes, cut: int) -> None:
    line = (DATE + FELL).encode()
    found = read_line(line[:at] + junk + line[at + cut :], "x")
    assert found is None or isinstance(found, (KernelEvent, Rejected))
