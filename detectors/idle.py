"""Dead allocations: a job that holds GPUs, computes nothing on them and ends no step.

Its nodes are well and nobody else can use them. Zero utilisation alone is no sign (a checkpoint, an
evaluation that loads its data): no GPU of nearly all nodes may work for `idle_s`, none may hold the
memory of a process where that is told, and no step may end meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from detectors.base import Quiet, Sighting, Tick, View
from telemetry.records import Steps
from telemetry.settings import EngineSettings

UTILIZATION = "gpu_utilization_percent"
USED_MEMORY = "gpu_framebuffer_used_mib"


class Holding(msgspec.Struct):
    """One job: since when its GPUs idle, None while any works; when it last ended a step."""

    idle_s: float | None = None
    step_s: float | None = None
    said: Sighting | None = None


class Idle(Quiet):
    """Jobs in the order in which they were first seen to idle or to step."""

    name = "idle"

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings.idle
        self._jobs: dict[str, Holding] = {}

    def on_steps(self, steps: Steps, view: View, now_s: float) -> Sequence[Sighting]:
        """A step is work, whatever the GPUs show."""
        job = self._jobs.get(steps.job) or self._job(steps.job)
        if job is None:
            return ()
        if job.step_s is None or steps.at > job.step_s:
            job.step_s = steps.at
        if job.idle_s is None and job.said is None:
            return ()
        return self._busy(job)

    def on_tick(self, tick: Tick, view: View, now_s: float) -> Sequence[Sighting]:
        """Look at the jobs whose nodes are in the tick."""
        row = next((i for i, m in enumerate(tick.metrics) if m.name == UTILIZATION), -1)
        if row < 0 or tick.partial or tick.worst.shape[0] == 0:
            return ()
        idle = self._idle(tick, row)
        if not idle.any() and all(job.idle_s is None for job in self._jobs.values()):
            return ()
        count: dict[str, int] = {}
        seen: dict[str, int] = {}
        for column, node in enumerate(tick.nodes):
            name = view.place(node, tick.at_s).job
            if name:
                seen[name] = seen.get(name, 0) + 1
                count[name] = count.get(name, 0) + int(idle[column])
        said: list[Sighting] = []
        for name in sorted(seen):
            size = len(view.job_nodes(name, tick.at_s))
            dead = size > 0 and count[name] >= self._settings.nodes_share * size
            said += self._look(name, dead, size, tick)
        for name in [name for name in self._jobs if name not in seen]:
            if (said_of := self._jobs[name].said) is not None:
                said.append(replace(said_of, active=False))
            if self._jobs[name].idle_s is not None or said_of is not None:
                del self._jobs[name]
        return said

    def _idle(self, tick: Tick, row: int) -> NDArray[np.bool_]:
        """Nodes of which no GPU works; `worst` is the least busy one, so memory speaks too."""
        names = [metric.name for metric in tick.watched_metrics]
        with np.errstate(invalid="ignore"):
            least = tick.worst[-1, row] < self._settings.busy_percent
            if USED_MEMORY not in names:
                return np.zeros(least.shape, dtype=np.bool_)
            used = tick.watched[names.index(USED_MEMORY)]
            empty = np.isnan(used) | (used < self._settings.process_mib)
        told = (~np.isnan(used)).any(axis=1)
        return np.asarray(least & told & empty.all(axis=1))

    def _look(self, name: str, dead: bool, size: int, tick: Tick) -> list[Sighting]:
        if not dead:
            job = self._jobs.get(name)
            return [] if job is None else self._busy(job)
        job = self._job(name)
        if job is None:
            return []
        job.idle_s = tick.at_s if job.idle_s is None else job.idle_s
        since_s = job.idle_s if job.step_s is None else max(job.idle_s, job.step_s)
        lasted_s = tick.at_s + tick.interval_s - since_s
        if job.said is not None or lasted_s < self._settings.idle_s:
            return []
        job.said = Sighting(
            active=True, detector=self.name, node="", entity="", metric="dead_allocation",
            onset_s=since_s, kind="job_hang", cause="unknown", severity="warning", job=name,
            observed=lasted_s, expected=self._settings.idle_s, unit="s", score=1.0,
            text=f"job {name} holds {size} nodes, and for {lasted_s / 60.0:.0f} min no GPU works, "
            "none holds a process and no step ended: a dead allocation",
        )  # fmt: skip
        return [job.said]

    def _busy(self, job: Holding) -> list[Sighting]:
        job.idle_s, said = None, job.said
        job.said = None
        return [] if said is None else [replace(said, active=False)]

    def _job(self, name: str) -> Holding | None:
        """The job's record, None where there is no room for one more."""
        if name not in self._jobs and len(self._jobs) >= self._settings.jobs_max:
            calm = next((n for n, job in self._jobs.items() if job.said is None), None)
            if calm is None:
                return None
            del self._jobs[calm]
        return self._jobs.setdefault(name, Holding())

    def snapshot(self) -> Any:
        """The jobs."""
        return msgspec.to_builtins(self._jobs)

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        self._jobs = msgspec.convert(state, dict[str, Holding])
