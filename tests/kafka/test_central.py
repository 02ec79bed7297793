"""The central collector and `status` on a real broker."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from collectors.broker.publisher import KafkaPublisher
from nodewarden.cli import run
from nodewarden.clock import SystemClock
from telemetry.codec import decode
from telemetry.records import Event, Record, Rejected
from telemetry.settings import KafkaSettings
from telemetry.topics import TELEMETRY
from tests.kafka.broker import Broker, free_port
from tests.kafka.reading import read_all
from tests.kafka.service import Service

pytestmark = pytest.mark.kafka

LINES, EVERY = 2_000, 10


def listing(path: Path, *nodes: str) -> Path:
    file = path / "jobs.json"
    topology = {nodes[0]: {"ports": {"leaf1:Ethernet28": "mlx5_0"}}}
    file.write_text(json.dumps({"jobs": [{"id": "j", "nodes": list(nodes)}], "topology": topology}))
    return file


def records(broker: Broker) -> list[Record]:
    found = [decode(line.value or b"", "test") for line in read_all(broker, TELEMETRY)]
    return [one for one in found if not isinstance(one, Rejected)]


def line(number: int) -> bytes:
    said = "systemd[1]: Started Session."
    if number % EVERY == 0:
        said = f"kernel: NVRM: Xid (PCI:0000:{number // EVERY % 64:02x}:00): 79, pid=1, name=python"
    return f"<3>2026-02-25T13:59:45+00:00 N{number % 2}.site.example {said}\n".encode()


def test_syslog_lines_become_events_of_the_inventorys_nodes_once_each(
    clean_topics: Broker, tmp_path: Path
) -> None:
    jobs, port, metrics = listing(tmp_path, "n0", "n1"), free_port(), free_port()
    assert 0 == run(
        ["inventory", "--from", str(jobs), "--once", "--broker", clean_topics.address], {}
    )
    tables = {
        "kafka": {"brokers": [clean_topics.address]},
        "collect": {"state_dir": str(tmp_path / "s"), "metrics_address": f"127.0.0.1:{metrics}"},
        "syslog": {"address": f"127.0.0.1:{port}", "ports_file": str(jobs)},
    }
    service = Service(
        tmp_path, "central", ("-m", "nodewarden", "collect"), tables, metrics,
        prefix="nodewarden_", label="kind",
    )  # fmt: skip
    with service:
        service.wait_until(lambda m: ("central_syslog_taken_total", "") in m, "listening")
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(b"".join(line(number) for number in range(LINES)))
            sock.sendall(
                b"<165>Feb 25 13:59:46 leaf1 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on"
                b" Interface Ethernet28, changed state to down\n"
            )
            service.wait_until(
                lambda m: m.get(("central_syslog_taken_total", ""), 0.0) == LINES + 1, "taken"
            )
    events = [one for one in records(clean_topics) if isinstance(one, Event)]
    told = [one for one in events if one.source == "kernel"]
    assert LINES // EVERY == len(told)
    assert {"n0"} == {one.node for one in told}
    assert list(range(len(told))) == [one.seq for one in told]
    (flap,) = [one for one in events if one.source == "switch"]
    assert ("n0", "nic:mlx5_0/1", "link_down") == (flap.node, flap.entity, flap.class_)


def status(broker: Broker, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    environ = {"NODEWARDEN_STREAM__METRICS_ADDRESS": ""}
    code = run(["status", "--json", "--broker", broker.address], environ)
    return code, json.loads(capsys.readouterr().out)


def test_status_tells_what_is_missing_and_ends_with_0_only_when_all_is_well(
    clean_topics: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = listing(tmp_path, "n0", "n1")
    assert 0 == run(
        ["inventory", "--from", str(jobs), "--once", "--broker", clean_topics.address], {}
    )
    send(clean_topics, "n0")
    code, found = status(clean_topics, capsys)
    assert (1, ["n1"], ["1 of 2 nodes are silent"]) == (code, found["silent"], found["problems"])
    send(clean_topics, "n1")
    code, found = status(clean_topics, capsys)
    assert (0, 1.0, []) == (code, found["coverage"], found["problems"])
    assert 2 == run(["status", "--window", "0"], {})


def test_status_without_a_broker_is_one_line_and_3(capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"NODEWARDEN_KAFKA__REQUEST_TIMEOUT_S": "1"}
    assert 3 == run(["status", "--broker", "127.0.0.1:9"], environ)
    (said,) = capsys.readouterr().err.splitlines()
    assert "no broker answers at 127.0.0.1:9" in said


def send(broker: Broker, node: str) -> None:
    publisher = KafkaPublisher(KafkaSettings(brokers=(broker.address,)), SystemClock(), "test")
    frame = {
        "kind": "frame", "at": SystemClock().time_s(), "node": node, "source": "gpu",
        "started_at": 0.0, "seq": 0, "entities": {"gpu": ["gpu0"]},
        "metrics": {"gpu_temperature_celsius": [50.0]},
    }  # fmt: skip
    value = json.dumps(frame).encode()
    publisher.publish(TELEMETRY, value, key=b"main", partition=0, headers=[("kind", b"frame")])
    publisher.flush()
    publisher.close()
