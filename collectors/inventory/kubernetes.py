"""The inventory out of the Kubernetes API: training pods are jobs, nodes are nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from collectors.allocations import read_allocated
from collectors.flat import Flat, dict_of, name_of, text_of
from collectors.inventory.kube_mirror import Object
from collectors.inventory.kube_watch import Collection, Watched
from collectors.inventory.metrics import InventoryMetrics
from collectors.kubernetes import read_document
from collectors.slurm_objects import Place
from telemetry.errors import ListingIncomplete
from telemetry.ports import Clock
from telemetry.records import Allocation, NodeInfo
from telemetry.settings import KubernetesSettings

CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
NO_JOB = ("owner", "pod")  # what pods without an operator's label are named after
OVER = ("Succeeded", "Failed")


class Node(NamedTuple):
    """A node as the parser reads it, and what its labels say."""

    flat: Flat
    info: NodeInfo


class KubernetesInventory:
    """An `InventorySource` over watches: `listing` asks nobody, it says what they hold.

    nodes, pods   what to watch; pods may be of several namespaces
    """

    def __init__(
        self, nodes: Collection, pods: Sequence[Collection], settings: KubernetesSettings,
        clock: Clock, metrics: InventoryMetrics,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._clock = clock
        self._nodes = Watched(nodes, node_reader(settings), metrics)
        self._pods = [Watched(one, pod_reader(settings.job_labels), metrics) for one in pods]
        self._is_started = False

    def listing(self) -> Allocation:
        """Raises SourceUnavailable while one of the watches does not stand, ListingIncomplete."""
        self._start()
        nodes = self._nodes.objects()
        pods = [pod for watched in self._pods for pod in watched.objects()]
        return allocation(nodes, pods, self._clock.time_s())

    def close(self) -> None:
        """End the watches."""
        for watched in self._all():
            watched.close()

    def _all(self) -> list[Watched[Node] | Watched[Flat]]:
        return [self._nodes, *self._pods]

    def _start(self) -> None:
        """Once; waits for the first answers."""
        if self._is_started:
            return
        self._is_started = True
        for watched in self._all():
            watched.start()
        until_s = self._clock.monotonic_s() + self._settings.timeout_s
        for watched in self._all():
            watched.wait(max(until_s - self._clock.monotonic_s(), 0.0))


def allocation(nodes: list[Node], pods: list[Flat], at_s: float) -> Allocation:
    """Who works where. Raises ListingIncomplete where there is no node. Pure."""
    if not nodes:
        raise ListingIncomplete("nodes: no node in it: a cluster has nodes")
    said = read_allocated([*(node.flat for node in nodes), *pods])
    if said.partial:
        raise ListingIncomplete(said.partial[0])
    places = {node.info.name: node.info for node in nodes}
    return Allocation(
        at=at_s, node="", source="inventory", started_at=0.0, seq=0,
        jobs=list(said.jobs.values()),
        nodes=[
            replace(places[name], state=info.state, owner=info.owner) if name in places else info
            for name, info in sorted(said.nodes.items())
        ],
    )  # fmt: skip


def node_reader(settings: KubernetesSettings) -> Callable[[Object], Node | None]:
    """Raises ListingIncomplete where an object is no node."""

    def read(one: Object) -> Node:
        flat = _flat(one, "Node")
        labels = dict_of(dict_of(one.get("metadata")).get("labels"))
        info = NodeInfo(
            name=flat["name"], rack=_first(labels, settings.rack_labels),
            leaf=_first(labels, settings.leaf_labels), pod=_first(labels, settings.pod_labels),
            protected=any(label in labels for label in CONTROL_PLANE),
        )  # fmt: skip
        return Node(flat, info)

    return read


def pod_reader(job_labels: Sequence[str]) -> Callable[[Object], Flat | None]:
    """Training pods only: with a job's label, or with GPUs. Daemons of the node are none."""

    def read(one: Object) -> Flat | None:
        flat = _flat(one, "Pod")
        labels = dict_of(dict_of(one.get("metadata")).get("labels"))
        own = _first(labels, job_labels)
        if own:
            flat = {**flat, "job": f"{flat['namespace']}/{own}", "job_kind": "label"}
        if not flat["node"] or (flat["job_kind"] in NO_JOB and not flat["gpus"]):
            return None
        # One that was evicted is over and does not say since when: it is gone.
        return None if flat["phase"] in OVER and flat["end"] is None else flat

    return read


def _flat(one: Object, kind: str) -> Flat:
    """The items of a list do not say their kind."""
    found = list(read_document(Place(f"{kind.lower()}s", "API"), {**one, "kind": kind}, 0) or ())
    if len(found) != 1 or found[0]["type"] == "rejected":
        raise ListingIncomplete(found[0]["reason"] if found else f"an object that is no {kind}")
    return found[0]


def _first(labels: Object, names: Sequence[str]) -> str:
    return next((name_of(text_of(labels[name], 253)) for name in names if labels.get(name)), "")
