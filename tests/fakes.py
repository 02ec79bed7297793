"""Stand-ins for the engine: an inventory, ticks, steps and findings, all by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from detectors.base import FindingBook, FloatArray, Place, Sighting, Tick
from telemetry.findings import Finding
from telemetry.metrics import BY_NAME
from telemetry.records import Event, EventType, NodeInfo, Port, Severity, Steps


@dataclass
class FakeView:
    """Everything the inventory says; jobs hold for all times."""

    jobs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    leaves: Mapping[str, Sequence[str]] = field(default_factory=dict)
    stages: Mapping[str, int] = field(default_factory=dict)
    ranks: Mapping[int, str] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    heard: dict[str, float] = field(default_factory=dict)
    patience: Mapping[str, float] = field(default_factory=dict)
    patience_default_s: float = 30.0
    ports: Mapping[tuple[str, str], Port] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[tuple[str, str], str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)

    def place(self, node: str, at_s: float) -> Place:
        job = next((j for j, nodes in self.jobs.items() if node in nodes), "")
        leaf = next((name for name, nodes in self.leaves.items() if node in nodes), "")
        return Place(job=job, stage=self.stages.get(node), leaf=leaf, rack="", pod="")

    def job_nodes(self, job: str, at_s: float) -> Sequence[str]:
        return sorted(self.jobs.get(job, ()))

    def running_jobs(self, at_s: float) -> Sequence[tuple[str, float | None, int]]:
        return [(job, None, self.attempts.get(job, 0)) for job in sorted(self.jobs)]

    def leaf_nodes(self, leaf: str) -> Sequence[str]:
        return sorted(self.leaves.get(leaf, ()))

    def rank_node(self, job: str, rank: int) -> str:
        return self.ranks.get(rank, "")

    def info(self, node: str) -> NodeInfo | None:
        return NodeInfo(node, state=self.states[node]) if node in self.states else None

    def port(self, node: str, name: str) -> Port | None:
        return self.ports.get((node, name))

    def named(self, name: str) -> str:
        return self.aliases.get(name, name)

    def device(self, node: str, entity: str) -> str:
        return self.devices.get((node, entity), "")

    def holds(self, node: str, device: str) -> bool:
        return any(one == node and held == device for (one, _), held in self.devices.items())

    def reporting(self) -> Sequence[str]:
        return sorted(self.heard)

    def last_heard_s(self, node: str) -> float | None:
        return self.heard.get(node)

    def patience_s(self, node: str) -> float:
        return self.patience.get(node, self.patience_default_s)


def cluster(nodes: int = 16, leaf_size: int = 8, job: str = "j1") -> FakeView:
    """One job on `nodes` nodes n00, n01, ... behind leaves leaf0, leaf1, ..."""
    names = [f"n{i:02d}" for i in range(nodes)]
    leaves = {f"leaf{i // leaf_size}": names[i : i + leaf_size] for i in range(0, nodes, leaf_size)}
    return FakeView(jobs={job: names}, leaves=leaves)


def event(
    type_: EventType,
    at: float,
    node: str = "n00",
    text: str = "line",
    severity: Severity = "critical",
    code: int | None = None,
    entity: str = "",
    class_: str = "",
    job: str = "",
    source: str = "kernel",
) -> Event:
    """One kernel line or process failure."""
    return Event(
        at=at, node=node, source=source, started_at=0.0, seq=0, type=type_, text=text,
        severity=severity, code=code, entity=entity, class_=class_, job=job,
    )  # fmt: skip


def tick(
    metric: str, values: FloatArray, nodes: Sequence[str], at_s: float, interval_s: float = 10.0,
    partial: bool = False,
) -> Tick:  # fmt: skip
    """A tick of one metric; values of shape (ticks, nodes), NaN missing."""
    shape = (1, len(nodes))
    row = BY_NAME[metric]
    return Tick(
        source=row.source, index=int(at_s // interval_s), at_s=at_s, interval_s=interval_s,
        nodes=tuple(nodes), group=np.zeros(len(nodes), dtype=np.int64), metrics=(row,),
        worst=values[:, None, :], flags=np.zeros((values.shape[0], *shape), dtype=np.int8),
        mean=np.full(shape, np.nan), sd=np.full(shape, np.nan),
        entity=np.zeros(shape, dtype=np.int64),
        entities={node: {row.device: ["mlx5_0/1"]} for node in nodes}, partial=partial,
    )  # fmt: skip


def job_step(
    step: int, at: float, step_time_s: float | None, job: str = "j1", loss: float | None = 2.0,
    nonfinite: Sequence[str] = (),
) -> Steps:  # fmt: skip
    """One step as a log speaks of it for the whole job."""
    return Steps(
        at=at, node="", source="training", started_at=0.0, seq=step, job=job, step=[step],
        step_time_s=[step_time_s], loss=[loss], nonfinite=[list(nonfinite)],
    )  # fmt: skip


def rank_steps(
    step: int, at: float, node: str, compute_s: Mapping[int, float | None], job: str = "j1",
    step_time_s: float = 5.0,
) -> Steps:  # fmt: skip
    """One step of the ranks of one node: rank -> compute time."""
    return Steps(
        at=at, node=node, source="training", started_at=0.0, seq=step, job=job,
        ranks=list(compute_s), step=[step], step_time_s=[step_time_s] * len(compute_s),
        compute_time_s=list(compute_s.values()),
    )  # fmt: skip


class Book:
    """A finding book that takes sightings as words."""

    def __init__(self) -> None:
        self._book = FindingBook("main")

    def say(self, seen: Sighting, now_s: float) -> Finding:
        """The finding that the sighting makes; it must make one."""
        finding = self._book.say(seen, now_s)
        assert finding is not None
        return finding
