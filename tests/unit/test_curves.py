"""Jumps of loss and gradient norm, and MFU that sinks: for people, never against a node."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from detectors.base import Sighting
from detectors.curves import Curves
from telemetry.records import Steps
from telemetry.settings import EngineSettings
from tests.fakes import cluster

SEED = 5
VIEW = cluster(8)


def run(values: Sequence[float], name: str = "loss", **more: Sequence[float]) -> list[Sighting]:
    """A job's steps with these values; what is said."""
    print("seed", SEED)
    detector = Curves(EngineSettings())
    said: list[Sighting] = []
    for step, value in enumerate(values):
        columns: dict[str, Any] = {name: [value]}
        columns.update((key, [column[step]]) for key, column in more.items())
        record = Steps(
            at=1000.0 + 5.0 * step, node="", source="training", started_at=0.0, seq=step, job="j1",
            step=[step], **{"step_time_s": [5.0], **columns},
        )  # fmt: skip
        said += detector.on_steps(record, VIEW, record.at)
    return said


def noisy(level: float, steps: int, spread: float = 0.02) -> list[float]:
    rng = random.Random(SEED)
    return [level * (1.0 + spread * rng.gauss(0.0, 1.0)) for _ in range(steps)]


def faults(said: Sequence[Sighting]) -> list[tuple[str, bool]]:
    return [(seen.metric, seen.active) for seen in said if seen.role == "fault" and seen.active]


def test_f10_a_loss_spike_of_one_step_is_evidence_only() -> None:
    said = run([*noisy(2.1, 200), 7.9, *noisy(2.1, 50)])
    assert [(s.metric, s.role, s.active) for s in said] == [
        ("loss_spike", "evidence", True),
        ("loss_spike", "fault", False),
    ]


def test_f10_a_loss_jump_of_fifty_steps_is_said_once_and_cleared() -> None:
    said = run([*noisy(2.1, 200), *noisy(7.9, 50), *noisy(2.1, 60)])
    assert faults(said) == [("loss_jump", True)]
    assert [s.active for s in said if s.metric == "loss_jump"] == [True, False]
    (jump,) = [s for s in said if s.metric == "loss_jump" and s.active]
    assert jump.onset_s == 1000.0 + 5.0 * 200
    assert (jump.node, jump.cause) == ("", "unknown")


def test_f10_a_slow_drift_up_is_no_spike() -> None:
    said = run([2.1 * (1.0 + step / 2000.0) for step in range(1500)])
    assert [(seen.metric, seen.active) for seen in said] == [("loss_drift", True)]


def test_five_times_the_usual_is_said_at_once() -> None:
    said = run([*noisy(2.1, 200), 11.0])
    assert faults(said) == [("loss_jump", True)]


def test_the_first_steps_are_exempt() -> None:
    warming = [1.0 + 0.1 * step for step in range(45)]
    assert run(warming, "grad_norm") == []


def test_a_falling_loss_is_good_news() -> None:
    assert run([*noisy(6.0, 200), *noisy(2.0, 100)]) == []


def test_a_gradient_norm_doubles_and_stays() -> None:
    assert faults(run([*noisy(0.5, 200), *noisy(1.6, 10)], "grad_norm")) == [
        ("grad_norm_jump", True)
    ]


@pytest.mark.parametrize("name", ["mfu_ratio", "throughput"])
def test_an_efficiency_that_sinks_is_evidence(name: str) -> None:
    said = run([*noisy(0.45, 200, 0.005), *noisy(0.36, 20, 0.005)], name)
    assert [(s.metric, s.role, s.kind) for s in said if s.active] == [
        ("efficiency_decline", "evidence", "job_slow")
    ]


def test_longer_sequences_explain_a_lower_throughput() -> None:
    """Fewer samples a second, but as many tokens: the workload changed, not the cluster."""
    samples = [*noisy(100.0, 200, 0.005), *noisy(60.0, 30, 0.005)]
    times = [*[5.0] * 200, *[8.0] * 30]
    tokens = [*[5.0e6] * 200, *[8.0e6] * 30]
    assert run(samples, "throughput", step_time_s=times, tokens=tokens) == []
    fewer = [5.0e6] * 230
    assert run(samples, "throughput", step_time_s=times, tokens=fewer) != []


def test_a_step_is_judged_once_whoever_tells_it() -> None:
    detector = Curves(EngineSettings())
    record = Steps(
        at=1.0, node="", source="training", started_at=0.0, seq=1, job="j1", step=[7],
        step_time_s=[5.0], loss=[2.0],
    )  # fmt: skip
    for _ in range(500):
        assert not detector.on_steps(record, VIEW, 1.0)
    (kept,) = detector.snapshot()
    assert kept[1]["curves"]["loss"]["usual"] == [2.0]
