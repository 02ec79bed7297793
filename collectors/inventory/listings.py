"""A listing into records: cut into parts, and what differs from the one before. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from telemetry.records import Allocation, Job, JobNode, NodeInfo

_EMPTY_BYTES = 400  # a record's header and brackets


class Part(msgspec.Struct):
    """What one record holds."""

    jobs: list[Job] = []
    nodes: list[NodeInfo] = []


class Change(msgspec.Struct):
    """What differs between two listings.

    whole  it cannot be said as a change: nodes are gone, or a job is too large for one record
    """

    jobs: list[Job]
    nodes: list[NodeInfo]
    whole: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return not (self.jobs or self.nodes or self.whole)


def parts(jobs: list[Job], nodes: list[NodeInfo], part_bytes: int) -> list[Part]:
    """Jobs and nodes in their order, in parts of at most `part_bytes`; at least one part.

    A job that is larger goes on in the next parts with the rest of its nodes.
    """
    cut = [Part(jobs=[], nodes=[])]
    left = part_bytes - _EMPTY_BYTES
    for item in _pieces(jobs, nodes, left):
        size = _size(item)
        if size > left and (cut[-1].jobs or cut[-1].nodes):
            cut.append(Part(jobs=[], nodes=[]))
            left = part_bytes - _EMPTY_BYTES
        left -= size
        if isinstance(item, Job):
            cut[-1].jobs.append(item)
        else:
            cut[-1].nodes.append(item)
    return cut


def change(before: Allocation, after: Allocation, at_s: float, part_bytes: int) -> Change:
    """What `after` says anew; jobs that are gone end at `at_s`, Unix seconds."""
    old_jobs = {job.id: job for job in before.jobs}
    new_jobs = {job.id: job for job in after.jobs}
    jobs = [job for job in new_jobs.values() if old_jobs.get(job.id) != job]
    jobs += [_ended(job, at_s) for job in old_jobs.values() if job.id not in new_jobs]
    old_nodes = {node.name: node for node in before.nodes}
    nodes = [node for node in after.nodes if old_nodes.get(node.name) != node]
    gone = old_nodes.keys() - {node.name for node in after.nodes}
    large = any(_size(job) > part_bytes - _EMPTY_BYTES for job in jobs)
    return Change(jobs, nodes, whole=bool(gone) or large)


def _ended(job: Job, at_s: float) -> Job:
    end = at_s if job.end is None else min(job.end, at_s)
    nodes = [
        replace(node, until=end if node.until is None else min(node.until, end))
        for node in job.nodes
    ]
    return replace(job, end=end, nodes=nodes)


def _pieces(jobs: list[Job], nodes: list[NodeInfo], room: int) -> Iterator[Job | NodeInfo]:
    for job in jobs:
        yield from (job,) if _size(job) <= room else _split(job, room)
    yield from nodes


def _split(job: Job, room: int) -> Iterator[Job]:
    """The job with its first nodes, then the same job with the next ones."""
    left = room - _size(replace(job, nodes=[]))
    some: list[JobNode] = []
    used = 0
    for node in job.nodes:
        size = _size(node)
        if some and used + size > left:
            yield replace(job, nodes=some)
            some, used = [], 0
        some.append(node)
        used += size
    yield replace(job, nodes=some)


def _size(item: Job | NodeInfo | JobNode) -> int:
    return len(msgspec.json.encode(item)) + 1
