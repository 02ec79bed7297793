"""`nodewarden inventory --kubernetes` follows a real API server: list, watch, gaps."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from collectors.inventory.kube_api import KubeCollection, collections
from collectors.inventory.kubernetes import KubernetesInventory
from collectors.inventory.metrics import InventoryMetrics
from collectors.inventory.refined import Refined
from nodewarden.clock import SystemClock
from telemetry.errors import SettingsError
from telemetry.settings import InventorySettings, KubernetesSettings
from tests.inventory_fold import Followed
from tests.kube.cluster import Kube, node, pod, running

pytestmark = pytest.mark.kube

ROOT = Path(__file__).parents[2]
CLOCK = SystemClock()
LEAF = "network.topology.nvidia.com/leaf"
SET = "jobset.sigs.k8s.io/jobset-name"
TRY = "jobset.sigs.k8s.io/restart-attempt"


@contextmanager
def followed(
    kube: Kube, settings: KubernetesSettings | None = None
) -> Iterator[tuple[Followed, InventoryMetrics]]:
    chosen = settings or KubernetesSettings(kubeconfig=kube.kubeconfig, page=2, watch_s=30.0)
    metrics = InventoryMetrics()
    nodes, pods = collections(chosen)
    watched = KubernetesInventory(nodes, pods, chosen, CLOCK, metrics)
    try:
        yield Followed(Refined(watched, InventorySettings(), CLOCK)), metrics
    finally:
        watched.close()


def nodes_of(kube: Kube, count: int) -> None:
    api = kube.api()
    for number in range(1, count + 1):
        api.create_node(node(f"n{number}", {LEAF: f"leaf{(number + 1) // 2}"}))


def test_the_fold_follows_pods_cordons_restarts_and_nodes_that_are_removed(kube: Kube) -> None:
    api = kube.api()
    nodes_of(kube, 4)
    api.create_node(node("head", {"node-role.kubernetes.io/control-plane": ""}))
    with followed(kube) as (seen, _):
        assert dict.fromkeys(("head", "n1", "n2", "n3", "n4"), "READY") == seen.states()
        assert ["n1", "n2"] == list(seen.inventory.leaf_nodes("leaf1"))
        assert ["head"] == seen.inventory.protected()

        for number in (1, 2):
            api.create_namespaced_pod(
                "default", pod(f"llm-{number}", f"n{number}", {SET: "llm", TRY: "0"})
            )
            running(api, f"llm-{number}")
        api.create_namespaced_pod("default", pod("exporter", "n3", gpus=0))
        seen.until(lambda _: seen.jobs() == {"default/llm": ["n1", "n2"]})
        began_s = CLOCK.time_s()

        api.patch_node("n4", {"spec": {"unschedulable": True}})
        known = seen.until(lambda now: not now.in_service("n4"))
        info = known.info("n4")
        assert info is not None
        assert ("READY+DRAIN", "leaf2") == (info.state, info.leaf)

        for number in (1, 2):
            api.delete_namespaced_pod(f"llm-{number}", "default")
        seen.until(lambda _: seen.jobs() == {})
        assert ["n1", "n2"] == list(seen.inventory.job_nodes("default/llm", began_s))
        for number in (2, 3):
            api.create_namespaced_pod(
                "default", pod(f"again-{number}", f"n{number}", {SET: "llm", TRY: "1"})
            )
        seen.until(lambda _: seen.jobs() == {"default/llm": ["n2", "n3"]})
        assert 1 == seen.inventory.running_jobs(CLOCK.time_s())[0][2]

        api.delete_node("n4")
        seen.until(lambda _: "n4" not in seen.states())
        assert seen.inventory.info("n4") is None


def test_an_api_that_is_away_changes_nothing_and_is_followed_again(kube: Kube) -> None:
    nodes_of(kube, 3)
    with followed(kube) as (seen, _):
        before = seen.states()
        kube.stop()
        seen.until(lambda _: bool(seen.fault))
        version = seen.inventory.version
        seen.look()
        assert (before, version) == (seen.states(), seen.inventory.version)

        kube.start()
        kube.api().delete_node("n3")
        seen.until(lambda _: sorted(seen.states()) == ["n1", "n2"])
        assert not seen.fault


class Stale:
    """Nodes whose first watch asks for what the server no longer knows."""

    def __init__(self, real: KubeCollection, meanwhile: Callable[[], object]) -> None:
        self.name = real.name
        self._real, self._meanwhile = real, meanwhile
        self._is_stale = True

    def page(self, go_on: str) -> dict[str, Any]:
        return self._real.page(go_on)

    def events(
        self, version: str, opened: Callable[[], None]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        if self._is_stale:
            self._is_stale = False
            self._meanwhile()
            version = "1"
        return self._real.events(version, opened)

    def close(self) -> None:
        self._real.close()


def test_after_a_gap_of_the_watch_everything_is_listed_anew(kube: Kube) -> None:
    nodes_of(kube, 3)
    kube.stop()
    kube.start()  # what was before, its watch cache does not know
    api = kube.api()
    settings = KubernetesSettings(kubeconfig=kube.kubeconfig)
    metrics = InventoryMetrics()
    nodes, pods = collections(settings)
    stale = Stale(nodes, lambda: api.delete_node("n2"))
    watched = KubernetesInventory(stale, pods, settings, CLOCK, metrics)
    try:
        seen = Followed(watched)
        seen.until(lambda _: sorted(seen.states()) == ["n1", "n3"])
    finally:
        watched.close()
    assert 1.0 == metrics.relists._value.get()


def test_a_client_without_rights_is_told_so(kube: Kube, tmp_path: Path) -> None:
    text = Path(kube.kubeconfig).read_text()
    token = text.split('token: "')[1].split('"')[0]
    nobody = tmp_path / "nobody"
    nobody.write_text(text.replace(token, "wrong"))
    with followed(kube, KubernetesSettings(kubeconfig=str(nobody))) as (seen, _):
        assert "nodes: answers 401: Unauthorized" == seen.fault
        assert {} == seen.states()


def test_the_command_prints_what_it_would_tell(kube: Kube) -> None:
    nodes_of(kube, 2)
    done = subprocess.run(
        [sys.executable, "-m", "nodewarden", "inventory", "--kubernetes", "--kubeconfig",
         kube.kubeconfig, "--once", "--stdout"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60.0,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert ["settings", "allocation", "beat"] == [record["kind"] for record in told]
    assert ["n1", "n2"] == [one["name"] for one in told[1]["nodes"]]


def test_a_kubeconfig_that_is_none_stops_the_start() -> None:
    with pytest.raises(SettingsError, match="/none"):
        collections(KubernetesSettings(kubeconfig="/none"))
