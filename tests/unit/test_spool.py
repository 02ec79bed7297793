"""The disk spool: order, bound, and what a killed process leaves."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.spool import Spool
from collectors.spool_lane import Entry
from telemetry.errors import SettingsError

BOUND = 64_000


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(tmp_path / "spool", BOUND)
    yield made
    made.close()


def read(spool: Spool) -> list[Entry]:
    found = []
    while (entry := spool.peek()) is not None:
        spool.advance()
        found.append(entry)
    return found


def texts(spool: Spool) -> list[bytes]:
    return [entry.payload for entry in read(spool)]


def test_both_lanes_come_back_as_one_in_order(spool: Spool) -> None:
    for number in range(100):
        spool.append(b"%d" % number, "event" if number % 7 == 0 else "frame", keep=number % 7 == 0)

    found = read(spool)

    assert [b"%d" % number for number in range(100)] == [entry.payload for entry in found]
    assert sorted(entry.order for entry in found) == [entry.order for entry in found]
    assert {"event", "frame"} == {entry.kind for entry in found}


def test_what_is_not_acknowledged_is_read_again(spool: Spool) -> None:
    for number in range(10):
        spool.append(b"%d" % number, "frame", keep=number % 2 == 0)
    found = read(spool)
    spool.ack(found[5].order)
    spool.rewind()

    assert [b"6", b"7", b"8", b"9"] == texts(spool)


def test_what_is_skipped_counts_as_read_until_it_is_read_again(spool: Spool) -> None:
    spool.append(b"a", "frame", keep=False)
    spool.append(b"b", "event", keep=True)
    spool.skip()
    assert spool.peek() is None

    spool.append(b"c", "frame", keep=False)
    assert [b"c"] == texts(spool)
    spool.rewind()
    assert [b"a", b"b", b"c"] == texts(spool)


def test_reading_goes_on_with_what_is_appended_meanwhile(spool: Spool) -> None:
    found = []
    for number in range(500):
        spool.append(b"%d" % number, "frame", keep=False)
        found += texts(spool)

    assert [b"%d" % number for number in range(500)] == found


def test_the_bound_takes_the_oldest_telemetry_and_no_event(tmp_path: Path) -> None:
    spool = Spool(tmp_path, BOUND)
    for number in range(1_000):
        spool.append(b"f%04d" % number + b"x" * 200, "frame", keep=False)
        if number % 10 == 0:
            spool.append(b"e%04d" % number, "event", keep=True)
        assert spool.size_bytes <= BOUND

    left = texts(spool)
    events = [text for text in left if text.startswith(b"e")]
    frames = [int(text[1:5]) for text in left if text.startswith(b"f")]
    assert [b"e%04d" % number for number in range(0, 1_000, 10)] == events
    assert list(range(frames[0], 1_000)) == frames
    assert {"frame": frames[0]} == dict(spool.dropped)
    assert frames[0] < 1_000 - BOUND // 2 // 220, "no more than a segment too many"
    spool.close()


def test_events_alone_fill_it_and_then_the_newest_is_dropped_and_counted(spool: Spool) -> None:
    taken = [spool.append(b"e%04d" % number + b"x" * 995, "event", keep=True)
             for number in range(100)]  # fmt: skip
    count = sum(order is not None for order in taken)

    assert 50 < count < 64
    assert all(order is None for order in taken[count:])
    assert {"event": 100 - count} == dict(spool.dropped)
    assert spool.append(b"f", "frame", keep=False) is None or spool.size_bytes <= BOUND
    assert count == sum(text.startswith(b"e") for text in texts(spool))


def test_what_was_acknowledged_before_it_was_dropped_is_not_counted(spool: Spool) -> None:
    for _ in range(20):
        spool.append(b"x" * 500, "frame", keep=False)
    found = read(spool)
    spool.ack(found[-1].order)
    for _ in range(120):
        spool.append(b"x" * 500, "frame", keep=False)
    left = texts(spool)

    assert 140 == 20 + len(left) + spool.dropped["frame"]


def test_a_new_process_goes_on_where_the_old_one_was(tmp_path: Path) -> None:
    first = Spool(tmp_path, BOUND)
    for number in range(300):
        first.append(b"%d" % number, "frame", keep=number % 3 == 0)
    found = read(first)
    first.ack(found[99].order)
    first.close()

    second = Spool(tmp_path, BOUND)
    second.append(b"300", "frame", keep=False)
    assert [b"%d" % number for number in range(100, 301)] == texts(second)
    second.close()


def test_acknowledged_segments_leave_the_disk(spool: Spool) -> None:
    for _ in range(100):
        spool.append(b"x" * 500, "frame", keep=False)
    full = spool.size_bytes
    spool.ack(read(spool)[-1].order)
    spool.sync()

    assert 0 == spool.size_bytes < full
    spool.append(b"later", "frame", keep=False)
    assert [b"later"] == texts(spool)


def test_orders_are_not_used_twice_after_everything_was_acknowledged(tmp_path: Path) -> None:
    first = Spool(tmp_path, BOUND)
    last = first.append(b"a", "frame", keep=False)
    assert last is not None
    first.ack(last)
    first.close()

    second = Spool(tmp_path, BOUND)
    assert last + 1 == second.append(b"b", "frame", keep=False)
    assert [b"b"] == texts(second)
    second.close()


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 2_000), garbage=st.binary(max_size=40))
def test_a_torn_tail_is_cut_and_everything_before_it_is_kept(
    tmp_path_factory: pytest.TempPathFactory, cut: int, garbage: bytes
) -> None:
    directory = tmp_path_factory.mktemp("spool")
    first = Spool(directory, 10_000_000)
    for number in range(40):
        first.append(b"%02d" % number * 10, "frame", keep=False)
    first.close()
    (segment,) = directory.glob("*.telemetry")
    whole = segment.read_bytes()
    segment.write_bytes(whole[: max(len(whole) - cut, 0)] + garbage)

    second = Spool(directory, 10_000_000)
    second.append(b"next", "frame", keep=False)
    found = texts(second)
    second.close()

    assert [b"%02d" % number * 10 for number in range(len(found) - 1)] == found[:-1]
    assert b"next" == found[-1]
    entry_bytes = len(whole) // 40
    assert len(found) - 1 >= 40 - (cut + entry_bytes - 1) // entry_bytes


def test_a_tail_of_zeros_is_no_entry(tmp_path: Path) -> None:
    first = Spool(tmp_path, BOUND)
    first.append(b"a", "frame", keep=False)
    first.close()
    (segment,) = tmp_path.glob("*.telemetry")
    with segment.open("ab") as file:
        file.write(bytes(4096))

    second = Spool(tmp_path, BOUND)
    assert [b"a"] == texts(second)
    assert 4096 == second.torn_bytes
    second.close()


def test_a_broken_position_sends_everything_again(tmp_path: Path) -> None:
    first = Spool(tmp_path, BOUND)
    for text in (b"a", b"b"):
        first.append(text, "frame", keep=False)
    first.ack(1)
    first.close()
    (tmp_path / "acked").write_bytes(b"\x01\x00")

    second = Spool(tmp_path, BOUND)
    assert [b"a", b"b"] == texts(second)
    second.close()


def test_one_spool_serves_one_process(tmp_path: Path) -> None:
    first = Spool(tmp_path, BOUND)
    with pytest.raises(SettingsError, match="another process uses this spool"):
        Spool(tmp_path, BOUND)
    first.close()
    Spool(tmp_path, BOUND).close()


def test_a_bound_that_holds_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="a spool of 1 bytes is none; at least 16384"):
        Spool(tmp_path, 1)


def test_a_spool_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"Not a directory|File exists"):
        Spool(tmp_path / "file", BOUND)


WRITER = """
    import itertools, sys
    from pathlib import Path
    from collectors.spool import Spool

    spool = Spool(Path(sys.argv[1]), 10_000_000)
    for number in itertools.count():
        spool.append(b"%d" % number + b" " * 3_000, "event", keep=number % 2 == 0)
        print(number, flush=True)
"""


def test_a_killed_writer_loses_nothing_that_it_said_was_written(tmp_path: Path) -> None:
    for kill in range(3):
        directory = tmp_path / str(kill)
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), str(directory)],
            stdout=subprocess.PIPE, cwd=Path(__file__).parents[2],
        ) as writer:  # fmt: skip
            assert writer.stdout is not None
            said = [int(writer.stdout.readline()) for _ in range(50 + 100 * kill)]
            writer.kill()
        spool = Spool(directory, 10_000_000)
        found = [int(text) for text in texts(spool)]
        spool.close()
        assert list(range(len(found))) == found
        assert len(found) > said[-1]


@settings(max_examples=100, deadline=None)
@given(
    moves=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.booleans()),
            st.tuples(st.just("read"), st.integers(1, 20)),
            st.tuples(st.just("ack"), st.integers(0, 20)),
            st.tuples(st.just("rewind"), st.none()),
            st.tuples(st.just("restart"), st.none()),
        ),
        max_size=80,
    )
)  # fmt: skip
def test_any_history_reads_what_a_list_would(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[str, int]]
) -> None:
    """Below the bound a spool is a list with a read position and an acknowledged one."""
    directory = tmp_path_factory.mktemp("spool")
    spool = Spool(directory, 20_000)
    model: list[tuple[int, bytes]] = []
    at, acked, count = 0, 0, 0
    for move, argument in moves:
        if move == "append":
            count += 1
            order = spool.append(b"%d" % count, "k", keep=bool(argument))
            assert order is not None
            model.append((order, b"%d" % count))
        elif move == "read":
            for _ in range(argument):
                entry = spool.peek()
                assert (entry is None) == (at >= len(model))
                if entry is None:
                    break
                assert model[at] == (entry.order, entry.payload)
                spool.advance()
                at += 1
        elif move == "ack":
            acked = max(acked, min(argument, at))
            if acked:
                spool.ack(model[acked - 1][0])
                spool.sync()
        else:
            if move == "restart":
                spool.close()
                spool = Spool(directory, 20_000)
            spool.rewind()
            at = acked
    assert not spool.dropped
    spool.close()
