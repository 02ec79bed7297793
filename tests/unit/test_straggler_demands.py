"""Stragglers as their users asked for them, by label; the published rule and the vote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
import numpy as np
import pytest

from detectors.attempts import Attempts
from detectors.base import Sighting
from detectors.chance import expected_by_chance
from detectors.straggler import Straggler
from detectors.two_sigma import slow_by_throughput, slow_by_time
from telemetry.records import StepKind, Steps
from telemetry.settings import EngineSettings
from tests.fakes import FakeView, job_step, rank_steps

NODES = [f"n{i:02d}" for i in range(8)]
VIEW = FakeView(jobs={"j1": NODES}, ranks={rank: NODES[rank // 8] for rank in range(64)})
STAGED = FakeView(
    jobs=VIEW.jobs, ranks=VIEW.ranks, stages={node: place // 4 for place, node in enumerate(NODES)}
)


def straggler() -> Straggler:
    return Straggler(EngineSettings())


def fed(detector: Straggler, steps: Iterable[Steps], view: FakeView = VIEW) -> list[Sighting]:
    return [seen for one in steps for seen in detector.on_steps(one, view, one.at)]


def run(
    compute: Callable[[int, int], float | None], steps: range, step_time_s: float = 1.9,
    only: Mapping[str, list[int]] | None = None,
) -> list[Steps]:  # fmt: skip
    """64 ranks on eight nodes; `compute` gives a rank's seconds in a step."""
    out = []
    for step in steps:
        for place, node in enumerate(NODES):
            ranks = range(8 * place, 8 * place + 8) if only is None else only.get(node, [])
            told = {rank: compute(step, rank) for rank in ranks}
            if told:
                at = step_time_s * step + 0.01 * place
                out.append(rank_steps(step, at, node, told, step_time_s=step_time_s))
    return out


def test_f1_equal_step_times_name_the_rank_that_computes_and_no_other() -> None:
    """64 ranks all at 1.9 s; rank 17 computes 1.6 s, the others 1.0 s and wait 0.6 s."""
    said = fed(straggler(), run(lambda _, rank: 1.6 if rank == 17 else 1.0, range(1, 40)))

    assert {("n02", "evidence")} == {(s.node, s.role) for s in said}
    assert ["rank:17"] == [s.entity for s in said if s.metric == "compute_time_s"]


def test_f1_step_time_alone_says_job_slow_and_no_rank() -> None:
    usual = [job_step(i, 1.3 * i, 1.3) for i in range(1, 41)]
    slow = [job_step(i, 52.0 + 1.9 * (i - 40), 1.9) for i in range(41, 60)]
    everybody = run(lambda *_: None, range(1, 60))

    assert [("job_slow", "", "")] == [
        (s.kind, s.node, s.entity) for s in fed(straggler(), [*usual, *slow])
    ]
    assert [] == fed(straggler(), everybody)


def test_f2_a_pair_cannot_tell_which_of_the_two_is_slow_other_pairs_can() -> None:
    pair = FakeView(jobs={"j1": ["n00"]}, ranks={0: "n00", 1: "n00"})
    two = [rank_steps(i, 2.0 * i, "n00", {0: 1.0, 1: 1.6}) for i in range(1, 60)]
    four = FakeView(
        jobs={"j1": ["n00", "n01"]},
        ranks=dict.fromkeys((0, 1), "n00") | dict.fromkeys((2, 3), "n01"),
    )
    both = [
        rank_steps(i, 2.0 * i + 0.1 * place, f"n0{place}", compute)
        for i in range(1, 60)
        for place, compute in enumerate(({0: 1.0, 1: 1.6}, {2: 1.0, 3: 1.0}))
    ]

    assert [] == fed(straggler(), two, pair)
    assert ["rank:1"] == [s.entity for s in fed(straggler(), both, four)]


def of_kind(kind: StepKind, step: int, at: float, time_s: float) -> Steps:
    return msgspec.structs.replace(job_step(step, at, time_s), step_kind=kind)


def test_f3_first_steps_checkpoints_and_evaluations_are_no_slow_steps() -> None:
    """The first step takes 20 min, every 500th 90 s for its checkpoint, an evaluation 10 min."""
    at, steps = 0.0, []
    for step in range(1, 2_000):
        kind: StepKind = "train"
        time_s = 2.0
        if step == 1:
            kind, time_s = "first", 1_200.0
        elif step % 500 == 0:
            kind, time_s = "checkpoint", 90.0
        elif step % 333 == 0:
            kind, time_s = "evaluation", 600.0
        at += time_s
        steps.append(of_kind(kind, step, at, time_s))

    assert [] == fed(straggler(), steps)
    unknown = [of_kind("unknown", 2_000 + i, at + 3.0 * i, 3.0) for i in range(10)]
    detector = straggler()
    fed(detector, steps)
    assert ["job_slow"] == [s.kind for s in fed(detector, unknown)]


def state_bytes(steps: int) -> int:
    detector = straggler()
    random = np.random.default_rng(5)
    for step in range(1, steps + 1):
        compute = dict(enumerate((1.0 + 0.5 * (random.random(8) < 0.1)).tolist()))
        detector.on_steps(rank_steps(step, 2.0 * step, "n00", compute, "j2"), VIEW, 2.0 * step)
    return len(msgspec.json.encode(detector.snapshot()))


def test_f5_history_is_bounded() -> None:
    assert state_bytes(6_000) <= 1.2 * state_bytes(1_000)


@pytest.mark.slow
def test_f5_a_million_steps_take_the_memory_of_a_thousand() -> None:
    assert state_bytes(1_000_000) <= 1.2 * state_bytes(1_000)


def test_f7_a_stage_that_always_takes_longer_is_compared_with_itself() -> None:
    """Stage 0 is 15 % (and, to be sure, 60 %) slower than stage 1."""
    for longer in (1.15, 1.6):
        uneven = run(lambda _, rank, more=longer: more if rank < 32 else 1.0, range(1, 40))  # type: ignore[misc]
        assert [] == fed(straggler(), uneven, STAGED)
    sick = run(lambda _, r: 2.4 if r == 3 else 1.6 if r < 32 else 1.0, range(1, 40))
    assert {"n00"} == {s.node for s in fed(straggler(), sick, STAGED)}


@pytest.mark.parametrize("only", [{"n00": [0, 1, 5]}, {"n00": [5], "n02": [17], "n05": [40]}])
def test_f8_three_of_64_ranks_prove_nothing(only: dict[str, list[int]]) -> None:
    few = run(lambda _, rank: 2.0 if rank == 5 else 1.0, range(1, 60), only=only)
    assert [] == fed(straggler(), few)


def test_f8_ranks_are_compared_at_the_same_step_only() -> None:
    """One node is always three steps behind: its ranks are late, not slow."""
    steps = run(lambda *_: 1.0, range(1, 60))
    late = [
        msgspec.structs.replace(one, at=one.at + 5.7) if one.node == "n03" else one for one in steps
    ]
    assert [] == fed(straggler(), sorted(late, key=lambda one: one.at))


def attempt(first: int, last: int, at: float, kind: StepKind = "train") -> list[Steps]:
    return [of_kind(kind, step, at + 2.0 * (step - first), 2.0) for step in range(first, last + 1)]


def attempts(ends: list[int]) -> list[Sighting]:
    detector, at, said = Attempts(EngineSettings()), 0.0, []
    for end in [*ends, 4_101]:
        steps = attempt(4_100, end, at)
        said += [seen for one in steps for seen in detector.on_steps(one, VIEW, one.at)]
        at = steps[-1].at + 300.0
    return said


def test_f12_three_attempts_that_end_at_one_step_are_critical() -> None:
    (seen,) = attempts([4_200, 4_200, 4_200])

    assert ("job_hang", "critical", "fault", "", "j1") == (
        seen.kind, seen.severity, seen.role, seen.node, seen.job,
    )  # fmt: skip
    assert 4_200.0 == seen.observed


@pytest.mark.parametrize("ends", [[4_200, 4_200], [4_200, 4_250, 4_300], [4_200, 4_200, 4_201]])
def test_f12_attempts_that_get_further_are_progress(ends: list[int]) -> None:
    assert [] == attempts(ends)


def test_f12_it_ends_when_the_job_gets_further() -> None:
    assert [True, False] == [s.active for s in attempts([4_200, 4_200, 4_200, 4_300])]


def test_f12_the_nodes_of_one_restart_are_one_restart() -> None:
    detector, said = Attempts(EngineSettings()), list[Sighting]()
    for at, first in ((0.0, 1), (500.0, 50)):
        for one in run(lambda *_: 1.0, range(first, 100)):
            moved = msgspec.structs.replace(one, at=at + one.at)
            said += detector.on_steps(moved, VIEW, moved.at)
    assert [] == said
    assert 1 == detector.snapshot()["j1"]["stuck"]


def test_the_sign_slow_is_high_in_time_and_low_in_throughput() -> None:
    usual = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0]

    assert [7] == np.flatnonzero(slow_by_time(np.array([*usual, 2.0]), 6)).tolist()
    assert [] == np.flatnonzero(slow_by_time(np.array([*usual, 0.2]), 6)).tolist()
    assert [7] == np.flatnonzero(slow_by_throughput(np.array([*usual, 0.2]), 6)).tolist()
    assert [] == np.flatnonzero(slow_by_throughput(np.array([*usual, 2.0]), 6)).tolist()


def test_two_deviations_need_six_workers_and_more_than_rounding() -> None:
    assert not slow_by_time(np.array([1.0, 1.0, 1.0, 1.0, 9.0]), 6).any()
    assert slow_by_time(np.array([1.0, 1.0, 1.0, 1.0, 1.0, 9.0]), 6).any()
    assert not slow_by_time(np.array([1.0] * 9 + [1.0 + 1e-12]), 6).any()
    assert not slow_by_time(np.array([np.nan] * 9 + [5.0]), 6).any()


def test_five_rounds_of_ten_seconds_elect_the_node_whose_ranks_are_slow() -> None:
    """All ranks of one node wait for their CPUs."""
    late = run(lambda _, rank: 1.5 if rank // 8 == 3 else 1.0, range(1, 40))
    (vote,) = [s for s in fed(straggler(), late) if s.metric == "compute_time_votes"]

    assert ("n03", "evidence", "gpu_slow", 1.0) == (vote.node, vote.role, vote.kind, vote.score)
    assert "5 rounds of 10 s" in vote.text


def test_no_vote_elects_a_node_where_another_rank_is_late_in_each_step() -> None:
    random = np.random.default_rng(11)
    unlucky = {step: int(random.integers(64)) for step in range(1, 400)}
    said = fed(
        straggler(), run(lambda step, rank: 1.6 if rank == unlucky[step] else 1.0, range(1, 400))
    )
    assert [] == said


def test_a_vote_ends_when_the_node_is_as_fast_as_the_others() -> None:
    sick = run(lambda _, rank: 1.5 if rank == 30 else 1.0, range(1, 40))
    well = run(lambda *_: 1.0, range(40, 120))
    said = [s for s in fed(straggler(), [*sick, *well]) if s.metric == "compute_time_votes"]
    assert [True, False] == [s.active for s in said]


def test_of_many_ranks_that_all_vary_none_is_named() -> None:
    """Each rank is late in one step of eight: of 64, one is late in half of eight by chance."""
    random = np.random.default_rng(2)
    late = random.random((200, 64)) < 0.125
    steps = run(lambda step, rank: 1.6 if late[step, rank] else 1.0, range(1, 200))
    assert [] == [s for s in fed(straggler(), steps) if s.active]


def test_what_is_expected_by_chance() -> None:
    assert 64 * 70 * 0.125**4 == expected_by_chance(4, 8, 0.125, 64)
    assert 0.0 == expected_by_chance(1, 8, 0.0, 64)
    assert 64.0 == expected_by_chance(0, 8, 0.5, 64)
