"""Steps that were made twice: whether they agree, in the stated tolerances."""

from __future__ import annotations

import msgspec
import pytest

from actions.reruns import NOT_FINITE, Run, compare
from telemetry.actions import Compared
from telemetry.records import Steps
from telemetry.settings import VersionSettings

SETTINGS = VersionSettings(steps_min=5)


def steps(first: int, count: int, *, loss: float = 2.0, grad_norm: float = 1.0,
          time_s: float = 1.0, **more: object) -> Steps:  # fmt: skip
    numbers = list(range(first, first + count))
    given: dict[str, object] = {
        "at": 1.0, "node": "", "source": "training", "started_at": 1.0, "seq": 0, "job": "7",
        "ranks": [], "step": numbers, "loss": [loss - 0.001 * one for one in numbers],
        "grad_norm": [grad_norm] * count, "step_time_s": [time_s] * count, **more,
    }  # fmt: skip
    return Steps(**given)  # type: ignore[arg-type]


def run(*told: Steps, steps_max: int = 2_000) -> Run:
    made = Run(steps_max)
    for one in told:
        made.take(one)
    return made


def found(before: Run, after: Run) -> dict[str, Compared]:
    said = compare(before, after, SETTINGS)
    assert said is not None
    return {one.quantity: one for one in said}


def test_the_same_steps_agree() -> None:
    said = found(run(steps(0, 40)), run(steps(20, 30, loss=2.0001, grad_norm=1.01)))
    assert {"loss", "grad_norm", "throughput"} == set(said)
    assert (20, 20) == (said["loss"].steps, said["grad_norm"].steps)
    assert not any(one.differs for one in said.values())


@pytest.mark.parametrize(
    ("other", "quantity"),
    [({"loss": 2.2}, "loss"), ({"grad_norm": 1.5}, "grad_norm"), ({"time_s": 1.3}, "throughput")],
)
def test_another_loss_gradient_or_pace_differs(other: dict[str, float], quantity: str) -> None:
    said = found(run(steps(0, 40)), run(steps(20, 30, **other)))
    assert [quantity] == [one.quantity for one in said.values() if one.differs]


def test_faster_is_no_difference() -> None:
    assert not found(run(steps(0, 40)), run(steps(20, 30, time_s=0.5)))["throughput"].differs


def test_a_loss_that_is_no_number_any_more_differs() -> None:
    broken = steps(20, 30, nonfinite=[["loss"]] * 30)
    broken = msgspec.structs.replace(broken, loss=[None] * 30)
    said = found(run(steps(0, 40)), run(broken))
    assert (NOT_FINITE, True) == (said["loss"].worst, said["loss"].differs)


def test_more_is_waited_for_until_the_new_run_has_passed_the_old_one() -> None:
    before, after = run(steps(0, 40)), run(steps(20, 10))
    assert compare(before, after, SETTINGS) is None
    late = compare(before, after, SETTINGS, whole=False)
    assert late is not None
    assert [10] == sorted({one.steps for one in late if one.quantity == "loss"})


def test_without_a_step_that_was_made_twice_nothing_is_said() -> None:
    assert [] == compare(run(steps(0, 40)), run(steps(40, 40)), SETTINGS)
    assert [] == compare(run(), run(steps(0, 40)), SETTINGS)
    assert [] == compare(run(steps(0, 40)), run(steps(37, 40)), SETTINGS)


def test_ranks_are_averaged_and_validation_is_no_step() -> None:
    one, other = steps(0, 10, loss=1.0), steps(0, 10, loss=3.0)
    made = run(one, other, steps(0, 10, loss=99.0, step_kind="validation"))
    assert made.steps[0].loss == pytest.approx(2.0)
    assert made.steps[9].loss == pytest.approx(2.0 - 0.009)


def test_memory_is_bounded() -> None:
    made = run(steps(0, 5_000), steps_max=100)
    assert (100, 4_999, 4_900) == (len(made.steps), made.last, min(made.steps))


def test_one_value_speaks_for_all_rows() -> None:
    made = run(steps(0, 3, loss=0.0, step_time_s=[2.0]))
    assert [2.0] * 3 == [made.steps[number].step_time_s for number in range(3)]
