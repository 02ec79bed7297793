"""`nodewarden inventory` on a real broker, and its command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from collectors.broker.consumer import KafkaLogReader
from collectors.broker.publisher import KafkaPublisher
from collectors.inventory.state import InventoryState
from nodewarden.act_inventory import InventoryTopic
from nodewarden.cli import run
from nodewarden.clock import SystemClock
from telemetry.canary import CANARY
from telemetry.codec import decode
from telemetry.records import (
    Allocation,
    Beat,
    Maintenance,
    NodeInfo,
    Record,
    Rejected,
    Settings,
)
from telemetry.settings import KafkaSettings
from telemetry.topics import INVENTORY, TELEMETRY
from tests.kafka.broker import Broker
from tests.kafka.reading import read_all

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
WAIT_MAX_S = 90.0


def write(path: Path, *ids: str) -> Path:
    listing = path / "jobs.json"
    fresh = path / "fresh"
    fresh.write_text(json.dumps({"jobs": [{"id": id, "nodes": [f"{id}-n0"]} for id in ids]}))
    os.replace(fresh, listing)
    return listing


def told(broker: Broker) -> list[Record]:
    found = []
    for line in read_all(broker, TELEMETRY):
        assert line.key == b"main"
        record = decode(line.value or b"", "test")
        assert not isinstance(record, Rejected)
        found.append(record)
    return found


def state(broker: Broker) -> dict[str, bytes | None]:
    held = {(line.key or b"").decode(): line.value for line in read_all(broker, INVENTORY)}
    return {key: value for key, value in held.items() if value is not None}


def test_once_tells_the_log_and_the_next_start_what_went(
    clean_topics: Broker, tmp_path: Path
) -> None:
    listing = write(tmp_path, "a", "b")
    asked = ["inventory", "--from", str(listing), "--once", "--broker", clean_topics.address]
    assert run(asked, {}) == 0
    assert [type(record) for record in told(clean_topics)] == [Settings, Allocation, Beat]
    assert sorted(state(clean_topics)) == ["job/a", "job/b", "sched/a-n0", "sched/b-n0"]
    write(tmp_path, "a")
    assert run(asked, {}) == 0
    assert sorted(state(clean_topics)) == ["job/a", "sched/a-n0"]
    starts = {record.started_at for record in told(clean_topics)}
    assert len(starts) == 2


def test_a_change_of_the_file_reaches_the_log_and_sigterm_ends_it(
    clean_topics: Broker, tmp_path: Path
) -> None:
    listing = write(tmp_path, "a")
    program = [sys.executable, "-m", "nodewarden", "inventory", "--from", str(listing)]
    environ = {
        **os.environ,
        "NODEWARDEN_INVENTORY__POLL_S": "0.2",
        "NODEWARDEN_INVENTORY__METRICS_ADDRESS": "",
    }
    process = subprocess.Popen([*program, "--broker", clean_topics.address], cwd=ROOT, env=environ)
    try:
        wait_for(clean_topics, "job/a")
        write(tmp_path, "a", "b")
        wait_for(clean_topics, "job/b")
        process.terminate()
        assert process.wait(WAIT_MAX_S) == 0
    finally:
        process.kill()
        process.wait()
    records = [record for record in told(clean_topics) if record.source != CANARY]
    assert [record.seq for record in records] == list(range(len(records)))
    changes = [r for r in records if isinstance(r, Allocation) and not r.listing]
    assert [[job.id for job in told.jobs] for told in changes] == [["b"]]


def wait_for(broker: Broker, key: str) -> None:
    end_s = time.monotonic() + WAIT_MAX_S
    while key not in state(broker):
        assert time.monotonic() < end_s, f"{key} is not said"
        time.sleep(0.2)


def test_act_reads_maintenance_from_the_topic_until_it_is_taken_back(clean_topics: Broker) -> None:
    settings, clock = KafkaSettings(brokers=(clean_topics.address,)), SystemClock()
    windows = [Maintenance("firmware", 1_000.0, 2_000.0, ["n1", "n2"])]
    listing = Allocation(
        at=0.0, node="", source="inventory", started_at=0.0, seq=0,
        nodes=[NodeInfo(name="n1", state="IDLE", boot_at=900.0)], maintenance=windows,
    )  # fmt: skip
    publisher = KafkaPublisher(settings, clock, "test")
    topic = InventoryTopic(lambda: KafkaLogReader(settings, clock, "test-site"))
    try:
        state = InventoryState(publisher, {}, 900_000)
        state.become(listing)
        publisher.flush()
        topic.read()
        assert windows == topic.maintenance
        assert {"n1": 900.0} == topic.booted_at

        state.become(msgspec.structs.replace(listing, maintenance=[]))
        publisher.flush()
        end_s = time.monotonic() + WAIT_MAX_S
        while topic.maintenance:
            assert time.monotonic() < end_s
            topic.read()
    finally:
        topic.close()
        publisher.close()
