"""ByteDance's straggler traces as the log of a job: one node a worker, one `Steps` record a step.

A worker is a pair (data-parallel rank, pipeline stage); of each tensor-parallel group the traces
hold the first rank. What a rank computes in a step is the sum of its forward and backward times;
how long the step took is from its first operation anywhere to its last.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from telemetry.records import (
    Allocation,
    Arrived,
    Job,
    JobNode,
    NodeInfo,
    Parallel,
    Settings,
    Steps,
)
from telemetry.settings import settings_digest
from tests.folding import DEFAULTS, numbered

DATA = Path(__file__).parent / "data" / "straggler"
JOB = "trace"
START_S = 1_700_000_000.0
# Tensor-parallel size and ranks of a worker in all, from the traces' own `job_meta`.
TENSOR: Mapping[str, int] = {"AR": 4, "SE": 1, "ST": 1}

Worker = tuple[int, int]
# (step, end in seconds since the trace began, step time in s, compute time in s by worker)
Recorded = tuple[int, float, float, dict[Worker, float]]


def steps_of(trace: str) -> list[Recorded]:
    """The steps of a trace, samples of a long job: their numbers leap."""
    rows: dict[int, list[dict[str, str]]] = {}
    with (DATA / f"{trace}.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            rows.setdefault(int(row["step"]), []).append(row)
    found = []
    for step, workers in rows.items():
        first_s = min(int(row["first_ts_us"]) for row in workers) / 1e6
        last_s = max(int(row["last_end_us"]) for row in workers) / 1e6
        times = {
            (int(row["dp_rank"]), int(row["pp_rank"])): (
                float(row["forward_ms"]) + float(row["backward_ms"])
            )
            / 1e3
            for row in workers
        }
        found.append((step, last_s, last_s - first_s, times))
    return found


def node_of(worker: Worker) -> str:
    """The node of a worker."""
    return f"dp{worker[0]}-pp{worker[1]}"


def rank_of(worker: Worker, trace: str, replicas: int) -> int:
    """Megatron's order: tensor first, then data, then pipeline."""
    data, stage = worker
    return TENSOR[trace] * (data + replicas * stage)


def healed(steps: list[Recorded]) -> list[Recorded]:
    """AR as it would have been with a whole GPU in its slow worker, then AR as it was.

    The slow worker computes as long as its neighbour of the same stage, and a step takes the share
    of its time that the trace's authors give for this repair (23.5 s of 46.3 s).
    """
    before = [
        (step, end_s, step_s * 23.5 / 46.3, {**times, (0, 0): times[1, 0]})
        for step, end_s, step_s, times in steps
    ]
    last, over_s = before[-1][0], before[-1][1] + 10.0
    return [*before, *((last + n, over_s + end_s, took, all_) for n, end_s, took, all_ in steps)]


def log_of(trace: str, steps: list[Recorded]) -> tuple[Arrived, ...]:
    """The whole log of these steps of a trace."""
    workers = sorted(steps[0][3])
    replicas, stages = (1 + max(column) for column in zip(*workers, strict=True))
    tensor = TENSOR[trace]
    held = [
        JobNode(
            node_of(worker),
            ranks=[rank_of(worker, trace, replicas) + at for at in range(tensor)],
            stage=worker[1],
        )
        for worker in workers
    ]
    job = Job(JOB, start=START_S, parallel=Parallel(tp=tensor, pp=stages, dp=replicas), nodes=held)
    log: list[tuple[float, Settings | Allocation | Steps]] = [
        (START_S, Settings(at=START_S, node="", source="engine", started_at=START_S, seq=0,
                           digest=settings_digest(DEFAULTS), engine_version="test",
                           settings=DEFAULTS)),
        (START_S, Allocation(at=START_S, node="", source="scheduler", started_at=START_S, seq=0,
                             jobs=[job], nodes=[NodeInfo(node.name) for node in held])),
    ]  # fmt: skip
    for seq, (step, end_s, step_s, times) in enumerate(steps):
        at_s = START_S + end_s
        log += [
            (at_s, Steps(
                at=at_s, node=node_of(worker), source="training", started_at=START_S, seq=seq,
                job=JOB, ranks=[rank_of(worker, trace, replicas)], step=[step],
                step_time_s=[step_s], compute_time_s=[times[worker]],
            ))
            for worker in workers
        ]  # fmt: skip
    return numbered(log)
