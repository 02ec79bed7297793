"""How many nodes could take the place of those that go: idle ones that nobody suspects. Pure.

Unknown is no number: without a scheduler that says what each node does, or where nobody says what
the job's nodes are made of, nobody knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from streams.inventory import Inventory
from telemetry.findings import Incident
from telemetry.records import NodeInfo

if TYPE_CHECKING:
    from streams.fold import Fold

# As the readers of Slurm and Kubernetes write them; a node with a further word waits for something.
FREE = frozenset({"IDLE", "READY"})
AT_WORK = frozenset({"ALLOCATED", "MIXED"})


def replacements(
    fold: Fold, job_nodes: Sequence[str], blind: Collection[str]
) -> int | None:  # fmt: skip
    """Idle, unprotected nodes of the job's pods with as many GPUs, neither suspect nor blind.

    job_nodes  of the incident's job
    blind      nodes that should report and do not
    """
    inventory = fold.inventory
    gpus = max((_gpus(inventory, node) for node in job_nodes), default=0)
    infos = inventory.infos()
    if gpus == 0 or not _says_who_works(infos):
        return None
    pods = {inventory.place(node, fold.now).pod for node in job_nodes} - {""}
    out = {*blind, *_suspects(fold.judge.docket.incidents.values())}
    return sum(
        info.state in FREE and not info.protected and info.name not in out
        and (not pods or info.pod in pods) and _gpus(inventory, info.name) >= gpus
        and not inventory.place(info.name, fold.now).job
        for info in infos
    )  # fmt: skip


def _says_who_works(infos: Iterable[NodeInfo]) -> bool:
    return any(info.state.partition("+")[0] in FREE | AT_WORK for info in infos)


def _gpus(inventory: Inventory, node: str) -> int:
    """0 where its agent never said."""
    known = inventory.hardware(node)
    return 0 if known is None else len(known.gpus)


def _suspects(incidents: Iterable[Incident]) -> set[str]:
    """Of what is open."""
    return {suspect.node for one in incidents if one.closed_at is None for suspect in one.suspects}
