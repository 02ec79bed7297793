"""A loss that is no number, and what only looks like it."""

from __future__ import annotations

from detectors.base import Sighting
from detectors.training import Training
from telemetry.records import Steps
from telemetry.settings import EngineSettings, TrainingSettings
from tests.fakes import cluster, job_step

VIEW = cluster()


def training(clear_steps: int = 20, jobs_max: int = 10) -> Training:
    rule = TrainingSettings(clear_steps=clear_steps, jobs_max=jobs_max)
    return Training(EngineSettings(training=rule))


def fed(detector: Training, *steps: Steps) -> list[Sighting]:
    return [seen for one in steps for seen in detector.on_steps(one, VIEW, one.at)]


def bad(step: int, *what: str) -> Steps:
    return job_step(step, 5.0 * step, 5.0, loss=None if "loss" in what else 2.0, nonfinite=what)


def good(step: int) -> Steps:
    return job_step(step, 5.0 * step, 5.0)


def test_a_nonfinite_loss_is_said_once_and_at_once() -> None:
    (seen,) = fed(training(), good(1), bad(2, "loss", "grad_norm"), bad(3, "loss"))

    assert ("loss_anomaly", "critical", "fault", "j1", "") == (
        seen.kind, seen.severity, seen.role, seen.job, seen.node,
    )  # fmt: skip
    assert 10.0 == seen.onset_s
    assert "step 2" in seen.text


def test_single_steps_that_fp16_scaling_skips_are_healthy_a_norm_that_stays_so_is_not() -> None:
    skipped = [bad(i, "grad_norm") if i % 3 else good(i) for i in range(1, 40)]
    stays = [bad(i, "grad_norm") for i in range(1, 6)]

    assert [] == fed(training(), *skipped)
    assert [("grad_norm", 5.0)] == [(s.metric, s.onset_s) for s in fed(training(), *stays)]


def test_it_clears_after_clear_steps_finite_steps_in_a_row() -> None:
    detector = training(clear_steps=3)
    fed(detector, bad(1, "loss"))

    assert [] == fed(detector, good(2), good(3), bad(4, "loss"), good(5), good(6))
    assert [False] == [seen.active for seen in fed(detector, good(7), good(8))]


def test_a_missing_loss_is_neither_finite_nor_not_and_a_step_counts_once() -> None:
    detector = training(clear_steps=2)
    fed(detector, bad(1, "loss"))

    missing = job_step(2, 10.0, 5.0, loss=None)
    assert [] == fed(detector, missing, missing, good(3), good(3))
    assert [False] == [seen.active for seen in fed(detector, good(4))]


def test_rows_of_several_ranks_and_records_without_a_step_number() -> None:
    ranks = Steps(at=1.0, node="n00", source="training", started_at=0.0, seq=0, job="j1",
                  ranks=[0, 1], step=[7], loss=[2.0, None], nonfinite=[[], ["loss"]])  # fmt: skip
    bare = Steps(at=1.0, node="", source="training", started_at=0.0, seq=0, job="j2",
                 nonfinite=[["loss"]])  # fmt: skip

    assert ["j1", "j2"] == [seen.job for seen in fed(training(), ranks, bare)]


def test_a_job_that_ends_no_step_any_more_is_cleared_and_jobs_are_bounded() -> None:
    detector = training(jobs_max=1)
    fed(detector, bad(1, "loss"))

    other = job_step(1, 6.0, 5.0, job="j2")
    assert [("j1", False)] == [(s.job, s.active) for s in fed(detector, other)]
    assert [] == list(detector.advance(3_606.0, VIEW))
    assert [] == list(detector.advance(3_607.0, VIEW))
    fed(detector, bad(1, "loss"))
    assert ["j1"] == [seen.job for seen in detector.advance(9_000.0, VIEW)]


def test_a_restart_of_ours_changes_nothing() -> None:
    straight, cut, resumed = (
        training(clear_steps=2),
        training(clear_steps=2),
        training(clear_steps=2),
    )
    for detector in (straight, cut):
        fed(detector, bad(1, "loss"), good(2))
    resumed.restore(cut.snapshot())

    assert fed(straight, good(3)) == fed(resumed, good(3)) != []
