"""`nodewarden act` tells people what it decided, from the log to the call."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from actions.access import hashed
from tests.kafka.acting import TOKENS, incident, tell
from tests.kafka.broker import Broker, free_port
from tests.kafka.service import Service
from tests.paging_endpoint import Endpoint

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
HEARD_MAX_S = 90.0


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


def service(broker: Broker, directory: Path, endpoint: Endpoint) -> Service:
    key, file = directory / "oncall.key", directory / "notify.toml"
    key.write_text("K" * 32, "utf-8")
    file.write_text(
        f"""
        [receivers.oncall]
        kind = "pagerduty"
        url = "{endpoint.url}"
        routing_key_file = "{key}"
        [route]
        receiver = "oncall"
        group_wait_s = 0.0
        keep_open_s = 0.0
        """,
        "utf-8",
    )
    port, api = free_port(), free_port()
    role, token = TOKENS["otto"]
    tables = {
        "kafka": {"brokers": [broker.address]},
        "act": {
            "address": f"127.0.0.1:{api}", "url": f"http://127.0.0.1:{api}",
            "metrics_address": f"127.0.0.1:{port}", "session_s": 6.0,
            "tokens": {"otto": hashed(token, role)},
        },
        "notify": {"file": str(file), "state_dir": str(directory / "notify")},
    }  # fmt: skip
    return Service(
        directory, "act", ("-m", "nodewarden", "act"), tables, port,
        prefix="nodewarden_notify_", label="receiver",
    )  # fmt: skip


def test_an_incident_is_paged_acknowledged_and_resolved(
    clean_topics: Broker, tmp_path: Path, endpoint: Endpoint
) -> None:
    with service(clean_topics, tmp_path, endpoint) as act:
        one = incident("a", opened_at=time.time())
        tell(clean_topics, [one])
        event = endpoint.heard.get(timeout=HEARD_MAX_S)
        assert event["event_action"] == "trigger"
        assert event["payload"]["custom_details"]["verdict"] == "isolate: a is broken"
        subprocess.run(
            [sys.executable, "-m", "nodewarden", "ack", "a", "--config", str(act.config)],
            env={**os.environ, "NODEWARDEN_ACT__TOKEN": TOKENS["otto"][1]}, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        assert endpoint.heard.get(timeout=HEARD_MAX_S)["event_action"] == "acknowledge"
        tell(clean_topics, [msgspec.structs.replace(one, rev=1, closed_at=time.time())])
        last = endpoint.heard.get(timeout=HEARD_MAX_S)
        assert (last["event_action"], last["dedup_key"]) == ("resolve", event["dedup_key"])
