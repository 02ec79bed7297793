"""Who works where: jobs, nodes and their places, as the log last said; the detectors' `View`."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from detectors.base import Place
from streams import codes
from streams.codes import Codes
from streams.identities import Identities
from telemetry.records import Allocation, Hardware, Job, JobNode, NodeInfo, Port

NOWHERE = Place(job="", stage=None, leaf="", rack="", pod="")
OUT_OF_SERVICE = ("drain", "down", "fail", "gone", "maint", "reboot", "power")
LISTING_RECORDS_MAX = 10_000
PLACES_MAX = 100_000
JOB_NODES_MAX = 64
NODES_MAX = 50_000  # names that spoke without being listed are strangers beyond it


class Listing(msgspec.Struct):
    """A full listing that is still being read."""

    id: str = ""
    parts: int = 0
    count: int = 0  # of its parts, 0 until the last one told
    jobs: list[Job] = []
    nodes: list[NodeInfo] = []


class InventoryState(msgspec.Struct):
    """What a snapshot keeps of it."""

    jobs: list[Job]
    nodes: list[NodeInfo]
    hardware: list[Hardware]
    heard: dict[str, float]
    listing: Listing
    codes: Codes = {}


class Inventory:
    """Jobs and nodes; `version` rises with each change, so that readers may cache."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._nodes: dict[str, NodeInfo] = {}
        self._hardware: dict[str, Hardware] = {}
        self._heard: dict[str, float] = {}
        self._listing = Listing()
        self._by_node: dict[str, list[tuple[Job, JobNode]]] = {}
        self._leaves: dict[str, list[str]] = {}
        self._ranks: dict[str, dict[int, str]] = {}
        self._identities = Identities()
        self._changes: list[float] = []
        self._places: dict[tuple[str, int], Place] = {}  # by node and changes that lie behind
        self._job_nodes: dict[tuple[str, int], list[str]] = {}  # as the places
        self._out_of_service: set[str] = set()
        self._codes: Codes = {}
        self.version = 0
        self.patience: dict[str, float] = {}

    # -- what the log says

    def allocate(self, record: Allocation) -> None:
        """A change, or a part of a full listing: an incomplete listing changes nothing."""
        if not record.listing:
            codes.take(self._codes, record.jobs)
            self._jobs.update((job.id, job) for job in record.jobs)
            self._nodes.update((node.name, node) for node in record.nodes)
            self._reindex()
            return
        if record.listing != self._listing.id:
            self._listing = Listing(id=record.listing, jobs=[], nodes=[])
        listing = self._listing
        if listing.parts >= LISTING_RECORDS_MAX:
            return
        listing.parts += 1
        _extend(listing.jobs, record.jobs)
        listing.nodes.extend(record.nodes)
        listing.count = max(listing.count, record.count if record.last else 0)
        if listing.parts == listing.count:
            codes.take(self._codes, listing.jobs)
            self._jobs = {job.id: job for job in listing.jobs}
            self._nodes = {node.name: node for node in listing.nodes}
            self._listing = Listing(jobs=[], nodes=[])
            self._reindex()

    def equip(self, record: Hardware) -> None:
        """What a node is made of."""
        if record.node in self._hardware or len(self._hardware) < NODES_MAX:
            self._hardware[record.node] = record
            self._identities.take(record)

    def hear(self, node: str, arrival: float) -> None:
        """The node spoke."""
        if node in self._heard or node in self._nodes or len(self._heard) < NODES_MAX:
            self._heard[node] = arrival

    def _reindex(self) -> None:
        self.version += 1
        self._by_node = {}
        for _, job in sorted(self._jobs.items()):
            for held in job.nodes:
                self._by_node.setdefault(held.name, []).append((job, held))
        self._changes = sorted(
            {
                time
                for job in self._jobs.values()
                for time in (
                    job.start,
                    job.end,
                    *(t for n in job.nodes for t in (n.since, n.until)),
                )
                if time is not None
            }
        )
        self._places = {}
        self._ranks = {}
        self._leaves = {}
        self._job_nodes = {}
        self._out_of_service = {name for name, info in self._nodes.items() if _is_out(info)}
        for name, info in sorted(self._nodes.items()):
            if info.leaf:
                self._leaves.setdefault(info.leaf, []).append(name)

    # -- what the detectors read

    def place(self, node: str, at_s: float) -> Place:
        """Where `node` belongs at `at_s`."""
        key = (node, bisect_right(self._changes, at_s))
        place = self._places.get(key)
        if place is None:
            if len(self._places) >= PLACES_MAX:
                self._places.clear()
            place = self._places[key] = self._place(node, at_s)
        return place

    def _place(self, node: str, at_s: float) -> Place:
        info = self._nodes.get(node)
        held = self._held(node, at_s)
        if info is None and held is None:
            return NOWHERE
        return Place(
            job=held[0].id if held else "",
            stage=held[1].stage if held else None,
            leaf=info.leaf if info else "",
            rack=info.rack if info else "",
            pod=info.pod if info else "",
        )

    def _held(self, node: str, at_s: float) -> tuple[Job, JobNode] | None:
        for job, held in self._by_node.get(node, ()):
            since = held.since if held.since is not None else job.start
            until = held.until if held.until is not None else job.end
            if (since is None or since <= at_s) and (until is None or at_s < until):
                return job, held
        return None

    def next_change_s(self, at_s: float) -> float:
        """The next moment at which a job takes or leaves a node; infinity if none is known."""
        place = bisect_right(self._changes, at_s)
        return self._changes[place] if place < len(self._changes) else math.inf

    def job_nodes(self, job: str, at_s: float) -> Sequence[str]:
        """The job's nodes at `at_s`, sorted by name."""
        known = self._jobs.get(job)
        if known is None:
            return ()
        key = (job, bisect_right(self._changes, at_s))
        nodes = self._job_nodes.get(key)
        if nodes is None:
            if len(self._job_nodes) >= JOB_NODES_MAX:
                self._job_nodes.clear()
            names = {held.name for held in known.nodes}
            nodes = sorted(name for name in names if self.place(name, at_s).job == job)
            self._job_nodes[key] = nodes
        return nodes

    def gpus_per_node(self, job: str) -> int | None:
        """How many GPUs the job has on each node, None where nobody said."""
        known = self._jobs.get(job)
        return None if known is None else known.gpus_per_node

    def code_changed_at(self, job: str) -> float | None:
        """When the job's code changed last, None where nobody knows."""
        return codes.changed_at(self._codes, job)

    def running_jobs(self, at_s: float) -> Sequence[tuple[str, float | None, int]]:
        """The jobs that hold nodes at `at_s`: (id, start where known, attempt), by id."""
        return [
            (job.id, job.start, job.attempt)
            for _, job in sorted(self._jobs.items())
            if (job.start is None or job.start <= at_s) and (job.end is None or at_s < job.end)
        ]

    def leaf_nodes(self, leaf: str) -> Sequence[str]:
        """The nodes behind a leaf switch, sorted by name."""
        return self._leaves.get(leaf, ())

    def rank_node(self, job: str, rank: int) -> str:
        """The node that runs `rank`, "" where unknown."""
        known = self._ranks.get(job)
        if known is None:
            nodes = self._jobs[job].nodes if job in self._jobs else ()
            known = {r: held.name for held in nodes for r in held.ranks}
            self._ranks[job] = known
        return known.get(rank, "")

    def info(self, node: str) -> NodeInfo | None:
        """What the scheduler says of the node."""
        return self._nodes.get(node)

    def infos(self) -> Mapping[str, NodeInfo]:
        """What the scheduler says of each node that it lists."""
        return self._nodes

    def port(self, node: str, name: str) -> Port | None:
        """What the node's hardware record says of a NIC port."""
        record = self._hardware.get(node)
        ports = () if record is None else record.ports
        return next((port for port in ports if port.name == name), None)

    def named(self, name: str) -> str:
        """The node that goes by this name or alias."""
        if name in self._nodes or name in self._hardware:
            return name
        return self._identities.node_of(name)

    def device(self, node: str, entity: str) -> str:
        """What the part keeps through boots and renames, "" where unknown."""
        return self._identities.device(node, entity, self._heard)

    def holds(self, node: str, device: str) -> bool:
        """Whether the node's newest hardware record lists this device."""
        return self._identities.holds(node, device)

    def hardware(self, node: str) -> Hardware | None:
        """What the node is made of."""
        return self._hardware.get(node)

    def in_service(self, node: str) -> bool:
        """Whether the node is expected to work: neither drained nor gone."""
        info = self._nodes.get(node)
        if info is None:
            return not self._nodes or node in self._by_node
        return node not in self._out_of_service

    def reporting(self) -> Sequence[str]:
        """The nodes that ever spoke and are expected to work, sorted by name."""
        return sorted(node for node in self._heard if self.in_service(node))

    def expected(self) -> Sequence[str]:
        """Every node that should report: listed and in service, or heard."""
        return sorted(
            node for node in self._nodes.keys() | self._heard.keys() if self.in_service(node)
        )

    def known(self) -> set[str]:
        """Every node that was ever listed or heard."""
        return self._nodes.keys() | self._heard.keys() | self._by_node.keys()

    def last_heard_s(self, node: str) -> float | None:
        """Arrival of the newest record of the node."""
        return self._heard.get(node)

    def patience_s(self, node: str) -> float:
        """How long the node may be quiet before silence proves something."""
        return self.patience.get(node, 0.0)

    def lists(self, job: str) -> bool:
        """Whether the job is among those that were said last."""
        return job in self._jobs

    def has_jobs(self) -> bool:
        """Whether anybody ever said what runs where."""
        return bool(self._jobs)

    def unlisted(self, nodes: Iterable[str]) -> list[str]:
        """Which of these no listing ever named; none where there was no listing."""
        if not self._nodes and not self._by_node:
            return []
        return sorted(n for n in nodes if n not in self._nodes and n not in self._by_node)

    def protected(self) -> list[str]:
        """Nodes that are never isolated."""
        return sorted(name for name, info in self._nodes.items() if info.protected)

    def gone(self, unlisted_since: float, since: float) -> frozenset[str]:
        """Who is unlisted and silent since the first; where nobody lists, since the second."""
        limit = unlisted_since if self._nodes or self._by_node else since
        return frozenset(
            node
            for node, heard in self._heard.items()
            if heard < limit and node not in self._nodes and node not in self._by_node
        )

    def forget(self, nodes: frozenset[str]) -> None:
        """Nobody ever heard these."""
        for node in nodes:
            self._heard.pop(node, None)
            self.patience.pop(node, None)
            self._hardware.pop(node, None)

    # -- snapshots

    def snapshot(self) -> InventoryState:
        """Everything, to be handed to `restore`."""
        return InventoryState(
            jobs=list(self._jobs.values()),
            nodes=list(self._nodes.values()),
            hardware=list(self._hardware.values()),
            heard=dict(self._heard),
            listing=self._listing,
            codes=dict(self._codes),
        )

    def restore(self, state: InventoryState) -> None:
        """Resume from `snapshot()`."""
        self._jobs = {job.id: job for job in state.jobs}
        self._nodes = {node.name: node for node in state.nodes}
        self._hardware = {record.node: record for record in state.hardware}
        self._identities = Identities()
        for record in state.hardware:
            self._identities.take(record)
        self._heard = dict(state.heard)
        self._listing = state.listing
        self._codes = dict(state.codes)
        self._reindex()


def _extend(jobs: list[Job], more: list[Job]) -> None:
    """A job too large for one record goes on in the next part: its nodes add up."""
    places = {job.id: place for place, job in enumerate(jobs)}
    for job in {job.id: job for job in more}.values():
        place = places.get(job.id)
        if place is None:
            jobs.append(job)
        else:
            nodes = [*jobs[place].nodes, *job.nodes]
            jobs[place] = msgspec.structs.replace(jobs[place], nodes=nodes)


def _is_out(info: NodeInfo) -> bool:
    state = info.state.lower()
    return any(word in state for word in OUT_OF_SERVICE)
