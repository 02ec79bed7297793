"""Whose column a series is: node and source, or training job, as its labels name them. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

from collectors.frames import TRAINING
from collectors.names import NodeNames
from collectors.series import Series
from collectors.spill import Column, Target

JOB_LABELS = ("job_id", "slurm_job_id", "slurm_jobid", "job_name", "job")
_RANK = re.compile(r"[0-9]{1,7}")


def place_of(
    series: Series, names: NodeNames, jobs: Collection[str]
) -> tuple[Target, Column] | None:
    """Where the values of a series go; None where no label names a node.

    jobs   ids of the jobs that are known
    """
    if series.metric is None:
        return _gauge(series, names, jobs)
    node = names.of_labels(series.labels)
    if node is None:
        return None
    metric = series.metric
    return Target(node, metric.source), Column(metric.device, metric.name, series.entity)


def _gauge(series: Series, names: NodeNames, jobs: Collection[str]) -> tuple[Target, Column]:
    rank, job = series.labels.get("rank", ""), _job(series, jobs)
    if not _RANK.fullmatch(rank):
        return Target("", TRAINING, job), Column("", series.column, "")
    node = names.of_labels(series.labels) or ""
    return Target(node, TRAINING, job), Column("", series.column, str(int(rank)))


def _job(series: Series, jobs: Collection[str]) -> str:
    """The job of a training gauge: a label that names one, else the only one there is."""
    said = [series.labels.get(label, "") for label in JOB_LABELS]
    for name in said:
        if name in jobs:
            return name
    if len(jobs) == 1:
        return next(iter(jobs))
    return next((name for name in said if name), "")
