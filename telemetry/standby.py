"""Which nodes could take the place of those that go: idle ones with as many GPUs. Pure.

Unknown is no number: without a scheduler that says what each node does, or where nobody says what
the job's nodes are made of, nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice

from telemetry.records import NodeInfo

# As the readers of Slurm and Kubernetes write them; a node with a further word waits for something.
FREE = frozenset({"IDLE", "READY"})
ALIKE_MAX = 64  # nodes of a job that are asked for their GPUs: a job's nodes are alike
AT_WORK = frozenset({"ALLOCATED", "MIXED"})


def free_nodes(
    nodes: Mapping[str, NodeInfo], gpus: Callable[[str], int], job_nodes: Collection[str],
    is_taken: Callable[[str], bool],
) -> list[str] | None:  # fmt: skip
    """Idle, unprotected nodes of the job's pods, sorted by name; None where nobody knows.

    nodes      what the scheduler says, by name
    gpus       how many GPUs a node's agent says it has, 0 where it never said
    job_nodes  of the job that needs others; where their pods are known, others are of one of them
    is_taken   whether a node holds a job, is under suspicion or blind; asked of idle nodes only
    """
    wanted = max(map(gpus, islice(job_nodes, ALIKE_MAX)), default=0)
    if wanted == 0 or not _says_who_works(nodes.values()):
        return None
    pods = {nodes[node].pod for node in job_nodes if node in nodes} - {""}
    return sorted(
        name
        for name, info in nodes.items()
        if info.state in FREE and not info.protected and gpus(name) >= wanted
        and (not pods or info.pod in pods) and not is_taken(name)
    )  # fmt: skip


def _says_who_works(nodes: Iterable[NodeInfo]) -> bool:
    return any(info.state.partition("+")[0] in FREE | AT_WORK for info in nodes)
