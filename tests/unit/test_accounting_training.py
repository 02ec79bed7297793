"""One job's life: what is productive, what is made again, when it was interrupted."""

from __future__ import annotations

import pytest

from actions.accounting.interruptions import Interruption
from actions.accounting.training import JobLife
from telemetry.records import Job, StepKind, Steps

T0 = 1_800_000_000.0


class Told:
    """A job's life told step by step; times are seconds after T0."""

    def __init__(self, since_s: float = 0.0) -> None:
        self.life = JobLife(T0 + since_s)

    def step(
        self, number: int, at_s: float, took_s: float | None = 10.0, kind: StepKind = "train",
        node: str = "", rank: int | None = None,
    ) -> None:  # fmt: skip
        steps = Steps(
            at=T0 + at_s, node=node, source="training", started_at=0.0, seq=0, job="j",
            step_kind=kind, step=[number], step_time_s=[took_s],
            ranks=[] if rank is None else [rank],
        )  # fmt: skip
        self.life.take(steps, T0 + at_s)

    def run(self, first: int, last: int, from_s: float, took_s: float = 10.0) -> float:
        """Steps one after another; returns when the last one ended."""
        for number in range(first, last + 1):
            from_s += took_s
            self.step(number, from_s, took_s)
        return from_s

    def listed(self, attempt: int, at_s: float, start_s: float | None = None) -> None:
        start = None if start_s is None else T0 + start_s
        self.life.listed(Job(id="j", attempt=attempt, start=start), T0 + at_s)

    @property
    def productive_s(self) -> float:
        self.life.close()
        return self.life.productive.total_s

    @property
    def stops(self) -> list[tuple[float | None, ...]]:
        """Each interruption's times after T0: stop, start, first step's begin and end, recovery."""
        return [_times(one) for one in self.life.interruptions]


def _times(one: Interruption) -> tuple[float | None, ...]:
    found = (one.stopped_at, one.started_at, one.first_began_at, one.first_ended_at,
             one.recovered_at)  # fmt: skip
    return tuple(None if at is None else at - T0 for at in found)


def test_every_step_counts_once_and_whole() -> None:
    told = Told()
    told.run(1, 100, 0.0)
    assert told.productive_s == pytest.approx(1_000.0)
    assert told.stops == []


def test_a_step_that_is_told_again_counts_nothing() -> None:
    told = Told()
    end_s = told.run(1, 10, 0.0)
    for number in range(1, 11):
        told.step(number, 10.0 * number)
    told.step(10, end_s)
    assert told.productive_s == pytest.approx(100.0)
    assert told.stops == []


def test_a_line_for_several_steps_speaks_for_them_all() -> None:
    told = Told()
    told.step(10, 100.0)
    told.step(20, 200.0)
    # Of the ten before the first line only one is known to have been made.
    assert told.productive_s == pytest.approx(10.0 + 100.0)


def test_steps_that_nobody_told_are_cut_to_the_time_that_passed() -> None:
    told = Told()
    told.run(1, 10, 0.0)
    told.step(1_000_000, 150.0)
    assert told.productive_s == pytest.approx(150.0)


def test_a_stall_between_steps_is_not_productive() -> None:
    told = Told()
    told.run(1, 10, 0.0)
    told.run(11, 20, 1_000.0)
    assert told.productive_s == pytest.approx(200.0)
    assert told.stops == []


@pytest.mark.parametrize("kind", ["first", "checkpoint", "evaluation"])
def test_of_a_step_that_does_more_than_train_a_usual_one_counts(kind: StepKind) -> None:
    told = Told()
    end_s = told.run(1, 10, 0.0)
    told.step(11, end_s + 300.0, 300.0, kind)
    assert told.productive_s == pytest.approx(110.0)


def test_a_first_step_waits_until_a_usual_one_is_known() -> None:
    told = Told()
    told.step(1, 400.0, 400.0, "first")
    told.run(2, 3, 400.0)
    assert told.productive_s == pytest.approx(30.0)


def test_a_first_step_alone_is_taken_as_it_is() -> None:
    told = Told()
    told.step(1, 400.0, 400.0, "first")
    assert told.productive_s == pytest.approx(400.0)


def test_the_time_of_a_checkpoint_that_is_told_by_itself_is_not_productive() -> None:
    told = Told()
    end_s = told.run(1, 10, 0.0)
    told.step(10, end_s + 30.0, 30.0, "checkpoint")
    told.step(11, end_s + 40.0, 40.0)  # its time has the checkpoint in it
    assert told.productive_s == pytest.approx(110.0)


def test_a_log_without_times_counts_what_passed_but_no_pause() -> None:
    told = Told()
    for number in range(1, 11):
        told.step(number, 10.0 * number, None)
    told.step(11, 1_000.0, None)
    # The first step's time is not known; the pause counts as two usual steps at most.
    assert told.productive_s == pytest.approx(90.0 + 20.0)


def test_what_a_step_took_before_the_log_is_not_of_the_log() -> None:
    told = Told(since_s=95.0)
    told.step(1, 100.0, 1e300)
    assert told.productive_s == pytest.approx(5.0)


def test_a_log_that_goes_back_began_anew() -> None:
    told = Told()
    end_s = told.run(1, 10, 0.0)
    told.run(6, 12, end_s + 50.0)
    # Steps 6 to 10 were made before.
    assert told.productive_s == pytest.approx(100.0 + 20.0)
    assert told.life.recomputed.total_s == pytest.approx(50.0)
    assert told.stops == [(100.0, None, 150.0, 160.0, 210.0)]


def test_a_first_step_began_anew_even_where_nothing_was_lost() -> None:
    told = Told()
    end_s = told.run(1, 10, 0.0)
    told.step(11, end_s + 100.0, 40.0, "first")
    assert told.stops == [(100.0, None, 160.0, 200.0, 200.0)]


def test_the_first_of_all_first_steps_interrupts_nothing() -> None:
    told = Told()
    told.step(1, 0.0, None, "first")
    told.step(1, 40.0, 40.0, "first")
    told.run(2, 5, 40.0)
    assert told.stops == []


def test_a_crash_at_the_same_first_step_is_another_interruption() -> None:
    told = Told()
    end_s = told.run(1, 10, 0.0)
    told.step(11, end_s + 100.0, 40.0, "first")
    told.step(11, end_s + 300.0, 40.0, "first")
    assert [one.restarts for one in told.life.interruptions] == [1, 1]


def test_first_steps_that_begin_and_never_end_are_attempts_of_one_interruption() -> None:
    told = Told()
    told.listed(0, 0.0, 0.0)
    end_s = told.run(1, 10, 0.0)
    for attempt in (1, 2, 3):
        again_s = end_s + 100.0 * attempt
        told.listed(attempt, again_s - 40.0, again_s - 50.0)
        told.step(11, again_s, None, "first")
    told.step(11, end_s + 450.0, 150.0, "first")
    assert told.stops == [(100.0, 350.0, 400.0, 550.0, 550.0)]
    assert [one.restarts for one in told.life.interruptions] == [3]


def test_all_nodes_of_a_restart_tell_of_one_interruption() -> None:
    told = Told()
    for number in range(1, 11):
        for rank in range(4):
            told.step(number, 10.0 * number + 0.01 * rank, node=f"n{rank}", rank=rank)
    for number in range(8, 13):
        kind: StepKind = "first" if number == 8 else "train"
        for rank in range(4):
            at_s = 200.0 + 10.0 * (number - 8) + 0.01 * rank
            told.step(number, at_s, kind=kind, node=f"n{rank}", rank=rank)
    assert len(told.stops) == 1
    assert told.productive_s == pytest.approx(120.0, abs=0.5)


def test_a_node_that_lags_behind_the_others_interrupts_nothing() -> None:
    told = Told()
    for number in range(1, 11):
        told.step(number, 10.0 * number, node="n0", rank=0)
        if number > 2:
            told.step(number - 2, 10.0 * number + 1.0, node="n1", rank=8)
    assert told.stops == []
    assert told.productive_s == pytest.approx(100.0)


def test_what_was_delayed_from_before_a_restart_changes_nothing() -> None:
    told = Told()
    end_s = told.run(1, 10, 0.0)
    told.run(6, 7, end_s + 50.0)
    told.step(10, 99.0, node="n1", rank=8)
    told.run(8, 12, end_s + 70.0)
    assert len(told.stops) == 1
    assert told.productive_s == pytest.approx(120.0)


def test_a_replaced_node_is_no_second_interruption() -> None:
    told = Told()
    for number in range(1, 6):
        told.step(number, 10.0 * number, node="n0", rank=0)
    told.step(6, 200.0, 40.0, "first", node="n0", rank=0)
    told.step(6, 200.1, 40.0, "first", node="n9", rank=8)
    told.step(7, 210.0, node="n0", rank=0)
    assert len(told.stops) == 1


def test_a_higher_attempt_is_a_restart_and_says_when_it_began() -> None:
    told = Told()
    told.listed(0, 0.0, 0.0)
    end_s = told.run(1, 10, 0.0)
    told.listed(1, end_s + 60.0, end_s + 50.0)
    told.run(11, 12, end_s + 90.0)  # a checkpoint each step: nothing goes back
    assert told.stops == [(100.0, 150.0, 190.0, 200.0, 200.0)]


def test_an_attempt_that_is_listed_late_is_found_among_the_steps() -> None:
    told = Told()
    told.listed(0, 0.0, 0.0)
    end_s = told.run(1, 10, 0.0)
    told.run(11, 20, end_s + 90.0)
    told.listed(1, end_s + 200.0, end_s + 50.0)
    assert told.stops == [(100.0, 150.0, 190.0, 200.0, 200.0)]


def test_steps_and_scheduler_tell_of_the_same_restart_once() -> None:
    told = Told()
    told.listed(0, 0.0, 0.0)
    end_s = told.run(1, 10, 0.0)
    told.run(6, 12, end_s + 50.0)
    told.listed(1, end_s + 130.0, end_s + 30.0)
    assert told.stops == [(100.0, 130.0, 150.0, 160.0, 210.0)]
    assert [one.restarts for one in told.life.interruptions] == [1]


def test_a_listing_that_does_not_say_when_is_still_the_same_restart() -> None:
    told = Told()
    told.listed(0, 0.0)
    end_s = told.run(1, 10, 0.0)
    told.run(6, 12, end_s + 50.0)
    told.listed(1, end_s + 130.0)
    (stop,) = told.life.interruptions
    assert (stop.listed, stop.started_at, stop.restarts) == (True, None, 1)


def test_attempts_that_ended_no_step_are_counted() -> None:
    told = Told()
    told.listed(0, 0.0, 0.0)
    end_s = told.run(1, 10, 0.0)
    told.listed(2, end_s + 60.0, end_s + 50.0)
    told.listed(3, end_s + 360.0, end_s + 350.0)
    told.run(11, 12, end_s + 390.0)
    (stop,) = told.life.interruptions
    assert stop.restarts == 3
    assert stop.started_at == T0 + end_s + 350.0


def test_the_attempt_at_which_the_log_begins_is_none() -> None:
    told = Told()
    told.listed(7, 0.0, 0.0)
    told.run(1, 10, 0.0)
    told.listed(7, 100.0, 0.0)
    assert told.stops == []


@pytest.mark.parametrize("took_s", [0.0, -5.0, float("nan"), float("inf"), None])
def test_a_time_that_is_none_is_measured_instead(took_s: float | None) -> None:
    told = Told()
    told.run(1, 10, 0.0)
    told.step(11, 110.0, took_s)
    assert told.productive_s == pytest.approx(110.0)


def test_a_negative_step_is_no_step() -> None:
    told = Told()
    told.step(-1, 10.0)
    assert told.life.begun_at is None
