"""What people tried goes through a real broker to the engine, once, also over a take-over."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from telemetry.actions import Request
from telemetry.codec import decode
from telemetry.records import Control
from telemetry.topics import TELEMETRY
from tests.kafka.acting import TOKENS, ActService, incident, said, tell
from tests.kafka.broker import Broker
from tests.kafka.reading import read_all
from tests.kafka.service import nodewarden
from tests.kafka.test_act import wait_for

pytestmark = pytest.mark.kafka


def controls(broker: Broker) -> list[Control]:
    """What the engine was told."""
    found = [decode(line.value or b"", "") for line in read_all(broker, TELEMETRY)]
    return [one for one in found if isinstance(one, Control)]


def test_what_was_tried_is_told_to_the_engine_and_again_by_the_next_instance_as_the_same(
    clean_topics: Broker, tmp_path: Path
) -> None:
    broker, token = clean_topics, TOKENS["otto"][1]
    with ActService(broker, tmp_path, "first") as first:
        first.wait_active()
        tell(broker, [incident("a", job="ask")])
        wait_for(lambda: first.asked("incidents/a", token)[0] == 200)
        client = tmp_path / "client.toml"
        client.write_text(
            f'[act]\nurl = "http://127.0.0.1:{first.api}"\ntoken = "{token}"\n', "utf-8"
        )
        for target, status in (("a", 0), ("b", 2)):
            nodewarden(
                "tried", target, "--step", "checks", "--found", "n[1-2]", "--note", "by hand",
                "--config", client, statuses=(status,),
            )  # fmt: skip
        wait_for(lambda: len(controls(broker)) == 1)
        first.kill()
    with ActService(broker, tmp_path, "second") as second:
        second.wait_active()
        wait_for(lambda: len(controls(broker)) == 2)

    taken, refused = [one for one in said(broker) if isinstance(one, Request)]
    assert (taken.by, taken.verb, taken.accepted, taken.note) == ("otto", "tried", True, "by hand")
    assert (refused.target, refused.accepted) == ("b", False)
    one, again = controls(broker)
    assert again == msgspec.structs.replace(one, sent_at=again.sent_at)
    assert taken.control == (one.started_at, one.seq)
    assert one.attempt == taken.attempt is not None
    assert (one.action, one.target, one.by) == ("attempted", "a", "otto")
    assert one.attempt is not None
    assert one.attempt.nodes == ["n1", "n2"]
