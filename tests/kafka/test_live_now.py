"""A cluster that reports now: told as replay tells its archive, to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.comparing import gist, incidents_live, incidents_replayed, replayed_summary
from tests.kafka.conftest import fresh_topics
from tests.kafka.live import LiveArchiver, LiveWorker, log_end
from tests.kafka.live_cluster import ENGINE, LiveCluster

pytestmark = pytest.mark.kafka


def test_a_running_cluster_is_told_as_its_archive_replays(kafka: Broker, tmp_path: Path) -> None:
    fresh_topics(kafka)
    archive = tmp_path / "archive"
    with (
        LiveWorker(kafka, tmp_path, settings={"engine": ENGINE}) as worker,
        LiveArchiver(kafka, tmp_path, archive) as archiver,
    ):
        worker.wait_caught_up(1, "main")  # its settings are in force
        with LiveCluster(kafka, 32.0, ["ecn@n002+12*obvious", "xid79@n004+20"], late=40):
            pass
        metrics = worker.wait_caught_up(shard="main")
        archiver.wait_taken(log_end(kafka, 0))

    told = incidents_live(kafka)
    assert told == incidents_replayed(archive)
    assert ("gpu_lost", "isolate_and_restart", ("n004",)) in gist(told)
    summary = replayed_summary(archive)
    assert metrics["late_total", "main"] == summary["late"] > 0
    assert metrics["rejected_total", "main"] == summary["rejected"] == 0
    assert metrics["lost_total", "main"] == summary["lost"]
