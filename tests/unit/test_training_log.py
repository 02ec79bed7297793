"""Training logs as records: steps, their time and kind, first causes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, tzinfo
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.training.records import LogRecords, Told
from telemetry.records import Event, Rejected, Steps

Said = Steps | Event | Rejected

DATA = Path(__file__).parents[1] / "data" / "trainlog"
START_S = 1_772_020_800.0


def step_line(iteration: int, elapsed_ms: float = 5000.0, **fields: str) -> str:
    more = "".join(f" {name.replace('_', ' ')}: {value} |" for name, value in fields.items())
    return (
        f" iteration {iteration:8d}/     100 | consumed samples:         5504 |"
        f" elapsed time per iteration (ms): {elapsed_ms} |{more}"
    )


def fold(
    lines: Sequence[str | bytes], clock_s: float | None = START_S, tz: tzinfo = UTC,
    rank: int | None = None,
) -> tuple[LogRecords, list[Said]]:  # fmt: skip
    log = LogRecords("train.log", "1", tz, rank, clock_s, Told())
    said: list[Said] = []
    for line in lines:
        said += log.feed((line if isinstance(line, bytes) else line.encode()) + b"\n")
    said += log.finish()
    return log, said


def read(
    *lines: str, clock_s: float | None = START_S, tz: tzinfo = UTC, rank: int | None = None
) -> list[Said]:
    return fold(list(lines), clock_s, tz, rank)[1]


def steps(said: list[Said]) -> list[Steps]:
    return [one for one in said if isinstance(one, Steps)]


def events(said: list[Said]) -> list[Event]:
    return [one for one in said if isinstance(one, Event)]


def log(name: str, **more: float) -> list[Said]:
    lines = (DATA / name).read_bytes().split(b"\n")
    return fold(lines, more.get("clock_s", START_S))[1]


def test_a_dated_step_line_becomes_a_step_of_the_job() -> None:
    found = steps(log("megatron_2024_timestamp_tflops_mixtral.log"))
    first = found[0]
    assert ("", "training", "1", []) == (first.node, first.source, first.job, first.ranks)
    assert 1_712_372_376.0 == first.at
    assert ([43], [5.4449], [1.825991]) == (first.step, first.step_time_s, first.loss)
    assert ([1.426], [239.8], []) == (first.grad_norm, first.throughput, first.nonfinite)
    assert ["first", "train", "train"] == [one.step_kind for one in found]


def test_a_printed_time_is_in_the_capture_s_zone() -> None:
    line = "[2026-02-25 13:00:00.5]" + step_line(1)
    found = steps(read(line, clock_s=None, tz=ZoneInfo("Europe/Berlin")))
    assert START_S + 0.5 == found[0].at


def test_a_loss_that_is_missing_beside_a_nan_gradient_is_no_zero() -> None:
    found = steps(log("megds_grad_norm_nan_loss_missing.log"))
    assert ([], [None], [["grad_norm"]]) == (
        found[0].loss, found[0].grad_norm, found[0].nonfinite,
    )  # fmt: skip


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf", "NaN"])
def test_a_loss_that_is_no_number_is_said_and_null(loss: str) -> None:
    found = steps(read(step_line(1, lm_loss=loss)))
    assert ([None], [["loss"]]) == (found[0].loss, found[0].nonfinite)


def test_nan_iterations_count_as_a_loss_that_is_no_number() -> None:
    found = steps(read(step_line(1, lm_loss="1.0", number_of_nan_iterations="2")))
    assert ([1.0], [["loss"]]) == (found[0].loss, found[0].nonfinite)


def test_without_dates_the_printed_durations_add_up_from_the_clock() -> None:
    log, said = fold([step_line(1), step_line(2, 6000.0), step_line(12, 1000.0)])
    assert [5.0, 11.0, 21.0] == [one.at - START_S for one in steps(said)]
    assert "train.log: 3 steps print no time" in " ".join(log.notes())


def test_a_dated_neighbour_anchors_a_step_but_not_twice() -> None:
    """DeepSpeed prints a dated line right before each undated step line."""
    found = steps(log("megatron_deepspeed_pdsh_host_prefix_tail.log"))
    lines = [one.at for one in found]
    assert 1_701_247_947.711 == pytest.approx(lines[0])
    assert [75.124, 78.097, 74.252, 74.988] == pytest.approx(
        [after - before for before, after in pairwise(lines)], abs=3.0
    )


def test_steps_without_any_time_are_counted_and_not_joined() -> None:
    log, said = fold([step_line(1), step_line(2)], None)
    assert [] == said
    assert "2 steps or failures without any time" in " ".join(log.notes())


def test_a_step_that_carries_a_checkpoint_or_an_evaluation_is_no_ordinary_one() -> None:
    found = steps(
        read(
            step_line(1), "saving checkpoint at iteration       1 to /c", step_line(2),
            "validation loss at iteration 2 | lm loss value: 2.3E+00 |", step_line(3), step_line(4),
        )
    )  # fmt: skip
    assert ["first", "checkpoint", "evaluation", "train"] == [one.step_kind for one in found]


def test_a_restart_that_goes_back_has_a_first_step_again() -> None:
    found = steps(read(step_line(8), step_line(9), step_line(5), step_line(6)))
    assert ["first", "train", "first", "train"] == [one.step_kind for one in found]


def test_forks_that_print_seconds_are_understood() -> None:
    line = "[default7]: iteration  45000/ 115311 | elapsed time per iteration (s): 111.5 | x |"
    assert [111.5] == steps(read(line))[0].step_time_s


@pytest.mark.parametrize(
    "line",
    ["INFO number of nan iterations:   0 |", "INFO training iteration 120", "iteration 5 of 9"],
)
def test_words_of_a_step_line_alone_are_no_step(line: str) -> None:
    assert [] == read(line)


def test_a_step_line_without_a_single_field_is_rejected() -> None:
    found = read(" iteration 5/ 9 | consumed sam")
    assert isinstance(found[0], Rejected)
    assert "train.log:1" == found[0].place


@pytest.mark.parametrize(
    ("words", "class_"),
    [
        ("TypeError: 'int' object is not callable", "user_code"),
        ("ModuleNotFoundError: No module named 'x'", "user_code"),
        ("AssertionError", "user_code"),
        ("RuntimeError: CUDA error: unspecified launch failure", "cuda"),
        ("torch.AcceleratorError: CUDA error: unknown error", "cuda"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", "oom"),
        ("torch.distributed.DistBackendError: NCCL error in: ../x.cpp", "nccl"),
        ("RuntimeError: the sky is falling", "unknown"),
        ("SystemExit: 3", "unknown"),
    ],
)
def test_a_traceback_is_one_failure_classed_by_its_last_line(words: str, class_: str) -> None:
    found = events(
        read(
            step_line(1), "Traceback (most recent call last):",
            '  File "/train.py", line 1, in <module>', "    raise ValueError(CUDA error)", words,
        )
    )  # fmt: skip
    assert [(class_, words, START_S + 5.0)] == [(one.class_, one.text, one.at) for one in found]
    assert ("process", "1") == (found[0].type, found[0].job)


def test_tracebacks_of_many_ranks_in_turn_are_told_apart() -> None:
    found = events(
        read(
            "[rank3]: Traceback (most recent call last):",
            "[rank4]: Traceback (most recent call last):",
            '[rank3]:   File "/a.py"', '[rank4]:   File "/a.py"',
            "[rank3]: ValueError: three", "[rank4]: KeyError: 'four'",
        )
    )  # fmt: skip
    assert ["rank:3", "rank:4"] == [one.entity for one in found]


def test_the_first_failure_is_the_cause_and_later_ones_are_milder() -> None:
    found = events(log("nvrx_permission_and_finalizer_noise.log"))
    assert "rank:404" == found[0].entity
    assert ["critical", "warning", "warning", "warning"] == [one.severity for one in found]


def test_an_ecc_error_is_not_hidden_by_the_out_of_memory_it_ends_in() -> None:
    found = events(log("bloom13b_ecc_uncorrectable.log"))
    assert ["cuda", "cuda"] == [one.class_ for one in found][:2]
    assert "uncorrectable ECC error" in found[0].text


def test_a_cpp_exception_is_read_with_its_reason() -> None:
    found = events(
        read(
            "[default3]:terminate called after throwing an instance of 'c10::Error'",
            "[default3]:  what():  CUDA error: unknown error", "[default3]:frame #0: c10",
        )
    )  # fmt: skip
    assert [("cuda", "")] == [(one.class_, one.entity) for one in found]


def test_a_log_cut_in_a_traceback_still_tells_of_the_failure() -> None:
    found = events(read("Traceback (most recent call last):", '  File "/a.py", line 3'))
    assert ["unknown"] == [one.class_ for one in found]


def test_a_failure_in_a_rank_s_own_log_is_that_rank_s() -> None:
    found = events(read("Traceback (most recent call last):", "KeyError: 'x'", rank=17))
    assert ["rank:17"] == [one.entity for one in found]


def test_the_inf_gradient_of_6144_ranks_names_its_rank_and_time() -> None:
    said = log("nvrx_6144rank_inf_grad.log")
    found = events(said)
    assert [("numerics", "rank:180"), ("cancelled", "")] == [
        (one.class_, one.entity) for one in found
    ]
    assert found[0].at == steps(said)[-1].at


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_no_bytes_raise(lines: list[bytes]) -> None:
    fold(lines)


LOG = [
    step_line(1, lm_loss="2.0"), step_line(2, lm_loss="2.0"), "Traceback (most recent call last):",
    "KeyError: 'x'", step_line(3, lm_loss="nan"), step_line(4),
]  # fmt: skip


@given(
    line=st.integers(0, len(LOG) - 1), at=st.integers(0, 200), junk=st.binary(max_size=8),
    cut=st.integers(0, 50),
)  # fmt: skip
def test_a_damaged_line_costs_at_most_itself(line: int, at: int, junk: bytes, cut: int) -> None:
    rows = [row.encode() for row in LOG]
    rows[line] = rows[line][:at] + junk.replace(b"\n", b"") + rows[line][at + cut :]
    found = [one.step[0] for one in steps(fold(rows)[1])]
    assert set(found) >= {1, 2, 3, 4} - {line + 1 if line < 2 else line - 1}
