"""The broker is away for minutes: agents keep their records, and a fault of that time is found."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from telemetry.records import Beat, Event
from telemetry.topics import TELEMETRY
from tests.agent_fakes import FakeExporter, fake_exporter
from tests.kafka.broker import Broker, free_port
from tests.kafka.comparing import gist, incidents_live
from tests.kafka.live import LiveWorker
from tests.kafka.reading import read_all
from tests.kafka.service import Service
from tests.kafka.test_agent import Node
from tests.kafka.told import assert_as_plain

pytestmark = pytest.mark.kafka

# `make long` takes the five minutes that a broker may be away; here its length changes nothing
# but how much is spooled.
AWAY_S = float(os.environ.get("TEST_BROKER_AWAY_S", "20"))
GROWTH_MAX_MB = 12.0
ENGINE = {"ticks": {"interval_default_s": 1.0}}


@pytest.fixture
def exporter() -> Iterator[FakeExporter]:
    with fake_exporter() as one:
        yield one


def inventory(directory: Path, broker: Broker) -> Service:
    """The poller, whose beats move time."""
    listing = directory / "jobs.json"
    listing.write_text(json.dumps({"jobs": [{"id": "j1", "nodes": ["n1", "n2"]}]}))
    port = free_port()
    tables = {
        "kafka": {"brokers": [broker.address]},
        "engine": ENGINE,
        "inventory": {"metrics_address": f"127.0.0.1:{port}"},
    }
    program = ("-m", "nodewarden", "inventory", "--from", str(listing))
    return Service(
        directory, "inventory", program, tables, port, prefix="nodewarden_", label="kind"
    )


def resident_mb(pid: int) -> float:
    """Memory that the process has now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def test_what_happens_while_the_broker_is_away_is_told_when_it_is_back(
    tmp_path: Path, own_kafka: Broker, exporter: FakeExporter
) -> None:
    node = Node(tmp_path, own_kafka, exporter)
    worker = LiveWorker(own_kafka, tmp_path, settings={"engine": ENGINE})
    with worker, inventory(tmp_path, own_kafka), node.service:
        worker.wait_until(lambda m: m.get(("control_total", "main"), 0.0) >= 3.0, "beats")
        node.service.wait_until(
            lambda m: m.get(("outbox_acknowledged_total", "frame"), 0.0) >= 10.0, "sending"
        )
        before_mb = resident_mb(node.service.pid)
        own_kafka.kill()
        time.sleep(AWAY_S / 2)
        node.print_kernel(0, 1)
        printed_s = time.time()
        time.sleep(AWAY_S / 2)
        grown_mb = resident_mb(node.service.pid) - before_mb
        own_kafka.start()
        node.acknowledged(1)
        worker.wait_until(lambda m: m.get(("incidents_open", "main"), 0.0) >= 1.0, "told")
        worker.wait_caught_up(len(read_all(own_kafka, TELEMETRY)), shard="main")

    print(f"\nagent, {AWAY_S:g} s without a broker: {grown_mb:+.1f} MB", file=sys.stderr)
    assert grown_mb <= GROWTH_MAX_MB
    records = node.records()
    events = [record for record in records if isinstance(record, Event) and record.node]
    assert {0} == {event.kmsg_seq for event in events}
    assert any(isinstance(record, Beat) for record in records)
    frames = [r for r in records if (r.node, r.source) == ("n1", "gpu")]
    assert list(range(len(frames))) == sorted({frame.seq for frame in frames})  # none is lost
    assert sum(frame.spooled for frame in frames) >= AWAY_S / 2
    told = incidents_live(own_kafka)
    assert ("gpu_lost", "isolate_and_restart", ("n1",)) in gist(told)
    lost = next(i for i in msgspec.json.decode(told) if i["kind"] == "gpu_lost")
    xid = next(e for e in lost["evidence"] if e["detector"] == "critical")
    assert abs(xid["onset"] - printed_s) < 5.0, lost["evidence"]  # as it happened, not as it came
    assert_as_plain(own_kafka, 0, "main", "live")
