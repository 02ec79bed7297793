"""A job that stands still is a hang; a slow but healthy phase is none."""

from __future__ import annotations

import numpy as np
import pytest

from detectors.base import Sighting, Tick
from detectors.progress import Progress
from telemetry.metrics import BY_NAME
from telemetry.records import StepKind, Steps
from telemetry.settings import EngineSettings
from tests.fakes import FakeView, cluster

RULES = EngineSettings()
START_S = 1_000_000.0
STEP_S = 5.0


def step(number: int, at_s: float, kind: StepKind = "train", timed: bool = True) -> Steps:
    return Steps(
        at=at_s, node="", source="training", started_at=0.0, seq=number, job="j1",
        step_kind=kind, step=[number], step_time_s=[STEP_S if timed else None],
    )  # fmt: skip


def tick(at_s: float, view: FakeView, tensor: float = 0.5, rdma: float | None = 1e9) -> Tick:
    """A closed GPU and NIC tick in one, 15 s long."""
    nodes = tuple(view.job_nodes("j1", at_s))
    shape = (1, 1, len(nodes))
    watched = np.full((1, len(nodes), 8), np.nan)
    if rdma is not None:
        watched[:, :, 0] = rdma
    return Tick(
        source="gpu", index=int(at_s // 15), at_s=at_s, interval_s=15.0, nodes=nodes,
        group=np.zeros(len(nodes), dtype=np.int64), metrics=(BY_NAME["gpu_tensor_active_ratio"],),
        worst=np.full(shape, tensor), flags=np.ones(shape, dtype=np.int8),
        mean=np.full(shape[1:], tensor), sd=np.zeros(shape[1:]),
        entity=np.zeros(shape[1:], dtype=np.int64), entities={},
        watched_metrics=(BY_NAME["nic_receive_bytes_total"],), watched=watched,
    )  # fmt: skip


class Run:
    """A job's life in beats of 5 s and ticks of 15 s; says what became true when."""

    def __init__(self, view: FakeView | None = None) -> None:
        self.detector = Progress(RULES)
        self.view = view or cluster(16)
        self.now_s = START_S
        self.step = 0
        self.said: list[tuple[float, Sighting]] = []

    def live(
        self, seconds: float, trains: bool, tensor: float = 0.5, rdma: float | None = 1e9
    ) -> None:
        """Time passes, with a step every 5 s or none."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += 5.0
            if trains:
                self.end_step()
            if self.now_s % 15.0 == 0.0:
                self.take(self.detector.on_tick(
                    tick(self.now_s - 15.0, self.view, tensor, rdma), self.view, self.now_s
                ))  # fmt: skip
            self.take(self.detector.advance(self.now_s, self.view))

    def end_step(self, kind: StepKind = "train", timed: bool = True) -> None:
        self.step += 1 if timed else 0
        said = self.detector.on_steps(
            step(self.step, self.now_s, kind, timed), self.view, self.now_s
        )
        self.take(said)

    def take(self, said: object) -> None:
        assert isinstance(said, list | tuple)
        self.said += [(self.now_s, seen) for seen in said]

    def first(self, metric: str) -> float | None:
        """Seconds from the start at which the metric was first said to hold."""
        times = [at for at, seen in self.said if seen.metric == metric and seen.active]
        return times[0] - START_S if times else None


def test_no_step_with_idle_tensor_cores_is_a_hang_within_a_minute() -> None:
    run = Run()
    run.live(300.0, trains=True)
    run.live(120.0, trains=False, tensor=0.0)

    hang = run.first("hang")
    assert hang is not None
    assert 0.0 < hang - 300.0 <= 60.0
    (seen,) = [s for _, s in run.said if s.metric == "hang"]
    assert (seen.role, seen.kind, seen.node, seen.job) == ("fault", "job_hang", "", "j1")
    assert seen.onset_s == START_S + 300.0


def test_no_step_while_the_tensor_cores_work_is_evidence_and_a_hang_only_at_the_ceiling() -> None:
    run = Run()
    run.live(300.0, trains=True)
    run.live(590.0, trains=False, tensor=0.5)
    assert run.first("no_step") is not None
    assert run.first("hang") is None
    run.live(30.0, trains=False, tensor=0.5)
    assert run.first("hang") is not None


def test_silent_rdma_for_ten_minutes_is_a_witness() -> None:
    run = Run()
    run.live(300.0, trains=True)
    run.live(660.0, trains=False, tensor=0.5, rdma=0.0)
    assert run.first("rdma_zero") == pytest.approx(300.0 + 600.0, abs=30.0)


def test_missing_counters_are_not_zero() -> None:
    run = Run()
    run.live(300.0, trains=True)
    run.live(900.0, trains=True, rdma=None)
    assert run.first("rdma_zero") is None


@pytest.mark.parametrize(("kind", "pause_s"), [("evaluation", 600.0), ("checkpoint", 90.0)])
def test_an_announced_pause_is_no_hang(kind: StepKind, pause_s: float) -> None:
    run = Run()
    run.live(300.0, trains=True)
    run.end_step(kind, timed=False)
    run.live(pause_s, trains=False, tensor=0.0)
    run.live(60.0, trains=True)
    assert run.first("hang") is None


@pytest.mark.parametrize("kind", ["evaluation", "checkpoint"])
def test_a_hang_in_an_announced_pause_is_found_by_what_it_took_before(kind: StepKind) -> None:
    run = Run()
    for _ in range(3):
        run.live(100.0, trains=True)
        run.end_step(kind, timed=False)
        run.live(60.0, trains=False, tensor=0.0)
    run.live(100.0, trains=True)
    run.end_step(kind, timed=False)
    floor_s = {
        "evaluation": RULES.progress.evaluation_floor_s,
        "checkpoint": RULES.progress.checkpoint_floor_s,
    }[kind]
    run.live(floor_s - 20.0, trains=False, tensor=0.0)
    assert run.first("hang") is None
    run.live(40.0, trains=False, tensor=0.0)
    assert run.first("hang") is not None


def test_a_new_attempt_may_take_its_time_to_start() -> None:
    """What the scheduler starts anew begins with initialisation, not with a training step."""
    run = Run()
    run.live(300.0, trains=True)
    run.view.attempts["j1"] = 1
    run.live(1_200.0, trains=False, tensor=0.0)
    assert run.first("hang") is None
    run.live(700.0, trains=False, tensor=0.0)
    assert run.first("hang") is not None


def test_a_pause_that_no_line_announces_is_learned() -> None:
    """Every hundredth step a checkpoint of 90 s: the third one surprises nobody."""
    run = Run()
    for _ in range(2):
        run.live(500.0, trains=True)
        run.live(90.0, trains=False, tensor=0.0)
    before = len([1 for _, s in run.said if s.metric == "hang" and s.active])
    for _ in range(4):
        run.live(500.0, trains=True)
        run.live(90.0, trains=False, tensor=0.0)
    assert len([1 for _, s in run.said if s.metric == "hang" and s.active]) == before <= 2


def test_a_first_step_of_twenty_minutes_is_no_hang_and_one_of_forty_is() -> None:
    run = Run()
    run.live(1_200.0, trains=False, tensor=0.0)
    assert run.first("hang") is None
    run.live(1_200.0, trains=False, tensor=0.0)
    assert run.first("hang") is not None


def test_a_step_clears_the_hang_and_a_job_that_ends_leaves_nothing() -> None:
    run = Run()
    run.live(300.0, trains=True)
    run.live(100.0, trains=False, tensor=0.0)
    run.live(5.0, trains=True)
    assert [s.active for _, s in run.said if s.metric == "hang"] == [True, False]

    run.live(100.0, trains=False, tensor=0.0)
    run.view.jobs = {"j2": ["n00"]}
    run.live(5.0, trains=False)
    assert [s.active for _, s in run.said if s.metric == "hang"] == [True, False, True, False]


def test_a_gap_of_the_log_itself_proves_nothing() -> None:
    run = Run()
    run.live(300.0, trains=True)
    run.now_s += 3_600.0
    run.take(run.detector.advance(run.now_s, run.view))
    assert run.first("no_step") is None


def test_samples_of_once_a_minute_are_no_cut_log_and_show_the_hang() -> None:
    run = Run()
    run.live(300.0, trains=True)
    for _ in range(30):
        run.now_s += 60.0
        run.take(run.detector.advance(run.now_s, run.view))
    hang = run.first("hang")
    assert hang is not None
    assert 600.0 < hang - 300.0 <= 1_260.0  # of each minute half counts


def test_a_restart_from_an_earlier_step_learns_no_pause() -> None:
    run = Run()
    run.live(300.0, trains=True)
    run.live(400.0, trains=False, tensor=0.5)
    run.step = 3
    run.live(300.0, trains=True)
    run.live(60.0, trains=False, tensor=0.0)
    assert run.first("hang") is not None


def test_steps_of_a_quarter_of_an_hour_are_no_hang_and_one_of_an_hour_is() -> None:
    """Neither before the job's own step time is learned nor after."""
    run = Run()
    run.end_step()
    for _ in range(8):
        run.live(900.0, trains=False)
        run.end_step()
    assert run.first("hang") is None
    learned_s = run.now_s - START_S
    run.live(3_600.0, trains=False)
    hang_s = run.first("hang")
    assert hang_s is not None
    assert 2_700.0 <= hang_s - learned_s <= 2_710.0
