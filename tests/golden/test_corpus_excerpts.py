"""Excerpts of real training logs as captures, with 200 healthy steps before them by a stated rule.

The rule stands in `tests/excerpts.py`. Each excerpt is one from BLOOM's chronicles.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from collectors.capture import open_capture
from streams.replay import Outcome
from telemetry.findings import ISOLATING, Incident
from telemetry.records import Steps
from telemetry.settings import EngineSettings
from tests.excerpts import DATA, JOB, Excerpt
from tests.folding import folded, numbered


def day(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


HANG = Excerpt(
    "bloom176b_hang_at_eval_no_nccl_timeout.log", ends_s=day("2022-05-01T02:50:00"),
    busy_s=3.2 * 3_600.0,
)  # fmt: skip
ECC = Excerpt(
    "bloom13b_ecc_uncorrectable_then_misleading_oom.log", ends_s=day("2021-08-12T08:10:00"),
    busy_s=2_400.0,
)  # fmt: skip
LOSS = Excerpt("bloom176b_loss_spike_recovers.log")
SPIKE = Excerpt("bloom104b_spike_11447.log")
SLOWER = Excerpt("bloom176b_throughput_drop_5pct_linewrapped.log")
RAMP = Excerpt(
    "bloom104b_curriculum_steptime_ramp.log", healthy=3, filled=True, cut="Clearly LR"
)  # fmt: skip
RESUME = Excerpt(
    "bloom104b_resume_first_step_573s_loss_scale_drop.log", model=1,
    ends_s=day("2022-01-19T12:45:34"), busy_s=4_200.0,
)  # fmt: skip
ALL = [HANG, ECC, LOSS, SPIKE, SLOWER, RAMP, RESUME]


def only(outcome: Outcome) -> Incident:
    (incident,) = outcome.sorted_incidents()
    return incident


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    places = [(one, tmp_path_factory.mktemp("excerpt")) for one in ALL]
    return {one.name: one.replayed(place) for one, place in places}


def test_a_hang_at_the_evaluation_is_told_though_gpus_and_log_stay_busy(
    told: dict[str, Outcome],
) -> None:
    incident = only(told[HANG.name])
    assert ("job_hang", JOB, "diagnose") == (
        incident.kind, incident.job, incident.verdict.action,
    )  # fmt: skip
    assert [] == incident.suspects
    last_step_s = HANG.ends_s + 111.0
    assert 0.0 < incident.opened_at - last_step_s <= 1_800.0 + 60.0


def test_the_memory_error_is_the_first_cause_and_not_the_lack_of_memory_it_leads_to(
    told: dict[str, Outcome],
) -> None:
    """One incident: the crash, the crash of the next start, and the job that stands still."""
    incident = only(told[ECC.name])
    assert ("gpu_memory", "hardware", JOB) == (incident.kind, incident.cause, incident.job)
    assert "uncorrectable ECC error" in incident.evidence[0].text
    assert any("out of memory" in line.text for line in incident.evidence)
    assert [] == incident.suspects, "the log names no host"
    assert incident.verdict.action not in ISOLATING


@pytest.mark.parametrize("excerpt", [LOSS, SPIKE], ids=["loss", "spike"])
def test_a_loss_spike_is_told_and_accuses_no_node(
    told: dict[str, Outcome], excerpt: Excerpt
) -> None:
    incident = only(told[excerpt.name])
    assert ("loss_anomaly", "page") == (incident.kind, incident.verdict.action)
    assert [] == incident.suspects
    assert {"curves"} == {line.detector for line in incident.evidence}


def test_the_gradient_norm_is_told_a_step_before_the_loss(told: dict[str, Outcome]) -> None:
    onset = {f.metric: f.onset for f in told[SPIKE.name].findings.values()}
    assert {"grad_norm_jump", "loss_spike"} == set(onset)
    assert 70.0 < onset["loss_spike"] - onset["grad_norm_jump"] < 90.0


def test_five_per_cent_slower_is_below_the_slow_ratio_and_so_nothing_is_said(
    told: dict[str, Outcome],
) -> None:
    """A job is slow from 10 % on, and the excerpt holds two steps at its new pace: five are asked.

    This is a limit and no success: one GPU of 384 was slow. What names it at 5 % is the compute
    time of the ranks or the clock of the GPU, which no log of a job tells.
    """
    assert {} == told[SLOWER.name].findings


def test_a_batch_that_grows_makes_longer_steps_and_no_slow_job(told: dict[str, Outcome]) -> None:
    """31 s to 208 s as the batch grows from 80 to 528, and 279 s for the first step of a resume."""
    assert {} == told[RAMP.name].findings


def test_a_first_step_of_573_seconds_is_no_hang_and_no_slow_job(told: dict[str, Outcome]) -> None:
    """The loss did jump from 2.7 to 4.4: that is told, and nothing else."""
    outcome = told[RESUME.name]
    assert ["loss_anomaly"] == [one.kind for one in outcome.sorted_incidents()]
    assert not {"job_hang", "job_slow"} & {f.kind for f in outcome.findings.values()}


@pytest.mark.parametrize(
    "name", ["megds_gpt2_perf_n16_ds_on.out", "megatron_deepspeed_pdsh_host_prefix_tail.log"]
)
def test_real_healthy_logs_of_megatron_say_nothing_as_they_are(name: str, tmp_path: Path) -> None:
    """A whole run of 49 steps of 136 s, and the five steps of a benchmark."""
    place = tmp_path / "training" / JOB
    place.mkdir(parents=True)
    (place / "train.log").write_bytes((DATA / name).read_bytes())
    (place / "clock.json").write_text('{"start": 1650000000}', "utf-8")
    with open_capture(tmp_path, EngineSettings(), "UTC") as capture:
        records = list(capture.records())
    steps = sum(isinstance(one, Steps) for one in records)
    assert steps == (49 if "n16" in name else 5)
    _, outcome = folded(numbered((one.at or 0.0, one) for one in records))
    assert {} == outcome.findings


@pytest.mark.parametrize("excerpt", ALL, ids=[one.name for one in ALL])
def test_no_excerpt_isolates_anybody(told: dict[str, Outcome], excerpt: Excerpt) -> None:
    incidents = told[excerpt.name].sorted_incidents()
    assert [] == [one for one in incidents for v in one.verdicts if v.action in ISOLATING]


@pytest.mark.parametrize("excerpt", ALL, ids=[one.name for one in ALL])
def test_the_healthy_steps_alone_say_nothing(excerpt: Excerpt, tmp_path: Path) -> None:
    assert {} == excerpt.replayed(tmp_path, alone=True).findings
