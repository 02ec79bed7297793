"""Broken kernel logs: nothing raises, what is broken says why, nothing behind it is lost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.kernel.forms import FORMS
from collectors.kernel.times import Clock
from collectors.kernel_log import LINE_BYTES_MAX, KernelEvent, KernelLog, records
from telemetry.records import Event, Rejected

LAST = b"2026-02-25T13:59:45,123456+00:00 NVRM: Xid (PCI:0000:c3:00): 79, pid=1234, name=python3"
BEFORE = (
    b"[  985.000000] ", b"Feb 25 13:59:45 n1 kernel: ", b"3,7,985000000,-;", b"",
    b'{"MESSAGE":"', b"<3>1 2026-02-25T13:59:45Z n1 kernel - - - ",
)  # fmt: skip
LINES = [before + form.example.encode() for form in FORMS for before in BEFORE]


def read(data: bytes, size: int = 1 << 20) -> list[KernelEvent | Rejected]:
    log = KernelLog("x", Clock(year=2026))
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    return [*(said for piece in pieces for said in log.feed(piece)), *log.finish()]


def survives(damaged: bytes) -> None:
    """The good line behind the damage is read whole, and is read last."""
    found = read(damaged + b"\n" + LAST)
    assert isinstance(found[-1], KernelEvent)
    assert (79, "0000:c3:00", 1234) == (found[-1].code, found[-1].pci, found[-1].pid)
    assert all(one.reason for one in found if isinstance(one, Rejected))


@pytest.mark.parametrize("seed", range(4))
def test_cut_doubled_swapped_and_re_encoded_lines_lose_nothing_after_them(seed: int) -> None:
    draw = random.Random(seed)
    for line in LINES[seed::4]:
        at, to = sorted(draw.choices(range(len(line) + 1), k=2))
        for damaged in (
            line[:at], line[at:], line[:at] + line[to:], line + line, line[at:] + line[:at],
            line.decode().encode("utf-16"), line[:at] + b"\xe4\xf6" + line[at:],
            line[:at] + b"\x00" * 9 + line[at:], line[:at] + b"\xc3\x28\xff" + line[at:],
        ):  # fmt: skip
            survives(damaged)


@pytest.mark.parametrize("place", [0, 40, LINE_BYTES_MAX - 50, LINE_BYTES_MAX + 40])
def test_a_line_of_a_megabyte_is_rejected_and_the_next_is_read(place: int) -> None:
    line = bytearray(b"x" * (1 << 20))
    line[place : place + len(LAST)] = LAST
    for size in (1 << 22, 100_000, 4_096):
        found = read(bytes(line) + b"\n" + LAST, size)
        assert isinstance(found[-1], KernelEvent)
        assert {"line too long"} >= {one.reason for one in found if isinstance(one, Rejected)}
    said = {one.reason for one in read(bytes(line)) if isinstance(one, Rejected)}
    assert (place + 41 <= LINE_BYTES_MAX) == ("line too long" in said)


def test_a_log_in_utf_16_says_that_it_is_one() -> None:
    (said, *_) = read(LAST.decode().encode("utf-16"))
    assert isinstance(said, Rejected)
    assert "UTF-16" in said.reason


def test_the_zeros_that_a_crash_leaves_hide_no_line() -> None:
    survives(b"")
    found = read(b"\x00" * 5_000 + LAST)
    assert [79] == [one.code for one in found if isinstance(one, KernelEvent)]


@given(data=st.binary(max_size=400), at=st.integers(0, len(LINES) - 1), cut=st.integers(0, 200))
def test_no_bytes_raise_and_nothing_behind_them_is_lost(data: bytes, at: int, cut: int) -> None:
    survives(data)
    survives(LINES[at][:cut] + data + LINES[at][cut:])


@given(
    lines=st.lists(st.sampled_from([*LINES, LAST, b"usb 1-1: new", b""]), max_size=12),
    size=st.integers(1, 300),
)
def test_how_the_file_is_cut_into_pieces_changes_nothing(lines: list[bytes], size: int) -> None:
    data = b"\n".join(lines)
    assert read(data) == read(data, size)


@given(st.lists(st.sampled_from(LINES), max_size=12))
def test_every_record_of_a_node_carries_its_time_or_says_that_it_has_none(
    lines: list[bytes],
) -> None:
    for said in records(KernelLog("x"), [b"\n".join(lines)], "n1"):
        assert isinstance(said, Event) or said.reason
        assert said.at is not None or isinstance(said, Rejected)


@pytest.mark.parametrize(
    "filler",
    ["NVRM: Xid (", "mlx5_core 0000:41:00.0 ", "oom-kill:constraint=CONSTRAINT_NONE,", "a[1",
     "Killed process 1 (", "error ", "amdgpu 0000:c3:00.0: ", "INFO: task a:", "[Hardware Error]: ",
     "<3>1 - - - - - [", "XFS (a): ", "EXT4-fs (", "Link down", "LustreError: ", "Oops: ", "\\x0a"],
)  # fmt: skip
def test_hostile_lines_cost_their_length(filler: str) -> None:
    """Linear: milliseconds. With backtracking the test would not end."""
    marks = " ".join({form.marker.decode() for form in FORMS})
    for text in (filler * (60_000 // len(filler)), marks + filler * (40_000 // len(filler))):
        read(text.encode())
