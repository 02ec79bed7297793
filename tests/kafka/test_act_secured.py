"""The command itself, as its own user with the least rights of deploy/kafka/acls.sh."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from actions.access import hashed
from collectors.broker.publisher import KafkaPublisher
from nodewarden.clock import SystemClock
from telemetry.topics import INCIDENTS
from tests.kafka.acting import incident
from tests.kafka.broker import free_port
from tests.kafka.conftest import started
from tests.kafka.secured import Secured, rules
from tests.kafka.service import ROOT, Service, nodewarden

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
TOKEN = "s" * 32


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    broker = started(tmp_path / "kafka", secure=True)
    try:
        found = Secured(broker)
        found.give(rules())
        nodewarden("topics", "create", "--config", found.config(tmp_path, "operator"))
        yield found
    finally:
        broker.stop()


def test_the_command_decides_and_obeys_with_the_rights_of_its_user(
    secured: Secured, tmp_path: Path
) -> None:
    port, api = free_port(), free_port()
    tables = {
        "kafka": secured.kafka("act"),
        "act": {
            "address": f"127.0.0.1:{api}", "url": f"http://127.0.0.1:{api}", "workers": [],
            "inventory": "", "metrics_address": f"127.0.0.1:{port}",
            "tokens": {"otto": hashed(TOKEN, "operator")},
        },
    }  # fmt: skip
    service = Service(
        tmp_path, "act", ("-m", "nodewarden", "act"), tables, port, prefix="nodewarden_act_",
        label="state",
    )  # fmt: skip
    with service:
        service.wait_until(lambda found: found.get(("active", "")) == 1.0, "active")
        publisher = KafkaPublisher(secured.settings("stream"), SystemClock())
        publisher.publish(INCIDENTS, msgspec.json.encode(incident("a")), key=b"a", partition=0)
        publisher.flush()
        publisher.close()
        service.wait_until(lambda found: ("decisions_total", "refused") in found, "decided")
        shown = subprocess.run(
            [sys.executable, "-m", "nodewarden", "release", "n7", "--config", str(service.config)],
            cwd=ROOT, env={**os.environ, "NODEWARDEN_ACT__TOKEN": TOKEN}, capture_output=True,
            text=True, timeout=60, check=True,
        )  # fmt: skip
        assert "released by otto" in shown.stdout
        service.wait_until(lambda found: ("outcomes_total", "") in found, "carried out")
        assert not [line for line in service.lines() if "control_unsent" in line]
