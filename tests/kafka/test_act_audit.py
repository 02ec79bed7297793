"""From telemetry to decisions and into an archive, of which each decision is made again."""

from __future__ import annotations

import http.server
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actions.access import hashed
from collectors.broker.publisher import KafkaPublisher
from nodewarden.clock import SystemClock
from telemetry.actions import (
    ActionRecord,
    ActRules,
    Decision,
    Lease,
    LedgerPart,
    Request,
    SiteFacts,
)
from telemetry.records import NodeInfo
from telemetry.settings import KafkaSettings
from telemetry.topics import ACTIONS, INCIDENTS, INVENTORY
from tests.kafka.acting import TOKENS, said
from tests.kafka.broker import Broker, free_port
from tests.kafka.live import LiveArchiver, LiveWorker, log_end
from tests.kafka.live_cluster import ENGINE, LiveCluster
from tests.kafka.reading import read_all
from tests.kafka.service import Service, nodewarden

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


class Act(Service):
    """The real command, automatic, in a dry run; `rails` are more of its settings."""

    def __init__(
        self, broker: Broker, directory: Path, name: str, workers: str, inventory: str,
        **rails: float,
    ) -> None:  # fmt: skip
        port, api = free_port(), free_port()
        role, token = TOKENS["otto"]
        tables = {
            "kafka": {"brokers": [broker.address]},
            "act": {
                "address": f"127.0.0.1:{api}", "url": f"http://127.0.0.1:{api}", "token": token,
                "metrics_address": f"127.0.0.1:{port}", "session_s": 6.0, "act_within_s": 2.0,
                "call_timeout_s": 1.0, "first_observe_s": 0.0, "snapshot_records": 6,
                "workers": [workers], "inventory": inventory,
                "tokens": {"otto": hashed(token, role)},
                "rails": {"mode_default": "auto", "settle_s": 0.0, **rails},
            },
        }  # fmt: skip
        super().__init__(
            directory, name, ("-m", "nodewarden", "act"), tables, port,
            prefix="nodewarden_act_", label="state",
        )  # fmt: skip

    def wait_active(self) -> None:
        """Until it is the active one."""
        self.wait_until(lambda found: found.get(("active", ""), 0.0) == 1.0, "active")


@contextmanager
def inventory_metrics() -> Iterator[str]:
    """What the inventory poller would say of its listing; the URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = f"nodewarden_inventory_source_timestamp_seconds {time.time() - 1.0!r}\n".encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def list_nodes(broker: Broker) -> None:
    """What the inventory poller would say of the nodes."""
    publisher = KafkaPublisher(KafkaSettings(brokers=(broker.address,)), SystemClock())
    for number in range(6):
        node = NodeInfo(f"n{number:03}", "alloc", rack=f"r{number % 2}", leaf=f"l{number}")
        publisher.publish(INVENTORY, msgspec.json.encode(node), key=f"sched/{node.name}".encode())
    publisher.flush()
    publisher.close()


def decided(broker: Broker, count: int) -> Callable[[], bool]:
    """Whether of so many incidents it is decided what becomes of their nodes."""

    def is_so() -> bool:
        made = [one for one in said(broker) if isinstance(one, Decision)]
        isolating = [one for one in made if one.verdict.action == "isolate_and_restart"]
        return len({one.incident for one in isolating}) >= count

    return is_so


def wait_for(true: Callable[[], bool], deadline_s: float = 60.0) -> None:
    end_s = time.monotonic() + deadline_s
    while not true():
        assert time.monotonic() < end_s, "not in time"
        time.sleep(0.3)


def audited(archive: Path, *more: str | Path, status: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        nodewarden("audit", archive, "--json", *more, statuses=(status,))
    )
    return found


def of(records: list[ActionRecord], kind: type[ActionRecord]) -> list[ActionRecord]:
    return [one for one in records if isinstance(one, kind)]


def test_every_decision_of_an_archive_is_made_again_over_a_kill_and_a_snapshot(
    clean_topics: Broker, tmp_path: Path
) -> None:
    broker, archive = clean_topics, tmp_path / "archive"
    list_nodes(broker)
    with (
        inventory_metrics() as inventory,
        LiveWorker(broker, tmp_path, settings={"engine": ENGINE}) as worker,
        LiveArchiver(broker, tmp_path, archive, sync_s=0.2) as archiver,
    ):
        worker.wait_caught_up(1, "main")
        first = Act(broker, tmp_path, "first", worker.metrics_url, inventory)
        second = Act(
            broker, tmp_path, "second", worker.metrics_url, inventory, cluster_nodes_per_hour=3
        )
        first.start()
        first.wait_active()
        with LiveCluster(broker, 18.0, ["xid79@n004+4", "xid79@n001+12"]):
            wait_for(decided(broker, 1))
            assert first.kill() == -signal.SIGKILL
            with second:
                second.wait_active()
                for verb, target in (("isolate", "n003"), ("release", "n003"), ("ack", "nothing")):
                    nodewarden(verb, target, "--config", second.config, statuses=(0, 2))
                wait_for(decided(broker, 2))
        worker.wait_caught_up(shard="main")
        records = said(broker)  # of instances that are gone
        archiver.wait_taken(log_end(broker, 0))
        archiver.wait_taken(len(records), ACTIONS)
        archiver.wait_taken(len(read_all(broker, INCIDENTS)), INCIDENTS)

    assert len(of(records, Lease)) >= 2
    assert len(of(records, ActRules)) == 2  # the second has other settings
    assert of(records, SiteFacts)
    assert of(records, LedgerPart)
    assert of(records, Request)
    found = audited(archive)
    assert found["clean"], found
    assert found["decisions"] == {
        "equal": len(of(records, Decision)), "differs": 0, "unchecked": 0,
    }  # fmt: skip
    assert found["ladder"]["verdicts"]["equal"] >= 2
    assert found["ladder"]["verdicts"]["differs"] == 0
    assert found["requests_refused"] == 1
    other = tmp_path / "other.toml"
    other.write_text('[act]\nfirst_observe_s = 0.0\n[act.rails]\nmode_default = "observe"\n')
    assert audited(archive, "--no-ladder", "--against", other, status=1)["differing"]
