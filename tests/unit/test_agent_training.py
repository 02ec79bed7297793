"""Training logs and the step socket: from what ranks write to records."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from datetime import UTC
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import step_reporter
from collectors.agent.log_names import LogNames
from collectors.agent.step_socket import BYTES_MAX, DATAGRAMS_MAX, StepSocket, read_datagram
from collectors.agent.steps import EVERY_S, LINGER_S, StepBatcher, StepRow
from collectors.agent.tail import TailPosition
from collectors.agent.training_source import QUIET_S, TrainingSource
from collectors.step_reporter import StepReporter
from telemetry.errors import SettingsError
from telemetry.records import Event, Rejected, Steps
from telemetry.testing import ManualClock

NOW_S = 1_772_027_985.0
MEGATRON = (
    " iteration {step:8d}/  500000 | consumed samples: {step} | elapsed time per iteration (ms):"
    " {ms:.1f} | learning rate: 1.0E-04 | global batch size: 512 | lm loss: 2.5E+00 |"
    " loss scale: 1.0 | grad norm: 0.3 | number of skipped iterations: 0 |\n"
)


def row(step: int, rank: int | None = 0, time_s: float | None = 2.0, at_s: float = NOW_S,
        **more: object) -> StepRow:  # fmt: skip
    return StepRow(job="j", rank=rank, step=step, at_s=at_s, step_time_s=time_s, **more)  # type: ignore[arg-type]


def batched(*rows: StepRow, now_s: float = 0.0) -> tuple[StepBatcher, list[Steps]]:
    batcher = StepBatcher("n1")
    for one in rows:
        batcher.add(one, now_s)
    return batcher, batcher.take(now_s + LINGER_S)


# -- logs


class Written:
    """Logs under a directory, and the source that reads them."""

    def __init__(self, directory: Path, template: str = "{job}/rank-{rank}.log") -> None:
        self.directory = directory
        self.clock = ManualClock(NOW_S)
        names = [LogNames(f"{directory}/{template}", "n1")]
        self.source = TrainingSource(names, "n1", "boot", UTC, TailPosition({}), self.clock)

    def write(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
        os.utime(path, (NOW_S, NOW_S))

    def read(self) -> list[StepRow | Event | Rejected]:
        return [*self.source.look(), *self.source.poll()]


def test_the_first_line_of_a_log_is_told_as_soon_as_it_is_written(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.write("j1/rank-7.log", MEGATRON.format(step=100, ms=2_000.0))
    (said,) = written.read()
    assert isinstance(said, StepRow)
    assert ("j1", 7, 100, 2.0, 2.5) == (
        said.job, said.rank, said.step, said.step_time_s, said.loss,
    )  # fmt: skip


def test_a_line_without_a_time_was_written_when_it_is_read(tmp_path: Path) -> None:
    written = Written(tmp_path)
    times = []
    for step in range(100, 105):
        written.write("j1/rank-0.log", MEGATRON.format(step=step, ms=2_000.0))
        times += [one.at_s for one in written.read() if isinstance(one, StepRow)]
        written.clock.advance(30.0)  # the pause between two lines is none of the printed ones
    assert [NOW_S + 30.0 * at for at in range(5)] == times


def test_a_failure_without_a_time_too_and_a_printed_time_wins(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.write("j1/rank-0.log", "torch.OutOfMemoryError: CUDA out of memory. Tried to\n")
    written.write("j1/rank-1.log", "[2026-02-25 13:59:40,000] ERROR torch.OutOfMemoryError: CUDA"
                                   " out of memory. Tried to allocate 2.00 GiB\n")  # fmt: skip
    said = written.read()
    written.clock.advance(QUIET_S)
    said += written.read()
    events = [one for one in said if isinstance(one, Event)]
    assert {"n1"} == {event.node for event in events}
    assert NOW_S in [event.at for event in events]
    assert NOW_S - 5.0 in [event.at for event in events]
    assert all(event.at <= written.clock.time_s() for event in events)


def test_a_rank_s_own_log_speaks_for_this_node_a_job_s_log_for_none(tmp_path: Path) -> None:
    """Rank 0's log tells of errors anywhere: the node that holds it is not accused."""
    text = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    for template, name, node, source in (
        ("{job}/rank-{rank}.log", "j1/rank-3.log", "n1", "training"),
        ("{job}/*.log", "j2/out.log", "", "training@n1"),
    ):
        written = Written(tmp_path / source, template)
        written.write(name, text)
        said = written.read()
        written.clock.advance(QUIET_S)
        said += written.read()
        (event,) = [one for one in said if isinstance(one, Event)]
        assert (node, source) == (event.node, event.source)


def test_ranks_with_logs_of_their_own_each_tell_their_steps_a_job_s_logs_once(
    tmp_path: Path,
) -> None:
    line = MEGATRON.format(step=100, ms=2_000.0)
    own = Written(tmp_path / "own")
    shared = Written(tmp_path / "shared", "{job}/*.log")
    for rank in range(4):
        own.write(f"j1/rank-{rank}.log", line)
        shared.write(f"j1/out.{'abcd'[rank]}.log", line)
    assert [0, 1, 2, 3] == sorted(one.rank or 0 for one in own.read() if isinstance(one, StepRow))
    assert [None] == [one.rank for one in shared.read() if isinstance(one, StepRow)]


@pytest.mark.parametrize(
    ("template", "path", "read"),
    [("/l/{job}/rank-{rank}.log", "/l/j1/rank-17.log", ("j1", 17)),
     ("/l/{job}/rank-{rank}.log", "/l/j1/rank-x.log", None),
     ("/l/*/*.log", "/l/j1/rank_3.log", ("j1", 3)),
     ("/l/*/*.log", "/l/j1/stdout.log", ("j1", None)),
     ("/l/slurm-{job}.out", "/l/slurm-4711.out", ("4711", None)),
     ("/l/{node}/{job}.log", "/l/n1/4711.log", ("4711", None)),
     ("/l/{node}/{job}.log", "/l/n2/4711.log", None)],
)  # fmt: skip
def test_job_and_rank_of_a_path(
    template: str, path: str, read: tuple[str, int | None] | None
) -> None:
    assert read == LogNames(template, "n1").read(path)


@pytest.mark.parametrize("template", ["logs/*.log", "", "/l/{job}/{job}.log"])
def test_a_template_that_cannot_be_meant_stops_the_start(template: str) -> None:
    with pytest.raises(SettingsError, match="is no path"):
        LogNames(template, "n1")


def test_a_rotated_log_is_another_log(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.write("j1/rank-0.log", MEGATRON.format(step=100, ms=2_000.0))
    said = written.read()
    (tmp_path / "j1/rank-0.log").rename(tmp_path / "j1/old")
    written.write("j1/rank-0.log", MEGATRON.format(step=101, ms=2_000.0))
    said += written.read() + written.read()
    assert [100, 101] == [one.step for one in said if isinstance(one, StepRow)]


# -- batches


def test_the_ranks_of_a_node_are_one_record() -> None:
    _, (steps,) = batched(*(row(7, rank, float(rank)) for rank in (3, 1, 2)))
    assert ("n1", "training", "j") == (steps.node, steps.source, steps.job)
    assert ([1, 2, 3], [7], [1.0, 2.0, 3.0]) == (steps.ranks, steps.step, steps.step_time_s)
    assert ([], []) == (steps.loss, steps.nonfinite)


def test_a_healthy_node_speaks_once_in_five_seconds_and_tells_means() -> None:
    batcher, said = batched(row(1))
    for tenth in range(1, 100):
        now_s = LINGER_S + tenth / 10.0
        batcher.add(row(1 + tenth, time_s=0.1 if tenth % 2 else 0.15), now_s)
        said += batcher.take(now_s)
    assert 2 == len(said)
    assert EVERY_S == pytest.approx(5.0)
    assert said[1].step_time_s[0] == pytest.approx(0.125, rel=0.01)
    assert said[1].step[0] == pytest.approx(51, abs=1)


def test_a_step_that_took_long_a_nan_and_a_step_back_are_said_at_once() -> None:
    batcher, said = batched(*(row(step) for step in range(1, 8)))
    for news in (row(8, time_s=5.0), row(9, loss=None, nonfinite=("loss",)), row(3)):
        batcher.add(news, 0.3)
        said = batcher.take(0.3)
        assert [news.step] == said[-1].step
    assert [["loss"]] == batched(row(9, nonfinite=("loss",)))[1][0].nonfinite


def test_what_is_news_is_not_averaged_with_what_came_before() -> None:
    batcher, _ = batched(*(row(step) for step in range(1, 8)))
    batcher.add(row(8), 0.3)
    batcher.add(row(9, time_s=60.0), 0.4)
    usual, slow = batcher.take(0.4)
    assert ([8], [2.0], [9], [60.0]) == (
        usual.step, usual.step_time_s, slow.step, slow.step_time_s,
    )  # fmt: skip


def test_a_job_s_log_names_no_node_and_kinds_stay_apart() -> None:
    _, said = batched(row(1, None), row(1, 0), row(2, 0, kind="evaluation"))
    assert [("", [], "train"), ("n1", [0], "train"), ("n1", [0], "evaluation")] == [
        (steps.node, steps.ranks, steps.step_kind) for steps in said
    ]
    assert "training@n1" == said[0].source


def test_ranks_at_different_steps_each_keep_their_number() -> None:
    _, (steps,) = batched(row(7, 0), row(8, 1))
    assert ([0, 1], [7, 8]) == (steps.ranks, steps.step)


def test_ranks_beyond_the_bound_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collectors.agent.steps.RANKS_MAX", 2)
    batcher, (steps,) = batched(row(1, 0), row(1, 1), row(1, 2))
    assert ([0, 1], 1) == (steps.ranks, batcher.dropped)


# -- socket


def datagram(**fields: object) -> bytes:
    return json.dumps({"job": "j", "rank": 3, "step": 7, "at": NOW_S, **fields}).encode()


def test_reporter_and_socket_agree(tmp_path: Path) -> None:
    listening = StepSocket(tmp_path / "s", ManualClock(NOW_S))
    reporter = StepReporter(rank=3, job="j", path=str(tmp_path / "s"))
    assert reporter.report(7, step_time_s=1.9, compute_time_s=1.4, loss=2.31, grad_norm=0.3,
                           tokens=4_096, kind="evaluation")  # fmt: skip
    assert reporter.report(8, loss=float("nan"), grad_norm=float("inf"))
    first, second = listening.poll()
    listening.close()
    assert row(7, 3, 1.9, compute_time_s=1.4, loss=2.31, grad_norm=0.3, tokens=4_096.0,
               kind="evaluation") == first  # fmt: skip
    assert isinstance(second, StepRow)
    assert (("loss", "grad_norm"), None) == (second.nonfinite, second.loss)
    assert (2, 0) == (reporter.sent, reporter.dropped)
    reporter.close()


def test_a_reporter_never_waits_nobody_listens_or_it_does_not_keep_up(tmp_path: Path) -> None:
    path = tmp_path / "s"
    reporter = StepReporter(rank=0, path=str(path))
    assert not reporter.report(1)

    listening = StepSocket(path, ManualClock(NOW_S))
    full = StepReporter(rank=0, job="j", path=str(path))
    sent = [full.report(step) for step in range(100_000)]
    assert sent[0]
    assert not sent[-1]
    assert 100_000 == full.sent + full.dropped
    taken = 0
    while batch := list(listening.poll()):
        taken += len(batch)
    assert taken == full.sent
    assert full.report(100_001)  # there is room again
    listening.close()
    assert not full.report(100_002)


def test_the_reporter_s_file_runs_alone(tmp_path: Path) -> None:
    """No package of ours or of anybody else's is there."""
    file = tmp_path / "step_reporter.py"
    file.write_text(Path(step_reporter.__file__).read_text("utf-8"), "utf-8")
    program = "import step_reporter as s; print(s.StepReporter(rank=0, path='/none').report(1))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=tmp_path, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    assert "False\n" == done.stdout


@pytest.mark.parametrize("bad", [{"step": "x"}, {"step": None}, {"loss": object()}, {"loss": [1]}])
def test_a_reporter_drops_what_is_no_number_and_does_not_raise(
    tmp_path: Path, bad: dict[str, object]
) -> None:
    listening = StepSocket(tmp_path / "s", ManualClock(NOW_S))
    reporter = StepReporter(rank=0, path=str(tmp_path / "s"))
    assert not reporter.report(**{"step": 1, **bad})  # type: ignore[arg-type]
    assert 1 == reporter.dropped
    reporter.close()
    assert [] == list(listening.poll())
    listening.close()


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00" * 100, b"null", b"[]", b"[" * 4_000, datagram(rank=-1), datagram(rank=10**8),
     datagram(step=-1), datagram(step=2**60), datagram(loss="high"), datagram(loss=1e308),
     datagram(step_time_s=-1.0), datagram(kind="other"), datagram(job="x" * 300),
     datagram(job="a\nb"), datagram(nonfinite=["other"]), datagram(nonfinite=["loss"] * 99),
     datagram(at=1e300), datagram(x="y" * BYTES_MAX)],
)  # fmt: skip
def test_what_anybody_may_send_is_rejected(data: bytes) -> None:
    assert isinstance(read_datagram(data, NOW_S), Rejected)


@given(st.binary(max_size=5_000))
def test_no_datagram_makes_it_raise(data: bytes) -> None:
    assert isinstance(read_datagram(data, NOW_S), StepRow | Rejected)


@pytest.mark.parametrize("at", [NOW_S - 61.0, NOW_S + 6.0, 0.0])
def test_a_time_far_from_ours_is_ours(at: float) -> None:
    said = read_datagram(datagram(at=at), NOW_S)
    assert isinstance(said, StepRow)
    assert NOW_S == said.at_s


def test_a_flood_is_read_in_bounded_pieces(tmp_path: Path) -> None:
    listening = StepSocket(tmp_path / "s", ManualClock(NOW_S))
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.setblocking(False)
    sent = 0
    while sent < 10 * DATAGRAMS_MAX:
        try:
            sender.sendto(b"junk", str(tmp_path / "s"))
        except BlockingIOError:
            break
        sent += 1
    said = list(listening.poll())
    assert len(said) == min(sent, DATAGRAMS_MAX)
    assert all(isinstance(one, Rejected) for one in said)
    sender.close()
    listening.close()


def test_a_socket_that_was_left_behind_is_replaced_a_file_is_not(tmp_path: Path) -> None:
    StepSocket(tmp_path / "s", ManualClock()).socket.close()
    StepSocket(tmp_path / "s", ManualClock()).close()
    assert not (tmp_path / "s").exists()
    (tmp_path / "file").write_text("precious")
    with pytest.raises(SettingsError, match="something else than a socket"):
        StepSocket(tmp_path / "file", ManualClock())
    with pytest.raises(SettingsError, match="longer than"):
        StepSocket(tmp_path / ("x" * 200), ManualClock())
    assert "precious" == (tmp_path / "file").read_text()
