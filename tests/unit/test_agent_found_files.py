"""Dumps that appear on disk: each read once, bounded, and what an event says of them."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.agent import found_files
from collectors.agent.counts import Counts
from collectors.agent.dumps import Found, of_collectives, of_stacks
from collectors.agent.found_files import FoundFiles, FoundPosition, Watched
from collectors.agent.log_names import LogNames
from collectors.agent.rounds import Reading
from telemetry.codec import decode, encode
from telemetry.records import Event
from telemetry.testing import ManualClock

DATA = Path(__file__).parents[1] / "data" / "trainlog"
AT_S = 1_700_000_000.0
FAULTHANDLER = """Timeout (0:05:00)!
Thread 0x00007f2a5b7fe700 [pt_autograd_0] (most recent call first):
  <no Python frame>

Thread 0x00007f2a5b7fe740 (most recent call first):
  File "/app/data.py", line 12 in next
  File "/app/train.py", line ??? in <module>
"""


class Node:
    """A directory that the agent watches, and a clock that stands."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.clock, self.counts = directory, ManualClock(AT_S), Counts()
        directory.mkdir(exist_ok=True)

    def start(self, saved: FoundPosition | None, template: str = "{job}/nccl_trace_rank_{rank}",
              stacks: str = "stacks/*") -> FoundFiles:  # fmt: skip
        watched = [
            Watched(LogNames(f"{self.directory}/{one}", "n1"), "{job}" in one, read)
            for one, read in ((template, of_collectives), (stacks, of_stacks))
        ]
        return FoundFiles(watched, "n1", "boot", saved, self.counts, self.clock)

    def write(self, name: str, data: bytes, age_s: float = 10.0) -> Path:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.touch(path, age_s)
        return path

    def touch(self, path: Path, age_s: float = 10.0) -> None:
        os.utime(path, (0.0, self.clock.time_s() - age_s))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "dumps")


NOTHING = FoundPosition({})


def entry(**more: Any) -> dict[str, Any]:
    return {"record_id": 1, "collective_seq_id": 26, "profiling_name": "nccl:all_reduce",
            "state": "completed", "process_group": ["0", "default_pg"], **more}  # fmt: skip


def recorder(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"version": "2.9", "entries": list(entries)}).encode()


def events(reading: Reading) -> list[Event]:
    made = [record for record in reading.records if isinstance(record, Event)]
    assert len(made) == len(reading.records)
    assert all(isinstance(decode(encode(one), ""), Event) for one in made)
    return made


def inspector(count: int, start: int = 0) -> bytes:
    one = json.loads((DATA / "nccl_inspector_sample_0.json").read_text("utf-8"))
    lines = []
    for number in range(start, start + count):
        one["coll_perf"]["coll_sn"] = number
        lines.append(json.dumps(one).encode() + b"\n")
    return b"".join(lines)


# -- what is said


def test_a_flight_recorder_s_dump_is_an_event_with_the_first_collective_that_waits(
    node: Node,
) -> None:
    node.write("j1/nccl_trace_rank_5", recorder(
        entry(), entry(record_id=3, collective_seq_id=28, state="scheduled"),
        entry(record_id=2, collective_seq_id=27, state="started", profiling_name="nccl:send 0->3"),
    ))  # fmt: skip
    (said,) = events(node.start(NOTHING).read())
    assert ("process", "nccl", "rank:5", "j1") == (said.type, said.class_, said.entity, said.job)
    assert ("n1", "boot", AT_S - 10.0) == (said.node, said.boot_id, said.at)
    assert "3 collectives, 2 not completed; the first is send seq 27 of default_pg" in said.text
    assert ("flight_recorder", 27, "send", 2) == tuple(
        said.details[name] for name in ("detail", "seq", "op", "pending")
    )
    assert str(said.details["file"]).endswith("j1/nccl_trace_rank_5")


def test_a_dump_of_two_ranks_as_tools_write_it(node: Node) -> None:
    node.write("j1/nccl_trace_rank_0", (DATA / "fr_lock_gil_2nd_two_ranks.json").read_bytes())
    (said,) = events(node.start(NOTHING).read())
    assert "2 ranks, " in said.text


def test_a_pickle_is_never_read_but_its_rank_is_known(node: Node) -> None:
    node.write("j1/nccl_trace_rank_7", pickle.dumps({"entries": []}))
    (said,) = events(node.start(NOTHING).read())
    assert ("rank:7", True) == (said.entity, "a pickle" in said.text)


def test_inspector_records_are_counted_and_are_no_events(node: Node) -> None:
    node.write("j1/nccl_trace_rank_0", inspector(30))
    assert [] == node.start(NOTHING).read().records
    assert 30 == node.counts.totals["collective_records", ""]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pyspy_process_header_idle_main.txt", "threads; "),
        ("pyspy_old_hex_thread.txt", "threads; "),
        ("bloom176b_hang_pyspy_two_nodes.txt", "threads; "),
    ],
)
def test_dumps_of_py_spy_are_summed_up(node: Node, name: str, words: str) -> None:
    node.write("stacks/rank-3.txt", (DATA / name).read_bytes())
    (said,) = events(node.start(NOTHING).read())
    assert ("stack_dump", "rank:3", "") == (said.class_, said.entity, said.job)
    assert words in said.text
    assert int(said.details["threads"]) > 0


def test_a_dump_of_faulthandler_says_why_and_where(node: Node) -> None:
    node.write("stacks/dump", FAULTHANDLER.encode())
    (said,) = events(node.start(NOTHING).read())
    assert (
        "stacks after Timeout (0:05:00): 2 threads; next (/app/data.py:12) < <module>" in said.text
    )


# -- once, and through everything that happens to files


def test_a_file_is_read_once_also_after_a_restart_and_again_when_it_was_written_anew(
    node: Node,
) -> None:
    path = node.write("j1/nccl_trace_rank_0", recorder(entry()))
    files = node.start(NOTHING)
    first = files.read()
    assert (1, 0) == (len(first.records), len(files.read().records))
    assert first.position is not None
    assert [] == node.start(first.position).read().records
    node.write("j1/nccl_trace_rank_0", recorder(entry(), entry()), age_s=5.0)
    again = node.start(first.position)
    assert 1 == len(again.read().records)
    path.unlink()
    assert again.read().position == NOTHING


def test_what_is_there_on_the_very_first_start_is_history(node: Node) -> None:
    node.write("j1/nccl_trace_rank_0", recorder(entry()))
    files = node.start(None)
    assert [] == files.read().records
    node.write("j1/nccl_trace_rank_1", recorder(entry()))
    assert ["rank:1"] == [one.entity for one in events(files.read())]


def test_a_file_that_is_still_written_waits_but_not_for_ever(node: Node) -> None:
    path = node.write("j1/nccl_trace_rank_0", recorder(entry()), age_s=0.5)
    files = node.start(NOTHING)
    for _ in range(3):
        assert [] == files.read().records
        node.clock.advance(10.0)
        node.touch(path, 0.5)
    assert 1 == len(files.read().records)


def test_stacks_that_are_appended_are_read_on(node: Node) -> None:
    path = node.write("stacks/dump", FAULTHANDLER.encode())
    files = node.start(NOTHING)
    files.read()
    with path.open("ab") as file:
        file.write(
            b'Current thread 0x0000700a (most recent call first):\n  File "b", line 2 in late\n'
        )
    node.touch(path, 5.0)
    (said,) = events(files.read())
    assert "1 threads; late (b:2)" in said.text


def test_an_inspector_s_file_is_read_on_in_whole_lines(node: Node) -> None:
    path = node.write("j1/nccl_trace_rank_0", inspector(10)[:-20])
    files = node.start(NOTHING)
    files.read()
    assert 9 == node.counts.totals["collective_records", ""]
    path.write_bytes(inspector(12))
    node.touch(path, 5.0)
    files.read()
    assert (12, 0) == tuple(
        node.counts.totals[name] for name in (("collective_records", ""), ("rejected", "files"))
    )


def test_of_much_that_the_inspector_writes_only_the_newest_is_read(node: Node) -> None:
    data = inspector(3_000)
    node.write("j1/nccl_trace_rank_0", data)
    node.start(NOTHING).read()
    read = node.counts.totals["collective_records", ""]
    assert 0 < read <= found_files.GROWN_BYTES_MAX / (len(data) / 3_000)
    assert 0 == node.counts.totals["rejected", "files"]


def test_directories_may_be_removed_rotated_and_come_back(node: Node) -> None:
    files = node.start(NOTHING)
    for turn in range(3):
        path = node.write("j1/nccl_trace_rank_0", recorder(entry()), age_s=10.0 + turn)
        assert 1 == len(files.read().records)
        path.rename(path.with_suffix(".old"))
        assert [] == files.read().records
        path.with_suffix(".old").unlink()
        path.parent.rmdir()
        assert [] == files.read().records


def test_a_file_that_was_renamed_is_known_and_another_under_its_name_is_not(node: Node) -> None:
    path = node.write("stacks/dump", FAULTHANDLER.encode())
    files = node.start(NOTHING, "{job}/none")
    files.read()
    path.rename(path.with_name("dump.1"))
    assert [] == files.read().records
    with path.with_name("dump.1").open("r+b") as file:  # the same number, other words, and longer
        file.write(b"Timeout (9:99:99)!")
        file.seek(0, os.SEEK_END)
        file.write(b"\n" * 50)
    node.touch(path.with_name("dump.1"), 5.0)
    (said,) = events(files.read())
    assert "after Timeout (9:99:99)" in said.text


def test_what_is_no_file_is_left_alone(node: Node) -> None:
    directory = node.directory / "j1"
    (directory / "nccl_trace_rank_0").mkdir(parents=True)
    os.mkfifo(directory / "nccl_trace_rank_1")
    (directory / "nccl_trace_rank_2").symlink_to("/nowhere")
    (directory / "nccl_trace_rank_3").symlink_to("/dev/zero")
    node.write("j1/nccl_trace_rank_4", b"")
    reading = node.start(NOTHING).read()
    assert ([], [], []) == (reading.records, reading.rejected, reading.notes)


def test_what_is_older_than_a_day_is_history(node: Node) -> None:
    node.write("j1/nccl_trace_rank_0", recorder(entry()), age_s=90_000.0)
    assert [] == node.start(NOTHING).read().records


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\xff\xfe" * 1_000, b"hello\n", b"{", b"[]", b"{}", b"\x80\x04",
        b"\x80\x04" + b"\xff" * 99, b'{"entries": [1, "x", null]}', b'{"entries": [{}]}',
        b'{"coll_perf": {}}\n', b"[" * 100_000,
        b'{"0": {"entries": []}, "1": 7}', b'{"coll_perf": "broken\n' * 100,
    ],
)  # fmt: skip
def test_junk_is_rejected_or_a_bare_event_and_read_once(node: Node, data: bytes) -> None:
    node.write("j1/nccl_trace_rank_0", data)
    node.write("stacks/x", data)
    files = node.start(NOTHING)
    reading = files.read()
    events(reading)
    assert len(reading.records) + len(reading.rejected) > 0
    again = files.read()
    assert ([], []) == (again.records, again.rejected)


def test_a_huge_dump_is_an_event_without_a_summary_and_memory_stays_small(node: Node) -> None:
    path = node.write("j1/nccl_trace_rank_0", b'{"entries": [' + b'{"seq": 1}, ' * 10)
    stacks = node.write("stacks/x", FAULTHANDLER.encode() * 30)
    for one in (path, stacks):
        with one.open("ab") as file:
            file.truncate(1 << 40)  # a hole
        node.touch(one)
    said = events(node.start(NOTHING).read())
    assert ["nccl", "stack_dump"] == [one.class_ for one in said]
    assert "too long to be summed up" in said[0].text


def test_a_thousand_ranks_are_told_in_bounded_looks(node: Node) -> None:
    for rank in range(1_000):
        node.write(f"j1/nccl_trace_rank_{rank}", recorder(entry(state="started")))
    files = node.start(NOTHING)
    ranks: list[str] = []
    for _ in range(1_000 // found_files.FILES_A_LOOK + 1):
        said = events(files.read())
        assert len(said) <= found_files.FILES_A_LOOK
        ranks += [one.entity for one in said]
    assert sorted(f"rank:{rank}" for rank in range(1_000)) == sorted(ranks)


def test_what_may_not_be_read_is_said_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.write("j1/nccl_trace_rank_0", recorder(entry()))
    files = node.start(NOTHING)

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr("collectors.agent.found_files.os.open", refuse)
        assert ["Permission denied"] == [note[-17:] for note in files.read().notes]
    assert [] == files.read().notes
    assert 1 == node.counts.totals["errors", "files"]


@settings(max_examples=200)
@given(st.binary(max_size=600), st.booleans())
def test_any_bytes_give_an_event_or_a_reason(data: bytes, whole: bool) -> None:
    for read in (of_collectives, of_stacks):
        said = read(Found("/d/x", "", None, AT_S, data, whole))
        assert said.event is not None or said.broken or said.records
