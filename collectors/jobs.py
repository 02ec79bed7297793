"""`jobs.json` of a capture into one complete allocation listing. Pure."""

from __future__ import annotations

import msgspec

from telemetry.codec import AT_MAX_S, AT_MIN_S, name_fault
from telemetry.errors import InputError
from telemetry.records import Allocation, Job, JobNode, NodeInfo, Parallel

LISTING = "jobs.json"
REMEDY = 'it holds {"jobs": [{"id": "4711", "nodes": ["n1", "n2"]}]}, see README, Replay'


class _Job(msgspec.Struct):
    id: str | int
    nodes: list[str]
    name: str = ""
    start: float | None = None
    end: float | None = None
    gpus_per_node: int | None = None
    parallel: Parallel | None = None
    ranks: dict[str, list[int]] = {}
    stages: dict[str, int] = {}


class _Where(msgspec.Struct):
    rack: str = ""
    leaf: str = ""
    pod: str = ""


class _File(msgspec.Struct):
    jobs: list[_Job] = []
    topology: dict[str, _Where] = {}


def read_jobs(data: bytes, place: str, at_s: float) -> Allocation:
    """The listing, in force from `at_s`; `InputError` with `place` where the file is not one."""
    try:
        said = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{place}: {error}; {REMEDY}") from error
    for job in said.jobs:
        _check(job, place)
    names = sorted({node for job in said.jobs for node in job.nodes} | set(said.topology))
    for name in names:
        fault = name_fault("node", name) if name else "node: empty"
        if fault is not None:
            raise InputError(f"{place}: {fault}; {REMEDY}")
    nowhere = _Where()
    return Allocation(
        at=at_s, node="", source="inventory", started_at=0.0, seq=0,
        jobs=[_job(job) for job in said.jobs],
        nodes=[_node(name, said.topology.get(name, nowhere)) for name in names],
        listing=LISTING, last=True, count=1,
    )  # fmt: skip


def _check(job: _Job, place: str) -> None:
    if job.id == "":
        raise InputError(f"{place}: a job's id is empty; {REMEDY}")
    strange = sorted((set(job.ranks) | set(job.stages)) - set(job.nodes))
    if strange:
        raise InputError(
            f"{place}: job {job.id}: ranks or stages of {strange[0]!r}, which is none of its nodes;"
            " add it to nodes or take it out"
        )
    for name, at_s in (("start", job.start), ("end", job.end)):
        if at_s is not None and not AT_MIN_S <= at_s < AT_MAX_S:
            raise InputError(f"{place}: job {job.id}: {name} {at_s} is no time in Unix seconds")


def _job(job: _Job) -> Job:
    return Job(
        id=str(job.id), name=job.name, start=job.start, end=job.end,
        gpus_per_node=job.gpus_per_node, parallel=job.parallel,
        nodes=[
            JobNode(
                name=name, since=job.start, until=job.end,
                ranks=job.ranks.get(name, []), stage=job.stages.get(name),
            )
            for name in dict.fromkeys(job.nodes)
        ],
    )  # fmt: skip


def _node(name: str, where: _Where) -> NodeInfo:
    return NodeInfo(name=name, rack=where.rack, leaf=where.leaf, pod=where.pod)
