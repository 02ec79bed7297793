"""`nodewarden report` of the live topics, where the action service's records are transactions."""

from __future__ import annotations

import json

import msgspec
import pytest

from actions.ledger_log import encode as encode_action
from collectors.broker.publisher import KafkaPublisher
from collectors.broker.transactions import Transactions
from collectors.link import Message
from nodewarden.cli import run
from nodewarden.clock import SystemClock
from telemetry.codec import encode
from telemetry.settings import KafkaSettings
from telemetry.topics import ACTIONS, INCIDENTS, TELEMETRY
from tests.accounting_log import actions, incidents, telemetry
from tests.kafka.broker import Broker

pytestmark = pytest.mark.kafka


def fill(broker: Broker) -> None:
    """The log made by hand, as it would come in from history: it arrived when it says."""
    settings = KafkaSettings(brokers=(broker.address,))
    publisher = KafkaPublisher(settings, SystemClock())
    for record in telemetry():
        value = encode(msgspec.structs.replace(record, replayed=record.at))
        kind = str(record.__struct_config__.tag).encode()
        publisher.publish(TELEMETRY, value, partition=0, headers=[("kind", kind)])
    for incident in incidents():
        key = incident.id.encode()
        publisher.publish(INCIDENTS, msgspec.json.encode(incident), key=key, partition=0)
    publisher.flush()
    publisher.close()
    log = Transactions(settings, "test-report")
    for action in actions():
        log.commit([Message(ACTIONS, encode_action(action), b"k", 0)])
    log.close()


def test_the_live_topics_are_reported_to_their_end(
    clean_topics: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(clean_topics)
    capsys.readouterr()
    assert run(["report", "--broker", clean_topics.address, "--json"], {}) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["fleet"]["ettr"] == pytest.approx(20_120 / 21_600)
    assert [one["id"] for one in found["incidents"]] == ["b", "a"]
    assert found["incidents"][1]["phases"]["recover"] == pytest.approx(137.0)
    assert sum(one["count"] for one in found["decided"]) == 4
    assert found["notes"] == []
