"""What agents tell and what a site's Prometheus shows of the same nodes is the same incident."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from evaluation.capture import jobs_json, write_capture
from tests.kafka.broker import Broker, free_port
from tests.kafka.conftest import fresh_topics, kafka
from tests.kafka.live import LiveWorker, nodewarden
from tests.kafka.live_cluster import ENGINE, LiveCluster
from tests.kafka.service import Service
from tests.prometheus.fleet import Current, Exporter, capture_samples, serving, training_samples
from tests.prometheus.server import Prometheus

__all__ = ["kafka"]
pytestmark = [pytest.mark.kafka, pytest.mark.prometheus, pytest.mark.slow]

SHARDS = ("main", "central")  # what agents send, and what is read from Prometheus
FAULT, SECONDS = "ecn@n002+10*obvious", 60.0
SCRAPE = "1s"
AHEAD_S = 20.0  # so that all of it looks on from its first second
TOLD_MAX_S, POLL_S = 60.0, 2.0
PROMETHEUS = {"poll_s": 1.0, "delay_s": 3.0, "names_s": 2.0}
# A scrape is seen some seconds later than an agent's record.
SETTINGS = {**ENGINE, "ticks": {**ENGINE["ticks"], "lateness_intervals": 5.0}}
ACTION = "isolate_and_restart"


def exporters_of(cluster: LiveCluster, directory: Path) -> dict[str, Exporter]:
    """Of each node and of the job, as they are now."""
    write_capture(cluster.run, directory)
    found: dict[str, Exporter] = {
        node: Current(samples) for node, samples in capture_samples(directory / "metrics").items()
    }
    return {**found, "training": Current(training_samples(cluster.run))}


def tables(broker: Broker) -> dict[str, Any]:
    engine = {**SETTINGS, "shard": "central"}
    return {
        "shards": list(SHARDS), "history_shards": [], "kafka": {"brokers": [broker.address]},
        "engine": engine,
    }  # fmt: skip


@contextmanager
def central(broker: Broker, directory: Path, jobs: Path, url: str) -> Iterator[None]:
    """The inventory and the one collector of a site without agents."""
    ports = free_port(), free_port()
    inventory = Service(
        directory, "inventory", ("-m", "nodewarden", "inventory", "--from", str(jobs)),
        {**tables(broker), "inventory": {"metrics_address": f"127.0.0.1:{ports[0]}"}}, ports[0],
        prefix="nodewarden_", label="kind",
    )  # fmt: skip
    own = {"state_dir": str(directory / "state"), "metrics_address": f"127.0.0.1:{ports[1]}"}
    collect = Service(
        directory, "collect", ("-m", "nodewarden", "collect", "--prometheus", url),
        {**tables(broker), "collect": own, "prometheus": PROMETHEUS},
        ports[1], prefix="nodewarden_", label="kind",
    )  # fmt: skip
    with inventory, collect:
        yield


def incidents(worker: LiveWorker, shard: str) -> list[dict[str, Any]]:
    shown = nodewarden("incidents", "--json", "--shard", shard, "--config", worker.config)
    found: list[dict[str, Any]] = json.loads(shown)["incidents"]
    return found


def gist(told: Sequence[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    """What is done by it: (kind, job) -> cause, who, action, targets."""
    found = defaultdict(list)
    for one in told:
        verdict = one["verdict"]
        nodes = [suspect["node"] for suspect in one["suspects"]]
        found[one["kind"], one["job"]].append(
            (one["cause"], one["severity"], nodes, verdict["action"], verdict["targets"])
        )
    return dict(found)


def is_told(worker: LiveWorker, shard: str) -> bool:
    """Its last word: a node has to go."""
    return any(one["verdict"]["action"] == ACTION for one in incidents(worker, shard))


def test_prometheus_alone_tells_the_incident_that_agents_tell(
    kafka: Broker, prometheus: Prometheus, tmp_path: Path
) -> None:
    fresh_topics(kafka, SHARDS)
    with LiveWorker(
        kafka, tmp_path, shards=SHARDS, history=(), settings={"engine": SETTINGS}
    ) as worker:
        for shard in SHARDS:
            worker.wait_caught_up(1, shard)  # its settings are in force
        cluster = LiveCluster(kafka, SECONDS, [FAULT], ahead_s=AHEAD_S)
        jobs = tmp_path / "jobs.json"
        jobs.write_text(json.dumps(jobs_json(cluster.run.cluster, cluster.start_s)))
        exporters = exporters_of(cluster, tmp_path / "capture")
        with serving(exporters) as targets, cluster:
            prometheus.scrape(list(targets.values()), SCRAPE)
            with central(kafka, tmp_path, jobs, prometheus.url):
                deadline_s = time.monotonic() + AHEAD_S + SECONDS + TOLD_MAX_S
                while not all(is_told(worker, shard) for shard in SHARDS):
                    assert time.monotonic() < deadline_s, [
                        gist(incidents(worker, s)) for s in SHARDS
                    ]
                    time.sleep(POLL_S)
                cluster.stop()
    by_agents, by_prometheus = (gist(incidents(worker, shard)) for shard in SHARDS)
    assert by_agents == by_prometheus
    assert [("nic_congested", "train-1")] == list(by_agents)
