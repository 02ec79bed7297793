"""How many nodes could take the place of those that go, as the fold knows it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from telemetry.findings import Incident
from telemetry.standby import free_nodes

if TYPE_CHECKING:
    from streams.fold import Fold


def replacements(fold: Fold, job_nodes: Sequence[str], blind: Collection[str]) -> int | None:
    """Free nodes that are neither suspect nor blind; None where nobody knows.

    job_nodes  of the incident's job
    blind      nodes that should report and do not
    """
    inventory = fold.inventory

    @cache  # a storm asks for each of its incidents, and mostly there is no idle node
    def out() -> set[str]:
        return {*blind, *_suspects(fold.judge.docket.incidents.values())}

    def gpus(node: str) -> int:
        known = inventory.hardware(node)
        return 0 if known is None else len(known.gpus)

    def is_taken(node: str) -> bool:
        return node in out() or bool(inventory.place(node, fold.now).job)

    free = free_nodes(inventory.infos(), gpus, job_nodes, is_taken)
    return None if free is None else len(free)


def _suspects(incidents: Iterable[Incident]) -> set[str]:
    """Of what is open."""
    return {suspect.node for one in incidents if one.closed_at is None for suspect in one.suspects}
