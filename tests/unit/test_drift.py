"""A loss that creeps up, and what looks like it: other data, other lengths, restarts, noise."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest

from detectors.base import Sighting
from detectors.curves import Curves
from detectors.drift import LEVELS_MAX, Drift
from telemetry.records import Steps
from telemetry.settings import CurvesSettings, EngineSettings
from tests.fakes import cluster

SEEDS = range(5)
VIEW = cluster(8)


def run(
    losses: Sequence[float], tokens: Sequence[float] = (), steps: Sequence[int] = ()
) -> list[tuple[str, bool]]:
    """What is said of a creep of these losses: (metric, whether it begins)."""
    return [(seen.metric, seen.active) for seen in sightings(losses, tokens, steps)]


def sightings(
    losses: Sequence[float], tokens: Sequence[float] = (), steps: Sequence[int] = ()
) -> list[Sighting]:
    detector = Curves(EngineSettings())
    said: list[Sighting] = []
    for number, loss in enumerate(losses):
        record = Steps(
            at=1000.0 + 5.0 * number, node="", source="training", started_at=0.0, seq=number,
            job="j1", step=[steps[number] if steps else number], step_time_s=[5.0], loss=[loss],
            tokens=[tokens[number]] if tokens else [],
        )  # fmt: skip
        said += detector.on_steps(record, VIEW, record.at)
    return [seen for seen in said if seen.metric == "loss_drift"]  # jumps have tests of their own


def noisy(losses: Sequence[float], seed: int, spread: float = 0.02) -> list[float]:
    rng = random.Random(seed)
    return [loss * (1.0 + spread * rng.gauss(0.0, 1.0)) for loss in losses]


def creep(per_step: float, steps: int, level: float = 2.1) -> list[float]:
    return [level * (1.0 + per_step * step) for step in range(steps)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("per_step", [0.006, 0.002, 0.0005])
def test_a_creep_is_said_once_however_slow_it_is(per_step: float, seed: int) -> None:
    losses = noisy([*[2.1] * 200, *creep(per_step, int(0.5 / per_step))], seed)
    said = sightings(losses)
    assert [(s.metric, s.active, s.role, s.node) for s in said] == [
        ("loss_drift", True, "fault", "")
    ]
    (seen,) = said
    assert seen.severity == "warning"
    assert seen.kind == "loss_anomaly"


def test_a_creep_out_of_a_falling_loss_is_said_too() -> None:
    falling = [1.8 + 9.2 / (1.0 + step / 60.0) for step in range(600)]
    crept = [loss * (1.0 + 0.01 * max(0, step - 120)) for step, loss in enumerate(falling)]
    assert run(noisy(crept, 1, 0.01)) == [("loss_drift", True)]
    assert run(noisy(falling, 1, 0.01)) == []


def test_a_loss_that_comes_back_clears_it() -> None:
    back = [2.1 * 1.5 - 0.01 * step for step in range(105)]
    losses = noisy([*[2.1] * 100, *creep(0.005, 100), *back, *[2.1] * 50], 1, 0.005)
    assert run(losses) == [("loss_drift", True), ("loss_drift", False)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rise", [1.18, 1.25, 1.35])
def test_another_data_mixture_lifts_the_loss_at_once_and_is_none(rise: float, seed: int) -> None:
    assert run(noisy([*[2.1] * 203, *[2.1 * rise] * 400], seed)) == []


def test_a_creep_after_a_step_is_measured_from_the_step() -> None:
    stepped = [*[2.1] * 200, *[2.1 * 1.25] * 100, *creep(0.002, 200, 2.1 * 1.25)]
    assert run(noisy(stepped, 1)) == [("loss_drift", True)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_raised_learning_rate_lifts_the_loss_and_lets_it_fall_again(seed: int) -> None:
    """It rises within a dozen steps and then comes down for hundreds."""
    lifted = [2.1 * (1.0 + 0.3 * min(1.0, s / 12.0) / (1.0 + s / 150.0)) for s in range(500)]
    assert run(noisy([*[2.1] * 200, *lifted], seed)) == []


def test_the_warm_up_of_the_learning_rate_is_exempt() -> None:
    """Also after a restart from an earlier step, whose losses begin high and come down."""
    before = [2.1] * 200
    after = [2.1 * (1.0 + 1.5 / (1.0 + step / 40.0)) for step in range(400)]
    numbers = [*range(200), *range(150, 550)]
    assert run(noisy([*before, *after], 1), steps=numbers) == []


def test_a_curriculum_of_longer_sequences_is_other_work() -> None:
    losses, tokens = [], []
    for stage in range(12):
        losses += [2.1 * (1.0 + 0.04 * stage)] * 40
        tokens += [4e6 * 1.1**stage] * 40
    assert run(noisy(losses, 1, 0.01), tokens) == []
    assert run(noisy(losses, 1, 0.01)) == [("loss_drift", True)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_noisy_loss_needs_more_than_its_noise(seed: int) -> None:
    assert ("loss_drift", True) not in run(noisy([2.1] * 3000, seed, 0.25))


def test_a_restart_clears_what_was_said() -> None:
    losses = noisy([*[2.1] * 100, *creep(0.01, 60), *[2.1] * 100], 1, 0.005)
    numbers = [*range(160), *range(90, 190)]
    assert run(losses, steps=numbers) == [("loss_drift", True), ("loss_drift", False)]


def test_state_is_bounded_and_survives_a_restart_of_ours() -> None:
    rules, drift = CurvesSettings(), Drift()
    losses = noisy(creep(0.00001, 20_000), 3, 0.001)
    for number, loss in enumerate(losses):
        drift.take(loss, None, float(number), rules)
        assert len(drift.levels) <= LEVELS_MAX
        assert len(drift.block) < drift.block_steps
    copy = msgspec.convert(msgspec.to_builtins(drift), Drift)
    assert copy == drift
