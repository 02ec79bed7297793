"""Files read as they grow: rotated, emptied, copied, many, half-written, and after a restart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.agent.tail import PIECE_BYTES, POLL_BYTES_MAX, TailPosition, Tails


class Logs:
    """A directory of logs and who reads them."""

    def __init__(self, directory: Path, saved: TailPosition | None = None) -> None:
        self.directory = directory
        self.saved = saved if saved is not None else TailPosition({})
        self.tails = self.opened(self.saved)

    def opened(self, saved: TailPosition | None) -> Tails:
        return Tails(lambda: sorted(self.directory.glob("*.log")), saved)

    def write(self, text: str, name: str = "a.log") -> None:
        with (self.directory / name).open("a", encoding="utf-8") as file:
            file.write(text)

    def read(self) -> str:
        self.tails.look()
        return "".join(piece.data.decode() for piece in self.tails.poll())

    def restart(self) -> None:
        saved = self.tails.position()
        self.tails.close()
        self.tails = self.opened(saved)


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def test_whole_lines_are_handed_out_once_and_a_half_one_waits(logs: Logs) -> None:
    logs.write("one\ntw")
    assert "one\n" == logs.read()
    assert "" == logs.read()
    logs.write("o\nthree\n")
    assert "two\nthree\n" == logs.read()


def test_a_progress_bar_ends_its_lines_with_a_carriage_return(logs: Logs) -> None:
    logs.write("step 1\rstep 2\rste")
    assert "step 1\rstep 2\r" == logs.read()


def test_a_rotated_log_is_read_to_its_end_then_the_new_one_from_its_start(logs: Logs) -> None:
    logs.write("one\n")
    assert "one\n" == logs.read()
    logs.write("two\nthree")
    (logs.directory / "a.log").rename(logs.directory / "a.log.1")
    (logs.directory / "a.log").touch()
    assert "two\n" == logs.read()
    with (logs.directory / "a.log.1").open("a") as file:  # who writes has not turned yet
        file.write(" and four\n")
    assert "three and four\n" == logs.read()
    logs.write("five\n")
    assert "five\n" == logs.read() + logs.read()
    assert 1 == logs.tails.counts.rotated


def test_a_log_that_is_moved_away_is_still_read(logs: Logs) -> None:
    logs.write("one\n")
    logs.read()
    logs.write("two\n")
    (logs.directory / "a.log").rename(logs.directory / "old")
    assert "two\n" == "".join(piece.data.decode() for piece in logs.tails.poll())


def test_an_emptied_log_is_read_from_its_start(logs: Logs) -> None:
    logs.write("one\ntwo\n")
    logs.read()
    os.truncate(logs.directory / "a.log", 0)
    logs.write("new\n")
    assert "new\n" == logs.read()
    assert 1 == logs.tails.counts.truncated


def test_a_log_that_was_copied_emptied_and_outgrew_itself_between_two_looks(logs: Logs) -> None:
    logs.write("one\n")
    logs.read()
    os.truncate(logs.directory / "a.log", 0)
    logs.write("other and much longer\n")
    assert "other and much longer\n" == logs.read()


def test_a_restarted_agent_goes_on_where_it_was_also_in_a_rotated_file(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.write("one\ntw")
    logs.read()
    saved = logs.tails.position()
    logs.write("o\n")
    (tmp_path / "a.log").rename(tmp_path / "b.log")
    logs.write("new\n")
    logs.tails.close()
    logs.tails = logs.opened(saved)
    assert "new\ntwo\n" == logs.read()


def test_on_the_very_first_start_what_files_hold_is_history(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.write("old\n")
    logs.tails = logs.opened(None)
    assert "" == logs.read()
    logs.write("new\n")
    logs.write("all of it\n", "b.log")
    assert "new\nall of it\n" == logs.read()


def test_a_file_that_took_the_place_of_a_known_one_is_not_begun_in_its_middle(
    tmp_path: Path,
) -> None:
    logs = Logs(tmp_path)
    logs.write("one\ntwo\n")
    logs.read()
    saved = logs.tails.position()
    os.truncate(tmp_path / "a.log", 0)
    logs.write("another one\nof the same number\n")
    logs.tails = logs.opened(saved)
    assert "another one\nof the same number\n" == logs.read()


def test_a_huge_old_log_is_begun_near_its_end_and_what_is_left_out_is_counted(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collectors.agent.tail.BACKLOG_BYTES_MAX", 100)
    logs.write("".join(f"line {at:04d}\n" for at in range(100)))
    read = logs.read()
    assert read.startswith("line 0091\n")
    assert read.endswith("line 0099\n")
    assert 910 == logs.tails.counts.left_out_bytes


def test_one_poll_reads_a_bounded_piece_of_each_and_all_get_their_turn(logs: Logs) -> None:
    ranks = 2 * POLL_BYTES_MAX // PIECE_BYTES
    line = "x" * 99 + "\n"
    for rank in range(ranks):
        logs.write(line * (PIECE_BYTES // 100 + 100), f"rank-{rank:03d}.log")
    logs.tails.look()
    polls = [list(logs.tails.poll()) for _ in range(8)]
    assert all(sum(len(p.data) for p in poll) <= POLL_BYTES_MAX + PIECE_BYTES for poll in polls)
    assert ranks == len({piece.path for poll in polls for piece in poll})
    total = sum(len(piece.data) for poll in polls for piece in poll)
    assert total == ranks * 100 * (PIECE_BYTES // 100 + 100)


def test_a_line_without_end_is_handed_out_in_parts(logs: Logs) -> None:
    logs.write("x" * (PIECE_BYTES + 10))
    assert PIECE_BYTES == len(logs.read())


def test_more_files_than_we_read_are_counted(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collectors.agent.tail.FILES_MAX", 3)
    for at in range(5):
        logs.write("x\n", f"{at}.log")
    assert "x\n" * 3 == logs.read()
    assert 2 == logs.tails.counts.too_many


def test_a_directory_of_that_name_costs_nothing(logs: Logs) -> None:
    (logs.directory / "d.log").mkdir()
    logs.write("x\n")
    assert "x\n" == logs.read()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["write", "read", "rotate", "restart"]), st.integers(1, 30)),
        max_size=40,
    )
)
def test_every_line_comes_once_whatever_happens_between(steps: list[tuple[str, int]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        logs, count, rotated, read = Logs(Path(directory)), 0, 0, ""
        for what, size in steps:
            if what == "write":
                logs.write(f"{count} {'x' * size}\n")
                count += 1
            elif what == "rotate" and (logs.directory / "a.log").exists():
                (logs.directory / "a.log").rename(logs.directory / f"old-{rotated}.log")
                rotated += 1
            elif what == "restart":
                logs.restart()
            else:
                read += logs.read()
        for _ in range(3):
            read += logs.read()
        logs.tails.close()
        numbers = [int(line.split()[0]) for line in read.splitlines()]
        assert sorted(numbers) == list(range(count))
