"""`jobs.json` of a capture into one complete allocation listing. Pure."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from collectors.switch.forms import port_name
from telemetry.codec import AT_MAX_S, AT_MIN_S, name_fault
from telemetry.errors import InputError
from telemetry.records import Allocation, Job, JobNode, NodeInfo, Parallel

LISTING = "jobs.json"
KEY_MAX = 80
_RDMA = re.compile(r"(?:mlx[45]_|bnxt_re|irdma|hfi1_|hns_|efa_|erdma_|qedr)\d{1,4}")
REMEDY = 'it holds {"jobs": [{"id": "4711", "nodes": ["n1", "n2"]}]}, see README, Replay'


class _Job(msgspec.Struct):
    id: str | int
    nodes: list[str]
    name: str = ""
    start: float | None = None
    end: float | None = None
    gpus_per_node: int | None = None
    parallel: Parallel | None = None
    code: str = ""
    ranks: dict[str, list[int]] = {}
    stages: dict[str, int] = {}


class _Where(msgspec.Struct):
    rack: str = ""
    leaf: str = ""
    pod: str = ""
    ports: dict[str, str] = {}


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


Wiring = dict[str, dict[str, tuple[str, str]]]
"""Switch -> its port -> (node, NIC)."""


def read_ports(data: bytes, place: str) -> Wiring:
    """Which NIC is behind which switch port, by the topology's `ports` of a file that `read_jobs`
    takes: `"n1": {"ports": {"leaf1:Ethernet12": "mlx5_0"}}`; `InputError` where it is no wiring.
    """
    wiring: Wiring = {}
    for node, where in msgspec.json.decode(data, type=_File).topology.items():
        for plug, nic in where.ports.items():
            switch, colon, port = plug.partition(":")
            fault = name_fault("port", plug) or name_fault("NIC", nic)
            if fault is not None or not (colon and switch.strip() and port.strip() and nic.strip()):
                raise InputError(
                    f"{place}: topology: {node}: {fault or f'{plug!r} is no port'};"
                    ' ports are {"leaf1:Ethernet12": "mlx5_0"}'
                )
            known = wiring.setdefault(switch.strip(), {})
            if known.setdefault(port_name(port), (node, _nic(nic)))[0] != node:
                raise InputError(
                    f"{place}: topology: port {plug!r} is at {node} and at"
                    f" {known[port_name(port)][0]}; a port leads to one node"
                )
    return wiring


def unknown_keys(data: bytes) -> list[str]:
    """Keys of a file that `read_jobs` takes which nobody reads, as "jobs.gpus", sorted."""
    said = msgspec.json.decode(data)
    found = _strange("", said, _File)
    for job in said.get("jobs", []):
        found |= _strange("jobs.", job, _Job)
        if isinstance(job.get("parallel"), dict):
            found |= _strange("jobs.parallel.", job["parallel"], Parallel)
    for where in said.get("topology", {}).values():
        found |= _strange("topology.<node>.", where, _Where)
    return sorted(found)


def _strange(where: str, said: dict[str, Any], form: type[msgspec.Struct]) -> set[str]:
    return {f"{where}{key}"[:KEY_MAX] for key in said if key not in form.__struct_fields__}


def _nic(name: str) -> str:
    """As kernels and sysfs name it: an RDMA device has ports, from 1."""
    bare = name.strip()
    return f"{bare}/1" if _RDMA.fullmatch(bare) else bare


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
        gpus_per_node=job.gpus_per_node, parallel=job.parallel, code=job.code,
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
