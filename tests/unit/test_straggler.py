"""Slow jobs and slow ranks, each beside the healthy job that looks like it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec import structs

from detectors.base import Sighting
from detectors.straggler import Straggler
from telemetry.records import StepKind, Steps
from telemetry.settings import EngineSettings, StragglerSettings
from tests.fakes import FakeView, job_step, rank_steps

RANKS = {rank: f"n{rank // 2:02d}" for rank in range(8)}
VIEW = FakeView(jobs={"j1": [f"n{i:02d}" for i in range(4)]}, ranks=RANKS)


def straggler(jobs_max: int = 10) -> Straggler:
    return Straggler(EngineSettings(straggler=StragglerSettings(jobs_max=jobs_max)))


def fed(detector: Straggler, steps: Iterable[Steps]) -> list[Sighting]:
    """What is said but for the votes, which `test_straggler_demands` tests."""
    said = [seen for one in steps for seen in detector.on_steps(one, VIEW, one.at)]
    return [seen for seen in said if seen.metric != "compute_time_votes"]


def series(times_s: Iterable[float], first: int = 1, at: float = 0.0) -> list[Steps]:
    """Steps one after the other; `at` is when the first begins."""
    steps = []
    for number, time_s in enumerate(times_s, first):
        at += time_s
        steps.append(job_step(number, at, time_s))
    return steps


def test_a_slowdown_is_said_at_the_fifth_slow_step_and_dated_to_the_first() -> None:
    detector = straggler()
    steps = series([5.0] * 40 + [6.3] * 10)

    (seen,) = fed(detector, steps[:45])

    assert ("job_slow", "fault", "", "j1") == (seen.kind, seen.role, seen.node, seen.job)
    assert (6.3, 5.0, "s") == (seen.observed, seen.expected, seen.unit)
    assert 200.0 == pytest.approx(seen.onset_s)
    assert "step time 6.3 s against 5 s (+26 %)" == seen.text
    assert [] == fed(straggler(), steps[:44])
    assert [] == fed(detector, steps[45:])


@pytest.mark.parametrize(
    "times_s",
    [
        ([5.0] * 9 + [60.0]) * 8,  # a checkpoint now and then
        [5.0] * 40 + [5.4] * 40,  # within the ratio
        [4.0, 6.0] * 40 + [7.0] * 6,  # within the spread
        [9.0] * 5 + [5.0] * 60,  # warm-up
        [5.0] * 10 + [9.0] * 40,  # too few to know the job's pace
        [5.0] * 40 + [9.0] * 4 + [5.0] * 20,  # a short pause
    ],
)
def test_healthy_jobs_that_look_slow_say_nothing(times_s: list[float]) -> None:
    assert [] == fed(straggler(), series(times_s))


def with_tokens(times_s: Iterable[float], tokens: Iterable[float]) -> list[Steps]:
    told = zip(series(times_s), tokens, strict=True)
    return [structs.replace(one, tokens=[count]) for one, count in told]


def test_longer_steps_of_a_larger_batch_are_no_slow_job_and_at_the_same_batch_they_are() -> None:
    times_s = [5.0] * 40 + [6.3] * 10

    assert [] == fed(straggler(), with_tokens(times_s, [1e6] * 40 + [1.25e6] * 10))
    assert 1 == len(fed(straggler(), with_tokens(times_s, [1e6] * 50)))
    assert 1 == len(fed(straggler(), with_tokens(times_s, [1e6] * 40 + [1.05e6] * 10)))


def test_a_smaller_batch_that_takes_as_long_as_the_larger_did_is_no_slow_job() -> None:
    assert [] == fed(straggler(), with_tokens([5.0] * 60, [1e6] * 40 + [0.5e6] * 20))


@pytest.mark.parametrize(("kind", "said"), [("evaluation", 0), ("checkpoint", 0), ("warmup", 0),
                                            ("train", 1), ("unknown", 1)])  # fmt: skip
def test_only_training_steps_are_judged(kind: StepKind, said: int) -> None:
    slow = [
        Steps(at=s.at, node="", source="training", started_at=0.0, seq=s.seq, job="j1",
              step_kind=kind, step=s.step, step_time_s=s.step_time_s)
        for s in series([9.0] * 10, 41, 200.0)
    ]  # fmt: skip

    assert said == len(fed(straggler(), [*series([5.0] * 40), *slow]))


def test_it_clears_after_clear_steps_normal_steps_and_slow_steps_never_become_normal() -> None:
    detector = straggler()
    fed(detector, series([5.0] * 40 + [6.3] * 300))

    normal = series([5.0] * 10, 341, 2_090.0)
    assert [] == fed(detector, normal[:9])
    assert [False] == [seen.active for seen in fed(detector, normal[9:])]


def test_a_restart_exempts_the_first_steps_and_starts_the_recent_ones_anew() -> None:
    detector = straggler()
    fed(detector, series([5.0] * 40 + [6.3] * 4))

    again = series([30.0] + [6.3] * 4 + [5.0] * 20, 31, 1_000.0)

    assert [] == fed(detector, again)
    assert [True] == [s.active for s in fed(detector, series([6.3] * 6, 56, 2_000.0))]


def test_steps_without_number_or_time_are_not_judged() -> None:
    bare = Steps(at=1.0, node="", source="training", started_at=0.0, seq=0, job="j1")
    untimed = [job_step(i, float(i), None) for i in range(1, 60)]

    assert [] == fed(straggler(), [bare, *untimed])


def ranks(
    slow: dict[int, float], first: int, last: int, missing: frozenset[int] = frozenset()
) -> list[Steps]:
    """Two ranks a node, each node in a record of its own."""
    out = []
    for step in range(first, last):
        for node in range(4):
            compute = {r: slow.get(r, 1.0) for r in (2 * node, 2 * node + 1) if r not in missing}
            out.append(rank_steps(step, 5.0 * step + 0.1 * node, f"n{node:02d}", compute))
    return out


def test_a_rank_that_computes_longer_than_its_stage_names_its_node_as_evidence() -> None:
    said = fed(straggler(), [*ranks({}, 1, 30), *ranks({5: 1.4}, 30, 60)])

    (seen,) = said
    assert ("evidence", "gpu_slow", "hardware", "n02", "rank:5") == (
        seen.role, seen.kind, seen.cause, seen.node, seen.entity,
    )  # fmt: skip
    assert (1.4, 1.0) == (seen.observed, seen.expected)
    assert 30 * 5.0 - 5.0 == pytest.approx(seen.onset_s)


def test_a_rank_within_the_ratio_or_only_now_and_then_slow_is_no_straggler() -> None:
    now_and_then = [
        s for i in range(1, 80) for s in ranks({5: 1.4} if i % 3 == 0 else {}, i, i + 1)
    ]

    assert [] == fed(straggler(), ranks({5: 1.15}, 1, 40))
    assert [] == fed(straggler(), now_and_then)


def test_ranks_are_compared_within_their_stage() -> None:
    view = FakeView(jobs=VIEW.jobs, stages={"n00": 0, "n01": 0, "n02": 1, "n03": 1})
    heavy = {rank: 1.5 for rank in range(4, 8)}
    detector = straggler()

    assert [] == [s for one in ranks(heavy, 1, 40) for s in detector.on_steps(one, view, one.at)]


def test_a_rank_clears_when_it_keeps_pace_again_and_two_ranks_prove_nothing() -> None:
    detector = straggler()
    (seen,) = fed(detector, ranks({5: 1.4}, 1, 30))

    assert [("rank:5", False)] == [
        (s.entity, s.active) for s in fed(detector, ranks({}, 30, 60)) if seen.active
    ]
    two = [rank_steps(i, 5.0 * i, "n00", {0: 1.0, 1: 9.0}) for i in range(1, 40)]
    assert [] == fed(straggler(), two)


def test_a_step_is_judged_without_the_ranks_that_stay_away() -> None:
    lost = ranks({5: 1.4}, 30, 60, frozenset({0, 1}))

    assert ["rank:5"] == [s.entity for s in fed(straggler(), [*ranks({}, 1, 30), *lost])]


def test_a_restart_clears_the_ranks_and_an_idle_job_is_forgotten() -> None:
    detector = straggler()
    fed(detector, ranks({5: 1.4}, 1, 30))

    assert [False] == [s.active for s in fed(detector, ranks({}, 10, 11)[:1])]
    fed(detector, series([5.0] * 40 + [6.3] * 6, 100, 500.0))
    assert [] == list(detector.advance(4_000.0, VIEW))
    assert ["step_time_s"] == [s.metric for s in detector.advance(9_000.0, VIEW)]


def test_jobs_are_bounded_the_one_heard_longest_ago_is_cleared() -> None:
    detector = straggler(jobs_max=1)
    fed(detector, series([5.0] * 40 + [6.3] * 6))

    other = job_step(1, 900.0, 5.0, job="j2")
    assert [("j1", False)] == [(s.job, s.active) for s in fed(detector, [other])]


@pytest.mark.parametrize("cut", [3, 44, 130, 150])
def test_a_restart_of_ours_changes_nothing(cut: int) -> None:
    steps = [*series([5.0] * 40 + [6.3] * 6), *ranks({5: 1.4}, 60, 90)]
    straight, resumed = straggler(), straggler()
    whole = fed(straight, steps)

    first = straggler()
    before = fed(first, steps[:cut])
    resumed.restore(first.snapshot())

    assert whole == [*before, *fed(resumed, steps[cut:])]
    assert straight.snapshot() == resumed.snapshot()


def by_throughput(slow: float) -> list[Steps]:
    """Steps of ranks that tell how much they do, and not how long they take; rank 5 does less."""
    steps = []
    for number in range(1, 30):
        for node in VIEW.jobs["j1"]:
            ranks = [rank for rank, name in RANKS.items() if name == node]
            does = [100.0 / (slow if rank == 5 else 1.0) + 0.1 * rank for rank in ranks]
            one = rank_steps(number, 5.0 * number, node, dict.fromkeys(ranks))
            steps.append(structs.replace(one, throughput=does))
    return steps


def test_where_ranks_tell_only_their_throughput_the_one_that_does_less_stands_out() -> None:
    (seen,) = fed(straggler(), by_throughput(1.5))
    assert ("n02", "rank:5", "throughput", "evidence") == (
        seen.node, seen.entity, seen.metric, seen.role,
    )  # fmt: skip
    assert seen.observed is not None
    assert seen.expected is not None
    assert seen.observed < seen.expected
    assert [] == fed(straggler(), by_throughput(1.1))
    assert [] == fed(straggler(), by_throughput(0.5)), "more is no fault"
