"""An action service as a process of its own, incidents for it, and what stands in its log."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from actions.access import hashed
from actions.ledger_log import decode
from collectors.broker.consumer import KafkaLogReader
from collectors.broker.publisher import KafkaPublisher
from nodewarden.clock import SystemClock
from telemetry.actions import ActionRecord, Command, Decision, Outcome, Recovery, Role
from telemetry.findings import Incident, Verdict
from telemetry.settings import KafkaSettings
from telemetry.topics import ACTIONS, INCIDENTS
from tests.kafka.broker import Broker, free_port
from tests.kafka.service import Service

QUIET_MAX_S = 10.0  # between two records: a consumer may start slowly, a machine be busy

TOKENS: dict[str, tuple[Role, str]] = {
    "vera": ("viewer", "v" * 32), "otto": ("operator", "o" * 32), "ada": ("admin", "a" * 32),
}  # fmt: skip


class ActService(Service):
    """One instance. `act`, `point`, `world` as in `killed_act`; all waiting is short."""

    def __init__(
        self, broker: Broker, directory: Path, name: str, *, act: str = "none", point: str = "-",
        world: str = "", **settings: Any,
    ) -> None:  # fmt: skip
        port, self.api = free_port(), free_port()
        self.world = directory / "world"
        tables = {
            "kafka": {"brokers": [broker.address]},
            "act": {
                "address": f"127.0.0.1:{self.api}", "metrics_address": f"127.0.0.1:{port}",
                "url": f"http://127.0.0.1:{self.api}", "session_s": 6.0, "act_within_s": 2.0,
                "call_timeout_s": 1.0, **settings,
                "tokens": {name: hashed(token, role) for name, (role, token) in TOKENS.items()},
            },
        }  # fmt: skip
        program = ("-m", "tests.kafka.killed_act", act, point, world or str(self.world))
        super().__init__(
            directory, name, program, tables, port, prefix="nodewarden_act_", label="state"
        )

    def wait_active(self) -> None:
        """Until it is the active one."""
        self.wait_until(lambda found: found.get(("active", ""), 0.0) == 1.0, "active")

    def asked(
        self, path: str, token: str | None, body: dict[str, object] | None = None
    ) -> tuple[int, dict[str, object]]:
        """Status and answer of a request; a POST where there is a body."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        data = None if body is None else msgspec.json.encode(body)
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.api}/v1/{path}", data, headers,
            method="GET" if body is None else "POST",
        )  # fmt: skip
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, msgspec.json.decode(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, msgspec.json.decode(error.read())


def incident(name: str, **changes: object) -> Incident:
    """One that wants its node out."""
    verdict = Verdict("isolate", f"{name} is broken", [f"node-{name}"], "now", 1_700_000_000.0)
    one = Incident(
        id=name, rev=0, scope=f"node:{name}", opened_at=1_700_000_000.0, closed_at=None, job="",
        cause="hardware", kind="gpu_lost", severity="critical", confidence=1.0, suspects=[],
        evidence=[], verdict=verdict, verdicts=[verdict],
    )  # fmt: skip
    return msgspec.structs.replace(one, **changes)


def tell(broker: Broker, incidents: Sequence[Incident]) -> None:
    """What the engine would say."""
    publisher = KafkaPublisher(KafkaSettings(brokers=(broker.address,)), SystemClock())
    for one in incidents:
        publisher.publish(INCIDENTS, msgspec.json.encode(one), key=one.id.encode(), partition=0)
    publisher.flush()
    publisher.close()


def said(broker: Broker) -> list[ActionRecord]:
    """What is committed in `nodewarden.actions`, to the end or until nothing comes for long.

    The last offset is the mark of a transaction, which nobody gets to see.
    """
    reader = KafkaLogReader(KafkaSettings(brokers=(broker.address,)), SystemClock(), committed=True)
    place = (ACTIONS, 0)
    start, end = reader.bounds([place])[place]
    reader.assign({place: start})
    found: list[ActionRecord] = []
    quiet_s, offset = time.monotonic() + QUIET_MAX_S, start
    while (
        max(offset + 2, reader.positions().get(place, start)) < end and time.monotonic() < quiet_s
    ):
        for line in reader.poll(0.2):
            record = decode(line.value)
            assert record is not None, line
            found.append(record)
            quiet_s, offset = time.monotonic() + QUIET_MAX_S, line.offset
    reader.close()
    return found


def check_once(records: Sequence[ActionRecord]) -> None:
    """Each saying of a decision, each intent and each outcome stands there once."""
    sayings = Counter((one.id, one.revision) for one in records if isinstance(one, Decision))
    intents = Counter(one.id for one in records if isinstance(one, Command))
    decided = Counter(
        (one.decision, one.step) for one in records if isinstance(one, Command)
    )  # fmt: skip
    outcomes = Counter(one.command for one in records if isinstance(one, Outcome))
    states = Counter((one.id, one.revision) for one in records if isinstance(one, Recovery))
    for counted in (sayings, intents, decided, outcomes, states):
        assert all(count == 1 for count in counted.values()), counted
