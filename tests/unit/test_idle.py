"""Jobs that hold GPUs for nothing, beside those that only pause."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from detectors.base import Sighting, Tick
from detectors.idle import Idle
from telemetry.metrics import BY_NAME
from telemetry.settings import EngineSettings
from tests.fakes import cluster, job_step, tick

VIEW = cluster(4)
NODES = ["n00", "n01", "n02", "n03"]


def showing(at: float, percent: float = 0.0, used_mib: float = 3.0, busy: int = 0) -> Tick:
    """Eight GPUs a node; the first `busy` nodes work."""
    values = np.where(np.arange(4) < busy, 97.0, percent)[None, :]
    one = tick("gpu_utilization_percent", values, NODES, at, 60.0)
    used = np.full((1, 4, 8), used_mib)
    return replace(one, watched_metrics=(BY_NAME["gpu_framebuffer_used_mib"],), watched=used)


def fed(detector: Idle, ticks: list[Tick]) -> list[Sighting]:
    return [seen for one in ticks for seen in detector.on_tick(one, VIEW, one.at_s)]


def test_e1_gpus_held_for_twenty_minutes_without_work_process_or_step() -> None:
    (seen,) = fed(Idle(EngineSettings()), [showing(60.0 * i) for i in range(25)])

    assert ("job_hang", "j1", "", "fault", "warning") == (
        seen.kind, seen.job, seen.node, seen.role, seen.severity,
    )  # fmt: skip
    assert 1_200.0 == seen.observed


def test_e1_a_job_that_works_holds_memory_or_ends_steps_is_alive() -> None:
    ticks = [60.0 * i for i in range(60)]
    assert [] == fed(Idle(EngineSettings()), [showing(at, percent=30.0) for at in ticks])
    assert [] == fed(Idle(EngineSettings()), [showing(at, used_mib=70_000.0) for at in ticks])
    assert [] == fed(Idle(EngineSettings()), [showing(at, busy=1) for at in ticks])
    stepping, said = Idle(EngineSettings()), list[Sighting]()
    for step, at in enumerate(ticks):
        said += fed(stepping, [showing(at)])
        said += stepping.on_steps(job_step(step, at + 30.0, 5.0), VIEW, at) if step % 9 == 0 else ()
    assert [] == said


def test_e1_it_ends_with_the_first_work_and_a_restart_of_ours_changes_nothing() -> None:
    first, second = Idle(EngineSettings()), Idle(EngineSettings())
    fed(first, [showing(60.0 * i) for i in range(15)])
    second.restore(first.snapshot())
    assert [True] == [s.active for s in fed(second, [showing(60.0 * i) for i in range(15, 25)])]
    assert [False] == [s.active for s in fed(second, [showing(1_500.0, percent=50.0)])]


def test_e1_without_the_memory_of_processes_nothing_is_said() -> None:
    bare = [tick("gpu_utilization_percent", np.zeros((1, 4)), NODES, 60.0 * i) for i in range(60)]
    assert [] == fed(Idle(EngineSettings()), bare)
