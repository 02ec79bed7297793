"""Each thing that can make nodewarden blind fires its alert on a real Prometheus; no ping goes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.kafka.broker import Broker
from tests.kafka.conftest import fresh_topics, kafka
from tests.prometheus.server import Prometheus, PrometheusMissing
from tests.prometheus.watched_site import WatchedSite, watched_site

__all__ = ["kafka"]
pytestmark = [pytest.mark.kafka, pytest.mark.prometheus]


@pytest.fixture(scope="module")
def site(kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedSite]:
    directory = tmp_path_factory.mktemp("site")
    try:
        Prometheus(directory)
    except PrometheusMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI needs one: {missing}")
        pytest.skip(str(missing))
    fresh_topics(kafka)
    with watched_site(kafka, directory) as running:
        yield running


def test_a_canary_that_does_not_come_out(site: WatchedSite) -> None:
    """The worker's process is as well as ever, and says so in its metrics."""
    site.wait_well()
    site.deaf.touch()
    try:
        site.wait_firing("NodewardenCanaryLate")
        site.assert_withheld("canary")
        assert "NodewardenWorkerAbsent" not in site.firing()
    finally:
        site.deaf.unlink()
    site.wait_well()


def test_a_source_that_no_node_sends_any_more_e3(site: WatchedSite) -> None:
    """The nodes go on speaking of something else."""
    site.wait_well()
    site.nodes.muted.add("gpu")
    try:
        site.wait_firing("NodewardenSourceBlind")
        site.assert_withheld("source")
        assert "NodewardenBlind" not in site.firing()
        assert "NodewardenCanaryLate" not in site.firing()
    finally:
        site.nodes.muted.clear()
    site.wait_well()


def test_a_worker_that_is_gone_e3(site: WatchedSite) -> None:
    site.wait_well()
    assert site.worker.stop() == 0
    try:
        site.wait_firing("NodewardenWorkerAbsent")
        site.wait_firing("NodewardenCanaryLate")
        site.assert_withheld("worker")
        assert site.withheld("canary") > 0.0
    finally:
        site.worker.start()
    site.wait_well()


def test_who_sends_canaries_and_pings_is_gone(site: WatchedSite) -> None:
    site.wait_well()
    site.inventory.kill()
    site.wait_firing("NodewardenCanaryAbsent")
    pings = site.outside.pings
    site.inventory.start()
    site.wait_well()
    assert site.outside.pings > pings
    assert "a-secret" not in site.inventory.stderr.read_text()
