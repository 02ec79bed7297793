"""Slurm's listings into one `Allocation`, whichever way they came. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from collectors.allocations import read_allocated
from collectors.flat import Flat
from collectors.inventory.reservations import of_nodes
from collectors.inventory.topology import Where
from telemetry.errors import ListingIncomplete
from telemetry.records import Allocation, Maintenance


def allocation(
    nodes: list[Flat], jobs: list[Flat], places: Mapping[str, Where], partitions: Collection[str],
    at_s: float, maintenance: Iterable[Maintenance] = (),
) -> Allocation:  # fmt: skip
    """Who works where.

    nodes, jobs  whole answers (`whole`)
    partitions   only their nodes and jobs; empty for all
    Raises ListingIncomplete where they name no node in those partitions.
    """
    if partitions:
        nodes = [node for node in nodes if set(node["partitions"]) & set(partitions)]
        jobs = [job for job in jobs if set(job["partition"].split(",")) & set(partitions)]
        if not nodes:
            raise ListingIncomplete(f"no node in partition {', '.join(sorted(partitions))}")
    said = read_allocated([*nodes, *jobs])
    if said.partial:
        raise ListingIncomplete(said.partial[0])
    nowhere = Where()
    return Allocation(
        at=at_s, node="", source="inventory", started_at=0.0, seq=0,
        jobs=list(said.jobs.values()),
        nodes=[
            replace(info, **places.get(name, nowhere)._asdict())
            for name, info in sorted(said.nodes.items())
        ],
        maintenance=of_nodes(maintenance, said.nodes),
    )  # fmt: skip
