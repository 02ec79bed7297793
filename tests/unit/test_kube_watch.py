"""Watches of Kubernetes: the mirror is what the server holds, whatever breaks on the way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.inventory.kube_mirror import Mirror, Object
from collectors.inventory.kube_watch import VersionGone, Watched
from collectors.inventory.kubernetes import allocation, node_reader, pod_reader
from collectors.inventory.metrics import InventoryMetrics
from telemetry.errors import ListingIncomplete, SourceUnavailable
from telemetry.settings import KubernetesSettings

WAIT_MAX_S = 20.0


def thing(name: str, version: int, **more: Any) -> Object:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, **more}


def name_of(one: Object) -> str | None:
    name = str(one["metadata"]["name"])
    return None if one.get("hidden") else name


EVENTS = st.lists(
    st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), st.sampled_from("abc")),
    max_size=20,
)


@given(EVENTS)
def test_events_change_the_mirror_as_they_changed_the_server(events: list[tuple[str, str]]) -> None:
    mirror, held = Mirror(name_of), {"a"}
    mirror.replace([thing("a", 1)], "1")
    for version, (kind, name) in enumerate(events, start=2):
        mirror.apply(kind, thing(name, version))
        held = held - {name} if kind == "DELETED" else held | {name}
        assert str(version) == mirror.version
    assert sorted(held) == mirror.objects()


def test_a_bookmark_moves_the_version_and_nothing_else() -> None:
    mirror = Mirror(name_of)
    mirror.replace([thing("a", 1)], "1")
    mirror.apply("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    assert ("9", ["a"]) == (mirror.version, mirror.objects())


def test_what_is_no_longer_of_interest_leaves() -> None:
    mirror = Mirror(name_of)
    mirror.replace([thing("a", 1)], "1")
    mirror.apply("MODIFIED", thing("a", 2, hidden=True))
    assert [] == mirror.objects()


@pytest.mark.parametrize(
    ("kind", "one"),
    [("ADDED", {}), ("ADDED", {"metadata": {"resourceVersion": "3"}}), ("WHAT", thing("b", 3))],
)
def test_an_event_that_cannot_be_read_is_a_gap(kind: str, one: Object) -> None:
    mirror = Mirror(name_of)
    mirror.replace([thing("a", 1)], "1")
    with pytest.raises(ListingIncomplete):
        mirror.apply(kind, one)
    assert ("1", ["a"]) == (mirror.version, mirror.objects())
    with pytest.raises(ListingIncomplete):
        mirror.replace([thing("b", 2)], "")
    assert ["a"] == mirror.objects()


class Server:
    """A collection whose pages and watches a test writes; the last watch stays open."""

    name = "things"

    def __init__(self, pages: list[Any], watches: list[list[Any]]) -> None:
        self._pages, self._watches = pages, watches
        self._closed = threading.Event()
        self.versions: list[str] = []

    def page(self, go_on: str) -> dict[str, Any]:
        said = self._pages.pop(0)
        if isinstance(said, Exception):
            raise said
        assert isinstance(said, dict)
        return said

    def events(self, version: str, opened: Callable[[], None]) -> Iterator[tuple[str, Object]]:
        self.versions.append(version)
        said = self._watches.pop(0) if self._watches else None
        if said is None:
            opened()
            self._closed.wait(WAIT_MAX_S)
            return
        for event in said:
            if isinstance(event, Exception):
                raise event
            opened()
            yield event

    def close(self) -> None:
        self._closed.set()


def page(*names: str, version: int, go_on: str = "") -> dict[str, Any]:
    meta = {"resourceVersion": str(version), "continue": go_on}
    return {"metadata": meta, "items": [thing(name, version) for name in names]}


def settled(server: Server, wanted: list[str], metrics: InventoryMetrics | None = None) -> None:
    """The mirror of `server` holds `wanted` at last."""
    watched = Watched(server, name_of, metrics or InventoryMetrics())
    watched.start()
    end_s = time.monotonic() + WAIT_MAX_S
    found: object = None
    while time.monotonic() < end_s and found != wanted:
        try:
            found = watched.objects()
        except SourceUnavailable as error:
            found = error
        time.sleep(0.01)
    watched.close()
    assert wanted == found


def test_pages_add_up_and_the_watch_begins_where_they_ended() -> None:
    server = Server(
        [page("a", version=5, go_on="x"), page("b", version=5)], [[("ADDED", thing("c", 6))]]
    )
    settled(server, ["a", "b", "c"])
    assert ["5", "6"] == server.versions[:2]


def test_a_broken_connection_goes_on_where_it_was() -> None:
    broken: list[Any] = [("ADDED", thing("b", 6)), SourceUnavailable("reset")]
    server = Server([page("a", version=5)], [broken, [("DELETED", thing("a", 7))]])
    metrics = InventoryMetrics()
    settled(server, ["b"], metrics)
    assert ["5", "6", "7"] == server.versions[:3]
    assert 0.0 == metrics.relists._value.get()


def test_a_gap_is_listed_anew_and_counted() -> None:
    server = Server([page("a", version=5), page("b", version=9)], [[VersionGone("too old")]])
    metrics = InventoryMetrics()
    settled(server, ["b"], metrics)
    assert 1.0 == metrics.relists._value.get()


def test_a_listing_that_fails_half_way_is_none() -> None:
    half = [page("a", version=5, go_on="x"), SourceUnavailable("reset")]
    server = Server([*half, page("a", "b", version=6)], [])
    watched = Watched(server, name_of, InventoryMetrics())
    watched.start()
    watched.wait(WAIT_MAX_S)
    with pytest.raises(SourceUnavailable, match="reset"):
        watched.objects()
    watched.close()


# -- what nodes and pods become

SETTINGS = KubernetesSettings(job_labels=("site/run",), rack_labels=("site/rack",))


def pod(
    name: str,
    labels: dict[str, str] | None = None,
    on: str = "n1",
    gpus: int = 8,
    phase: str = "Running",
) -> Object:
    wants = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}
    return {
        "metadata": {"name": name, "namespace": "ml", "labels": labels or {}},
        "spec": {"nodeName": on, "containers": [{"resources": wants}]},
        "status": {"phase": phase, "startTime": "2026-01-31T12:00:00Z"},
    }


@pytest.mark.parametrize(
    ("one", "job"),
    [
        (pod("a", {"jobset.sigs.k8s.io/jobset-name": "llm"}), "ml/llm"),
        (pod("a", {"training.kubeflow.org/job-name": "ptj"}), "ml/ptj"),
        (pod("a", {"kueue.x-k8s.io/pod-group-name": "group"}), "ml/group"),
        (pod("a", {"site/run": "own", "jobset.sigs.k8s.io/jobset-name": "llm"}), "ml/own"),
        (pod("a"), "ml/a"),
        (pod("a", {"job-name": "prepare"}, gpus=0), "ml/prepare"),
        (pod("exporter", gpus=0), None),
        (pod("a", on=""), None),
        (pod("evicted", phase="Failed"), None),
    ],
)
def test_training_pods_are_jobs_and_daemons_are_none(one: Object, job: str | None) -> None:
    found = pod_reader(SETTINGS.job_labels)(one)
    assert job == (None if found is None else found["job"])


def test_labels_say_where_a_node_is_and_control_planes_are_protected() -> None:
    read = node_reader(SETTINGS)
    labels = {"site/rack": "r1", "network.topology.nvidia.com/leaf": "l1"}
    nodes = [
        read({"metadata": {"name": "n1", "labels": labels}, "spec": {"unschedulable": True}}),
        read({"metadata": {"name": "m", "labels": {"node-role.kubernetes.io/control-plane": ""}}}),
    ]
    found = allocation([node for node in nodes if node is not None], [], 1.0)
    assert [("m", "UNKNOWN", "", "", True), ("n1", "UNKNOWN+DRAIN", "r1", "l1", False)] == [
        (n.name, n.state, n.rack, n.leaf, n.protected) for n in found.nodes
    ]
    with pytest.raises(ListingIncomplete, match="a cluster has nodes"):
        allocation([], [], 1.0)
