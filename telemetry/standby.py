"""Which nodes could take the place of those that go: idle ones with as many GPUs. Pure.

Unknown is no number: without a scheduler that says what each node does, or where nobody says what
the job's nodes are made of, nobody knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from telemetry.records import NodeInfo

# As the readers of Slurm and Kubernetes write them; a node with a further word waits for something.
FREE = frozenset({"IDLE", "READY"})
AT_WORK = frozenset({"ALLOCATED", "MIXED"})


def free_nodes(
    nodes: Mapping[str, NodeInfo], gpus: Mapping[str, int], job_nodes: Collection[str],
    taken: Collection[str],
) -> list[str] | None:  # fmt: skip
    """Idle, unprotected nodes of the job's pods, sorted by name; None where nobody knows.

    nodes      what the scheduler says, by name
    gpus       node -> how many GPUs its agent says it has
    job_nodes  of the job that needs others; where their pods are known, others are of one of them
    taken      nodes that hold a job, are under suspicion or blind
    """
    wanted = max((gpus.get(node, 0) for node in job_nodes), default=0)
    if wanted == 0 or not _says_who_works(nodes.values()):
        return None
    pods = {nodes[node].pod for node in job_nodes if node in nodes} - {""}
    return sorted(
        name
        for name, info in nodes.items()
        if info.state in FREE and not info.protected and name not in taken
        and gpus.get(name, 0) >= wanted and (not pods or info.pod in pods)
    )  # fmt: skip


def _says_who_works(nodes: Iterable[NodeInfo]) -> bool:
    return any(info.state.partition("+")[0] in FREE | AT_WORK for info in nodes)
