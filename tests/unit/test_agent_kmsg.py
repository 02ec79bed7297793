"""The kernel's ring as the agent reads it: nothing missed, nothing told twice, gaps said."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from collectors.agent.counts import Counts
from collectors.agent.kernel_source import KernelPaths, KernelSource
from collectors.agent.kmsg import HOLD_MAX_S, HOLD_S, LOST, Kmsg, KmsgPosition
from collectors.agent.positions import PositionFile, Settling
from telemetry.errors import SourceUnavailable
from telemetry.records import Arrived, Event, Rejected, Settings
from telemetry.settings import EngineSettings
from telemetry.testing import ManualClock
from tests.folding import fresh

BOOT, OTHER_BOOT = "5c1b0a9e-1", "77e0d2aa-2"
BOOTED_S = 1_772_000_000.0


def line(seq: int, text: str = "usb 1-1: new device", at_us: int | None = None) -> str:
    return f"6,{seq},{1_000_000 * seq if at_us is None else at_us},-;{text}\n"


def xid(seq: int, code: int = 79, pci: str = "0000:c3:00") -> str:
    return line(seq, f"NVRM: Xid (PCI:{pci}): {code}, pid=1814139, name=python, Ch 00000008")


def clock(up_s: float = 10_000.0) -> ManualClock:
    made = ManualClock(BOOTED_S)
    made.advance(up_s)
    return made


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    path = tmp_path / "kmsg"
    path.write_text("", "ascii")
    return path


def write(ring: Path, *lines: str) -> None:
    with ring.open("a", encoding="utf-8") as file:
        file.write("".join(lines))


def opened(ring: Path, saved: KmsgPosition | None, boot: str = BOOT,
           of: ManualClock | None = None) -> Kmsg:  # fmt: skip
    return Kmsg(ring, "n1", boot, saved, of or clock())


def heard(kmsg: Kmsg) -> list[Event]:
    said = [*kmsg.poll(), *kmsg.finish()]
    assert not [one for one in said if isinstance(one, Rejected)]
    return [one for one in said if isinstance(one, Event)]


def codes(events: Sequence[Event]) -> list[int | None]:
    return [event.code for event in events]


def test_b11_on_a_new_boot_the_ring_is_read_from_its_start(ring: Path) -> None:
    """A 79 and its 154, printed 15 s before the agent started, are news."""
    write(ring, line(0), xid(1, 79), xid(2, 154), line(3))
    kmsg = opened(ring, KmsgPosition(OTHER_BOOT, 9_000))
    assert [79, 154] == codes(heard(kmsg))
    assert KmsgPosition(BOOT, 3) == kmsg.position()


def test_b11_on_the_very_first_start_only_what_is_printed_from_now_on_is_told(ring: Path) -> None:
    write(ring, line(0), xid(1, 79))
    kmsg = opened(ring, None)
    assert [] == heard(kmsg)
    assert KmsgPosition(BOOT, 1) == kmsg.position()  # a restart now misses nothing
    write(ring, xid(2, 48))
    assert [48] == codes(heard(kmsg))


def test_b11_on_the_same_boot_reading_goes_on_behind_the_saved_number(ring: Path) -> None:
    write(ring, xid(1, 79), xid(2, 48), xid(3, 95))
    assert [95] == codes(heard(opened(ring, KmsgPosition(BOOT, 2))))


def test_b12_numbers_that_jump_are_said_to_be_lost(ring: Path) -> None:
    write(ring, line(1040), line(1041), xid(5230))
    kmsg = opened(ring, KmsgPosition(BOOT, 1039))
    gap, event = heard(kmsg)

    assert (4188, 4188) == (kmsg.lost, gap.details["lost"])
    assert ("os", LOST, "info", 1042) == (gap.type, gap.class_, gap.severity, gap.kmsg_seq)
    assert "lost 4188" in gap.text
    assert (79, 5230) == (event.code, event.kmsg_seq)


def test_b12_what_was_overwritten_between_two_runs_is_lost_too(ring: Path) -> None:
    write(ring, line(500))
    kmsg = opened(ring, KmsgPosition(BOOT, 99))
    assert [400] == [event.details["lost"] for event in heard(kmsg)]


def test_b12_a_new_boot_whose_start_was_overwritten_says_so_and_the_first_start_does_not(
    ring: Path,
) -> None:
    write(ring, line(500))
    assert 500 == heard(opened(ring, KmsgPosition(OTHER_BOOT, 7)))[0].details["lost"]
    assert [] == heard(opened(ring, None))


def test_b12_the_gap_of_an_overrun_while_reading_is_told_by_the_next_number(
    ring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel answers EPIPE once, then goes on with the oldest record it has."""
    kmsg = opened(ring, KmsgPosition(BOOT, 10))
    answers: Iterator[bytes | OSError] = iter(
        [line(11).encode(), BrokenPipeError(32, "Broken pipe"), xid(40).encode(), b""]
    )

    def read(file: int, size: int) -> bytes:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr("collectors.agent.kmsg.os.read", read)
    said = [one for one in kmsg.poll() if isinstance(one, Event)]
    assert ([None, 79], 28) == (codes(said), kmsg.lost)


def test_b13_every_event_has_the_boot_and_the_kernel_s_number(ring: Path) -> None:
    write(ring, xid(7), line(8, "mlx5_core 0000:1a:00.0 mlx5_3: Link down"), xid(9, 48))
    events = heard(opened(ring, KmsgPosition(BOOT, 6)))
    assert {BOOT} == {event.boot_id for event in events}
    assert 7 == events[0].kmsg_seq
    assert sorted({event.kmsg_seq or 0 for event in events}) == [e.kmsg_seq for e in events]


def test_b13_what_is_read_again_after_a_kill_is_the_same_event_once(ring: Path) -> None:
    """200 lines through an agent that is killed before it saved its position, then again."""
    write(ring, *(xid(seq, pci=f"0000:{seq % 64:02x}:00") for seq in range(200)))
    fold = fresh()
    fold.step(Arrived(0, BOOTED_S, Settings(
        at=BOOTED_S, node="", source="", started_at=0.0, seq=0, digest="", engine_version="",
        settings=EngineSettings(),
    )))  # fmt: skip
    offset = 0
    for start_s in (1.0, 2.0):
        events = heard(opened(ring, KmsgPosition(OTHER_BOOT, 0)))
        assert 200 == len(events)
        for seq, event in enumerate(events):
            offset += 1
            numbered = structs.replace(event, started_at=start_s, seq=seq)
            fold.step(Arrived(offset, BOOTED_S + 10_000.0, numbered))
    assert (200, 200) == (fold.counters.used, fold.counters.duplicate)


@pytest.mark.parametrize("settled", [True, False])
def test_b13_a_position_is_saved_only_when_its_records_are_settled(
    tmp_path: Path, ring: Path, settled: bool
) -> None:
    write(ring, xid(0))
    of = clock()
    source = KernelSource(KernelPaths(str(ring), "", tmp_path), "n1", BOOT, Counts(), of)
    file = PositionFile(tmp_path / "kmsg.json", KmsgPosition)
    file.save(KmsgPosition(OTHER_BOOT, 3))

    assert 1 == len(source.poll())
    of.advance(1.0)
    source.poll()
    source.reached(1)
    source.settle(1 if settled else 0)
    source.close()

    assert file.load() == (KmsgPosition(BOOT, 0) if settled else KmsgPosition(OTHER_BOOT, 3))


def test_an_event_that_waits_for_its_next_line_holds_back_the_position(ring: Path) -> None:
    """Killed now, the agent must find the line again."""
    of = clock()
    kmsg = opened(ring, KmsgPosition(BOOT, 0), of=of)
    write(ring, line(1), line(2, "NVRM: Xid (PCI:0000:c3:00): 79"))
    assert [] == kmsg.poll()
    assert kmsg.waits
    assert KmsgPosition(BOOT, 0) == kmsg.position()

    of.advance(HOLD_S)
    assert [79] == codes([one for one in kmsg.poll() if isinstance(one, Event)])
    assert (KmsgPosition(BOOT, 2), False) == (kmsg.position(), kmsg.waits)


def test_a_kernel_that_never_pauses_does_not_hold_an_event_for_ever(ring: Path) -> None:
    of = clock()
    kmsg = opened(ring, KmsgPosition(BOOT, 0), of=of)
    write(ring, line(1, "NVRM: Xid (PCI:0000:c3:00): 79"))
    said: list[Event | Rejected] = []
    for seq in range(2, 200):
        said += kmsg.poll()
        of.advance(HOLD_S / 2.0)
        write(ring, line(seq))
    assert 1 == len(said)
    assert 199 * HOLD_S / 2.0 > HOLD_MAX_S


def test_a_line_of_the_ring_is_placed_by_the_boot_s_clock_a_fresh_one_that_drifts_is_now(
    ring: Path,
) -> None:
    write(ring, line(0, "NVRM: Xid (PCI:0000:c3:00): 79, pid=1", at_us=9_990_000_000))
    kmsg = opened(ring, KmsgPosition(OTHER_BOOT, 0))
    assert [BOOTED_S + 9_990.0] == [event.at for event in heard(kmsg)]
    write(ring, line(1, "NVRM: Xid (PCI:0000:c3:00): 48, pid=1", at_us=5_000_000))  # after a sleep
    assert [BOOTED_S + 10_000.0] == [event.at for event in heard(kmsg)]


def test_lines_that_continue_a_record_belong_to_it_also_when_it_is_skipped(ring: Path) -> None:
    device = " SUBSYSTEM=pci\n DEVICE=+pci:0000:1a:00.0\n"
    write(ring, line(1, "Port module event[error]: module 0, Cable error"), device,
          line(2, "Port module event[error]: module 0, Cable error"), device)  # fmt: skip
    events = heard(opened(ring, KmsgPosition(BOOT, 1)))
    assert [2] == [event.kmsg_seq for event in events]
    assert ["pci:0000:1a:00"] == [event.entity for event in events]


def test_a_record_is_read_in_whatever_pieces_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    kmsg = opened(path, KmsgPosition(BOOT, 0))
    assert kmsg.wakes
    end = os.open(path, os.O_WRONLY)
    events: list[Event] = []
    for byte in (xid(1) + xid(2, 48)).encode():
        os.write(end, bytes([byte]))
        events += [one for one in kmsg.poll() if isinstance(one, Event)]
    os.close(end)
    assert [79, 48] == codes(events)
    kmsg.close()


def test_a_ring_that_may_not_be_read_is_said_and_tried_again(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match="No such file"):
        opened(tmp_path / "none", None)
    counts, of = Counts(), clock()
    source = KernelSource(KernelPaths(str(tmp_path / "none"), "", None), "n1", BOOT, counts, of)
    for _ in range(100):
        assert [] == source.poll()
        of.advance(1.0)
    # after waits of 5, 10, 20, 40 and 60 s
    assert 5 == counts.totals["errors", "kernel"]
    write(tmp_path / "none", xid(0))
    of.advance(60.0)
    assert 1 == len(source.poll())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=80), max_size=30))
def test_no_bytes_make_it_raise(pieces: list[bytes]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "kmsg"
        path.write_bytes(b"\n".join(pieces))
        kmsg = opened(path, KmsgPosition(BOOT, -1))
        for said in (*kmsg.poll(), *kmsg.finish()):
            assert isinstance(said, Event | Rejected)
        kmsg.close()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60))
def test_the_saved_position_is_never_ahead_of_what_is_settled(
    steps: list[tuple[int, bool]],
) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        file = PositionFile(Path(directory) / "p.json", KmsgPosition)
        settling, ticket, settled = Settling(file), 0, 0
        for put, acknowledge in steps:
            ticket += put
            settling.reached(ticket, KmsgPosition(BOOT, ticket))
            settled = ticket if acknowledge else settled
            settling.settle(settled)
            saved = file.load()
            assert saved is None or saved.seq <= settled
            assert not acknowledge or (saved is not None and saved.seq == ticket)
