"""What stands before a kernel message: every form, its time, and whose words follow."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from collectors.kernel.envelopes import ENVELOPES, open_line
from collectors.kernel.times import Clock, wall_time
from collectors.kernel_log import KernelEvent, KernelLog, objects
from telemetry.records import Rejected

AT_S = 1_772_027_985.0  # 2026-02-25 13:59:45 UTC
FELL = "NVRM: Xid (PCI:0000:c3:00): 79, pid=1234, name=python3, GPU has fallen off the bus."
KILLED = "Out of memory: Killed process 4711 (python3) total-vm:1kB"


def events(text: str, clock: Clock | None = None) -> list[KernelEvent]:
    log = KernelLog("x", clock or Clock())
    found = [*log.feed(text.encode()), *log.finish()]
    assert [] == [one for one in found if isinstance(one, Rejected)]
    return [one for one in found if isinstance(one, KernelEvent)]


@pytest.mark.parametrize("row", ENVELOPES, ids=lambda row: row.name)
def test_each_form_is_told_from_the_others_by_its_example(row: Any) -> None:
    first = next(one for one in ENVELOPES if one.pattern.match(row.example))
    assert row.name == first.name


@pytest.mark.parametrize(
    "before",
    [
        "2026-02-25T13:59:45,000000+00:00 ",
        "2026-02-25T15:59:45+0200 n1 kernel: ",
        "2026-02-25T13:59:45.000000Z n1 kernel: [16450076.435595] ",
        "2026-02-25T08:59:45.000000-05:00 kernel: ",
        "2026-02-25 13:59:45 ",
        "kern  :crit  : 2026-02-25T13:59:45,000000+00:00 ",
        "kern  :crit  : [Wed Feb 25 13:59:45 2026] ",
        "[Wed Feb 25 13:59:45 2026] ",
        "[Wed Feb 25 13:59:45 2026] [ T1946] ",
        "Feb 25 13:59:45 n1 kernel: ",
        "Feb 25 13:59:45 kernel: ",
        "<3>Feb 25 13:59:45 n1 kernel: [  12.345678] [ T77] ",
        "Feb 25 2026 13:59:45 n1 kernel: ",
        "Wed 2026-02-25 13:59:45 UTC n1 kernel: ",
        "1772027985.000000 n1 kernel: ",
        "<3>1 2026-02-25T13:59:45Z n1 kernel - - - ",
        '<3>1 2026-02-25T13:59:45Z n1 kernel - - [meta a="1"][x@9 b="2"] \ufeff',
        "142 <3>1 2026-02-25T14:59:45+01:00 n1 kernel - - - ",
        "10.0.0.119: kern: warning: [2026-02-25T13:59:45Z]: ",
        "[  985.000000] ",
        "<4>[  985.000000] ",
        "[  985.000000] n1 kernel: ",
        "[  985.000000][ T1946] ",
        "kernel: [  985.000000] ",
        "3,1234,985000000,-;",
        "3,1234,985000000,-,caller=T1,cpu=10,pid=1,comm=swapper/0;",
    ],
)
def test_the_time_and_the_message_are_found_in_every_form(before: str) -> None:
    clock = Clock(year=2026, boot_s=AT_S - 985.0)
    (event,) = events(before + FELL, clock)
    assert (AT_S, 79, 1234) == (event.at_s, event.code, event.pid)
    line = open_line((before + FELL).encode(), 1, Clock(year=2026))
    assert (FELL, False) == (line.message, line.user_space)


@pytest.mark.parametrize(
    "before",
    [
        "Feb 25 13:59:45 n1 python3[4711]: ",
        "Feb 25 13:59:45 n1 sudo: ",
        "2026-02-25T13:59:45+0000 n1 kubelet[812]: ",
        "<30>1 2026-02-25T13:59:45Z n1 app 99 - - ",
        "30,340,5690716,-;app: ",
        "<86>Feb 25 13:59:45 n1 kernel: ",
    ],
)
def test_what_a_program_writes_is_not_the_kernel_speaking(before: str) -> None:
    assert [] == events(before + KILLED)


def test_a_name_that_kernel_and_syslog_write_alike_is_the_kernel_s_without_a_host() -> None:
    fault = "app[4711]: segfault at 0 ip 00007f53772fbfc4 sp 00007f4e367fb898 error 4 in libc.so.6"
    (event,) = events(f"2026-02-25T13:59:45,000000+00:00 {fault}")
    assert ("app", 4711) == (event.process, event.pid)


def journal(**fields: object) -> str:
    return json.dumps({"__REALTIME_TIMESTAMP": "1772027985123456", "_BOOT_ID": "b", **fields})


def test_a_journal_record_gives_message_time_and_device() -> None:
    (event,) = events(journal(MESSAGE=FELL, _TRANSPORT="kernel", PRIORITY="3"))
    assert (AT_S + 0.123456, 79) == (event.at_s, event.code)
    text = "mlx5_port_module_event:1131: Port module event[error]: module 0, Cable error"
    (nic,) = events(journal(MESSAGE=text, _TRANSPORT="kernel", _KERNEL_DEVICE="+pci:0000:41:00.0"))
    assert ("nic", "0000:41:00") == (nic.type, nic.pci)


def test_a_journal_message_that_is_no_text_is_written_as_numbers() -> None:
    numbers = list((FELL + " \x1b[0m").encode())
    compact = json.dumps({"MESSAGE": numbers, "_TRANSPORT": "kernel"}, separators=(",", ":"))
    for record in (journal(MESSAGE=numbers, _TRANSPORT="kernel"), compact):
        assert [79] == [one.code for one in events(record)]


def test_a_program_s_journal_record_says_nothing_and_broken_json_raises_nothing() -> None:
    assert [] == events(journal(MESSAGE=KILLED, _TRANSPORT="stdout"))
    assert [] == events(journal(MESSAGE=KILLED, SYSLOG_IDENTIFIER="python3"))
    assert [] == events(journal(MESSAGE=None, _TRANSPORT="kernel"))
    assert [79] == [one.code for one in events('{"MESSAGE":"' + FELL)]
    assert [79] == [one.code for one in events('{"a":' * 900 + FELL)]


def test_another_program_s_json_carries_its_own_time() -> None:
    record = {"ts": "2026-02-25T13:59:45Z", "details": {"message": FELL}}
    (event,) = events(json.dumps(record))
    assert (AT_S, 79, 1234) == (event.at_s, event.code, event.pid)


def test_a_newline_that_rsyslog_wrote_as_an_escape_ends_the_message() -> None:
    text = "mlx5_port_module_event:9: Port module event[error]: module 0, Cable error"
    line = f"2026-02-25T13:59:45+00:00 T370;{text}#012 SUBSYSTEM=pci#012 DEVICE=+pci:0000:41:00.0"
    (event,) = events(line)
    assert "0000:41:00" == event.pci
    assert text == open_line(line.encode(), 1, Clock()).message


def test_the_dictionary_of_a_record_names_its_device_and_is_no_record() -> None:
    text = "Port module event[error]: module 0, Cable error"
    lines = f"3,7,985000000,-;{text}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:41:00.0\n"
    (event,) = events(lines, Clock(boot_s=AT_S))
    assert ("0000:41:00", 7) == (event.pci, event.kmsg_seq)
    apart = f"3,7,985000000,-;{text}\n6,8,1,-;usb 1-1: new\n a\n DEVICE=+pci:0000:41:00.0\n"
    assert [None] == [one.pci for one in events(apart)]


def test_a_message_repeated_is_the_message() -> None:
    (event,) = events(
        "Feb 25 13:59:45 n1 kernel: message repeated 9 times: [block nvme0n1: no available path"
        " - failing I/O]"
    )
    assert ("storage", "disk:nvme0n1") == (event.type, event.device)


def test_seconds_since_boot_without_a_boot_time_are_no_time() -> None:
    assert [None] == [one.at_s for one in events(f"[  985.000000] {FELL}")]


def test_local_times_are_read_in_the_clock_s_zone() -> None:
    berlin = Clock(tz=ZoneInfo("Europe/Berlin"), year=2026)
    for before in ("[Wed Feb 25 14:59:45 2026] ", "Feb 25 14:59:45 n1 kernel: "):
        assert [AT_S] == [one.at_s for one in events(before + FELL, berlin)]


@pytest.mark.parametrize("month", ["Okt", "Oct"])
def test_months_may_be_written_in_the_locale_s_language(month: str) -> None:
    (event,) = events(f"{month} 06 17:59:27 n1 kernel: {FELL}", Clock(year=2025))
    assert 1_759_773_567.0 == event.at_s


def years(text: str, clock: Clock) -> list[int | None]:
    times = [event.at_s for event in events(text, clock)]
    return [None if at_s is None else datetime.fromtimestamp(at_s, UTC).year for at_s in times]


def test_a_yearless_log_counts_on_over_new_year_in_the_order_of_the_file() -> None:
    text = "\n".join(f"{day} 03:00:00 n1 kernel: {FELL}" for day in ("Dec 30", "Jan  2", "Dec 30"))
    assert [2025, 2026, 2026] == years(text, Clock(year=2025))


def test_lines_a_little_out_of_order_at_new_year_keep_their_years() -> None:
    text = "\n".join(
        f"{day} n1 kernel: {FELL}"
        for day in ("Dec 31 23:59:58", "Jan  1 00:00:01", "Dec 31 23:59:59", "Jan  1 00:00:02")
    )
    assert [2025, 2026, 2025, 2026] == years(text, Clock(year=2025))


def test_ordinary_lines_carry_a_yearless_log_over_new_years_too() -> None:
    """Between the two Xids lie three quiet years, each with a few ordinary lines."""
    quiet = [f"{month} 10 03:00:00 n1 kernel: usb 1-1: new" for month in ("Jan", "May", "Oct")] * 3
    hits = [f"Mar 10 03:00:00 n1 kernel: {FELL}"]
    text = "\n".join([*hits, *quiet, *hits]).encode()
    assert [2023, 2027] == years(text.decode(), Clock(year=2023))
    log = KernelLog("x", Clock(year=2023))
    pieces = [said for byte in text for said in log.feed(bytes([byte]))]
    found = [one for one in (*pieces, *log.finish()) if isinstance(one, KernelEvent)]
    assert [one.at_s for one in events(text.decode(), Clock(year=2023))] == [o.at_s for o in found]


def test_without_a_year_the_nearest_to_what_is_known_is_taken_else_none() -> None:
    line = f"Dec 31 23:00:00 n1 kernel: {FELL}"
    assert [2025] == years(line, Clock(near_s=AT_S))
    assert [None] == years(line, Clock())


def test_a_leap_day_finds_its_year() -> None:
    line = f"Feb 29 03:00:00 n1 kernel: {FELL}"
    assert [2024] == years(line, Clock(near_s=AT_S))
    assert [None] == years(line, Clock(year=2026))


@pytest.mark.parametrize("date", ["Feb 30 03:00:00", "Xyz 10 03:00:00", "Feb 10 33:00:00"])
def test_a_date_that_is_none_is_no_time(date: str) -> None:
    assert [None] == [one.at_s for one in events(f"{date} n1 kernel: {FELL}", Clock(year=2026))]


def test_parse_kernel_prints_flat_objects_and_rejections() -> None:
    broken = "NVRM: Xid (PCI:0000:66:00): abc, pid=2280636"
    found = list(objects("f.log", [f"[  1.0] {FELL}\n{broken}\nusb 1-1: new\n".encode()]))
    assert {
        "file": "f.log", "type": "xid", "code": 79, "pci": "0000:c3:00", "pid": 1234,
        "process": "python3", "at": None, "severity": "critical", "class": "bus",
        "text": f"[  1.0] {FELL}",
    } == found[0]  # fmt: skip
    assert ["f.log", "rejected", broken] == [found[1][key] for key in ("file", "type", "text")]
    assert 2 == len(found)


@pytest.mark.parametrize(
    ("boot_s", "fresh", "at_s", "flagged"),
    [
        (AT_S, True, AT_S + 100.0, False),
        (AT_S - 36_000.0, True, AT_S + 101.0, True),  # ten hours off: the arrival is believed
        (AT_S - 36_000.0, False, AT_S - 35_900.0, False),  # the ring buffer's old lines are old
        (AT_S + 36_000.0, False, AT_S + 101.0, True),  # nothing arrives before it was said
    ],
)
def test_a_boot_clock_far_from_the_arrival_is_not_believed(
    boot_s: float, fresh: bool, at_s: float, flagged: bool
) -> None:
    assert (at_s, flagged) == wall_time(100.0, boot_s, AT_S + 101.0, fresh=fresh)
