"""The real Alertmanager receives, groups, inhibits and resolves what nodewarden tells."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import msgspec
import pytest
import yaml
from prometheus_client import CollectorRegistry

from actions.notify.board import Board
from actions.notify.channels import build_channels
from actions.notify.http import UrllibHttp
from actions.notify.metrics import NotifyMetrics
from actions.notify.notifier import Notifier
from actions.notify.routing import Router
from actions.notify.store import Store
from telemetry.actions import Where
from telemetry.testing import ManualClock
from tests.paging import CLUSTER, incident, paging
from tests.prometheus.alertmanager import Alertmanager, AlertmanagerMissing, Hook, until

pytestmark = pytest.mark.prometheus
SHIPPED = Path(__file__).parents[2] / "deploy" / "alertmanager" / "with-nodewarden.yml"


def shipped(hook: str) -> str:
    """The file as it ships, with a receiver and quick groups."""
    settings = yaml.safe_load(SHIPPED.read_text("utf-8"))
    for receiver in settings["receivers"]:
        if receiver["name"] == "site":
            receiver["webhook_configs"] = [{"url": hook, "send_resolved": True}]
    for route in (settings["route"], *settings["route"]["routes"]):
        route["group_wait"], route["group_interval"] = "1s", "1s"
    return yaml.safe_dump(settings)


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


@pytest.fixture
def alertmanager(tmp_path: Path, hook: Hook) -> Iterator[Alertmanager]:
    try:
        server = Alertmanager(tmp_path / "alertmanager", shipped(hook.url))
    except AlertmanagerMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI needs one: {missing}")
        pytest.skip(str(missing))
    yield server
    server.stop()


class Site:
    """A notifier whose only receiver is the real server, on a clock that shows the real time."""

    def __init__(self, directory: Path, url: str, **receiver: Any) -> None:
        settings = paging(
            pager="alertmanager",
            receivers={"am": {"kind": "alertmanager", "url": url, **receiver}},
            route={"receiver": "am", "keep_open_s": 0.0},
        )
        self.clock = ManualClock(datetime.now(UTC).timestamp())
        self._store = Store(directory)
        board = Board(Router(settings, CLUSTER, where), CLUSTER, self._store)
        channels = build_channels(settings, UrllibHttp, self.clock)
        self.notifier = Notifier(board, channels, self.clock, NotifyMetrics(CollectorRegistry()))

    def tell(self, *incidents: Any) -> None:
        for one in incidents:
            self.notifier.take(one)
        for _ in range(3):
            self.clock.advance(max(self.notifier.step(), 0.7))

    def incident(self, *args: Any, **kwargs: Any) -> Any:
        return incident(*args, at=self.clock.time_s(), **kwargs)

    def closed(self, one: Any) -> Any:
        self.clock.set(datetime.now(UTC).timestamp())
        return msgspec.structs.replace(one, rev=one.rev + 1, closed_at=self.clock.time_s())


def where(node: str) -> Where | None:
    return Where(leaf="leaf-9") if node.startswith("behind") else None


def dcgm(url: str, **labels: str) -> None:
    """What a site's Prometheus sends for a rule over dcgm-exporter."""
    body = json.dumps([{"labels": labels}]).encode()
    asked = Request(f"{url}/api/v2/alerts", body, {"Content-Type": "application/json"})
    with urlopen(asked, timeout=10) as answer:
        assert answer.status == 200


def inhibited(server: Alertmanager) -> dict[str, bool]:
    return {
        f"{a['labels']['alertname']} {a['labels'].get('Hostname', a['labels'].get('scope', ''))}":
        bool(a["status"]["inhibitedBy"])
        for a in server.alerts()
    }  # fmt: skip


def test_it_receives_groups_and_resolves(
    tmp_path: Path, alertmanager: Alertmanager, hook: Hook
) -> None:
    site = Site(tmp_path / "state", alertmanager.url)
    two = [site.incident(n, node="node-1", rev=1) for n in (1, 2)]
    site.tell(*two, site.incident(3, node="node-2"))
    until(lambda: 2 <= len(hook.posts))
    groups = [(post["groupLabels"]["scope"], len(post["alerts"])) for post in hook.posts[:2]]
    assert sorted(groups) == [("node:node-1", 2), ("node:node-2", 1)]
    labels = hook.posts[0]["commonLabels"]
    assert labels["alertname"] == "NodewardenGpuLost"
    assert labels["job"] == "train"

    site.tell(*[site.closed(one) for one in two])
    until(lambda: any(p["status"] == "resolved" for p in hook.posts))
    (resolved,) = [p for p in hook.posts if p["status"] == "resolved"]
    assert resolved["groupLabels"]["scope"] == "node:node-1"


def test_the_common_rules_over_dcgm_are_inhibited_on_the_node_and_on_no_other(
    tmp_path: Path, alertmanager: Alertmanager, hook: Hook
) -> None:
    site = Site(tmp_path / "state", alertmanager.url)
    site.tell(site.incident(1, node="node-1", kind="gpu_lost"))
    for name in ("GPUXidError", "GpuXIDErrors", "DcgmHighTemperature"):
        dcgm(alertmanager.url, alertname=name, Hostname="node-1", gpu="3", severity="critical")
    dcgm(alertmanager.url, alertname="GPUXidError", Hostname="node-2", gpu="3")
    dcgm(alertmanager.url, alertname="DiskFull", Hostname="node-1", severity="warning")
    until(lambda: 5 < len(alertmanager.alerts()) and inhibited(alertmanager)["GPUXidError node-1"])
    found = inhibited(alertmanager)
    assert {name for name, is_inhibited in found.items() if is_inhibited} == {
        "GPUXidError node-1", "GpuXIDErrors node-1", "DcgmHighTemperature node-1",
    }  # fmt: skip


def test_the_nodes_behind_a_leaf_switch_are_inhibited_by_it(
    tmp_path: Path, alertmanager: Alertmanager, hook: Hook
) -> None:
    site = Site(tmp_path / "state", alertmanager.url)
    nodes = [site.incident(n, node=f"behind-{n}", kind="node_silent") for n in range(8)]
    site.tell(site.incident("leaf", scope="leaf:leaf-9", kind="fabric", cause="network"), *nodes)
    until(lambda: len(alertmanager.alerts()) == 9 and sum(inhibited(alertmanager).values()) == 8)
    until(lambda: bool(hook.posts))
    assert {post["groupLabels"]["scope"] for post in hook.posts} == {"leaf:leaf-9"}


def test_where_pagerduty_pages_its_alerts_inhibit_and_page_nobody(
    tmp_path: Path, alertmanager: Alertmanager, hook: Hook
) -> None:
    site = Site(tmp_path / "state", alertmanager.url, paging=False)
    site.tell(site.incident(1, node="node-1"))
    dcgm(alertmanager.url, alertname="GPUXidError", Hostname="node-1", severity="critical")
    dcgm(alertmanager.url, alertname="GPUXidError", Hostname="node-2", severity="critical")
    until(lambda: bool(hook.posts))
    told = [alert["labels"] for post in hook.posts for alert in post["alerts"]]
    assert [("GPUXidError", "node-2")] == [(a["alertname"], a["Hostname"]) for a in told]


def test_a_severity_that_rises_leaves_no_alert_behind(
    tmp_path: Path, alertmanager: Alertmanager, hook: Hook
) -> None:
    site = Site(tmp_path / "state", alertmanager.url)
    one = site.incident(1, node="node-1", severity="warning")
    site.tell(one)
    until(lambda: 1 == len(alertmanager.alerts()))
    site.clock.set(datetime.now(UTC).timestamp())
    site.tell(msgspec.structs.replace(one, severity="critical", rev=2))
    until(lambda: ["critical"] == [a["labels"]["severity"] for a in alertmanager.alerts()])
