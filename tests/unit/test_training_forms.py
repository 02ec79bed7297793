"""The tables of training-log forms, and rules that no single corpus file shows."""

from __future__ import annotations

from typing import Any

import pytest

from collectors.kinds import KINDS
from collectors.training import failures, forms, signals
from collectors.training.table import FAILURES, STEPS

START = "[2026-02-25 12:00:00] "


def read(*lines: str, end: str = "\n") -> list[dict[str, Any]]:
    return list(KINDS["training"]("x.log", [end.join([*lines, ""]).encode()]))


def steps(*lines: str, end: str = "\n") -> list[dict[str, Any]]:
    return [one for one in read(*lines, end=end) if one["type"] == "step"]


def fails(*lines: str) -> list[dict[str, Any]]:
    return [one for one in read(*lines) if one["type"] == "failure"]


@pytest.mark.parametrize("row", STEPS, ids=[row[0] for row in STEPS])
def test_every_step_form_reads_its_own_example(row: tuple[str, str, str]) -> None:
    found = read(row[1])
    assert found
    assert "failure" not in {one["type"] for one in found}
    assert row[2]


@pytest.mark.parametrize("form", failures.FORMS, ids=[form.name for form in failures.FORMS])
def test_every_failure_form_reads_its_own_example(form: failures.FailureForm) -> None:
    (found,) = fails(form.example)
    made = form.regex.search(form.example)
    assert made is not None
    assert form.marker in form.example
    assert (found["class"], form.source) != ("", "")
    assert form.name in [row[0] for row in FAILURES]


def test_a_form_is_one_row() -> None:
    assert len({form.name for form in forms.FORMS}) == len(forms.FORMS)


def test_a_wandb_history_gives_steps_with_their_time() -> None:
    found = steps(
        '{"_step": 3, "_runtime": 12.5, "_timestamp": 1772020812.5, "train/loss": 2.25,'
        ' "train/grad_norm": 1.5, "train/global_step": 30}',
        '{"_step": 4, "_timestamp": 1772020824.5, "train/loss": "NaN", "train/global_step": 40}',
    )
    assert [30, 40] == [one["step"] for one in found]
    assert [1_772_020_812.5, 1_772_020_824.5] == [one["at"] for one in found]
    assert [(2.25, 1.5, []), (None, None, ["loss"])] == [
        (one["loss"], one["grad_norm"], one["nonfinite"]) for one in found
    ]
    assert 1.2 == found[1]["step_time_s"]


def test_a_task_of_srun_is_a_rank_only_where_the_log_does_not_say_otherwise() -> None:
    line = "0: error: CUDA error: unknown error"
    assert [0] == [one["rank"] for one in fails(line)]
    assert [8, None] == [
        one["rank"] for one in fails("1: [rank8]: RuntimeError: CUDA error: unknown error", line)
    ]


def test_a_local_rank_names_no_rank() -> None:
    (found,) = fails("[default3]: CUDA error: unknown error")
    assert (None, 3) == (found["rank"], found["local_rank"])


def test_after_a_step_the_next_failure_is_a_cause_again() -> None:
    step = " iteration {}/ 9 | elapsed time per iteration (ms): 5000.0 | lm loss: 2.0 |"
    error = "[rank1]: RuntimeError: CUDA error: unknown error"
    assert ["cause", "echo", "cause"] == [
        one["role"] for one in fails(step.format(1), error, error, step.format(2), error)
    ]


def test_a_bar_drawn_again_and_again_in_one_line_is_a_step_each() -> None:
    bars = [f"Epoch 0:  {n}%|##   | {n}/100 [{20 * n // 60:02d}:{20 * n % 60:02d}<10:00, 20.0s/it]"
            for n in (1, 1, 2, 3)]  # fmt: skip
    found = steps(*bars, end="\r")
    assert [(1, None), (2, 20.0), (3, 20.0)] == [(one["step"], one["step_time_s"]) for one in found]


@pytest.mark.parametrize(
    "line",
    [
        "Loading checkpoint shards: 100%|##########| 19/19 [00:05<00:00,  3.5it/s]",
        "Map:  50%|#####     | 500/1000 [00:30<00:30, 16.6it/s]",
        "{'loss_fn': 'mse', 'lr': 5e-05}",
        "error code is fine",
        "INFO: watchdog started",
        "0 errors, 0 warnings",
    ],
)
def test_what_looks_like_progress_or_failure_is_neither(line: str) -> None:
    assert [] == read(line)


def test_an_evaluation_s_bar_within_the_epoch_is_not_counted() -> None:
    found = steps(
        " 10%|#    | 10/100 [01:00<09:00, 6.0s/it]", " 50%|##   | 5/10 [00:10<00:10, 2.0s/it]",
        " 11%|#    | 11/100 [02:00<09:00, 6.0s/it]",
    )  # fmt: skip
    assert [(10, None), (11, 60.0)] == [(one["step"], one["step_time_s"]) for one in found]


@pytest.mark.parametrize(
    ("code", "name", "class_"),
    [
        (137, "SIGKILL", "killed"), (-9, "SIGKILL", "killed"), (143, "SIGTERM", "terminated"),
        (134, "SIGABRT", "abort"), (-6, "SIGABRT", "abort"), (139, "SIGSEGV", "crash"),
        (135, "SIGBUS", "crash"), (1, None, "user_code"), (2, None, "unknown"),
        (0, None, "unknown"), (-99, None, "unknown"), (255, None, "unknown"),
    ],
)  # fmt: skip
def test_exit_codes_and_signals(code: int, name: str | None, class_: str) -> None:
    assert (name, class_) == (signals.signal_of(code), signals.exit_class(code))


def test_glog_stamps_take_the_year_from_a_date_of_the_log() -> None:
    watchdog = "[rank1]:[E1231 23:59:59.5 ProcessGroupNCCL.cpp:1] To avoid data inconsistency, we are taking the entire process down."  # noqa: E501
    found = fails("[2026-01-01 00:10:00] up again", watchdog)
    assert [1_767_225_599.5] == [one["at"] for one in found]
    assert [None] == [one["at"] for one in fails(watchdog)]


def test_a_line_of_a_megabyte_is_rejected_where_it_is_a_step_and_else_passed_over() -> None:
    step = " iteration 1/ 9 | lm loss: 2.0 |" + "x" * 1_000_000
    follows = " iteration 2/ 9 | lm loss: 2.0 |"
    found = read(step, "y" * 1_000_000, follows)
    assert [("rejected", "line too long"), ("step", None)] == [
        (one["type"], one.get("reason")) for one in found
    ]
