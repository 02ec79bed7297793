"""Incidents as `incidents` and `replay` print them, byte for byte; and a log folded live."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.kafka.broker import Broker
from tests.kafka.conftest import fresh_topics
from tests.kafka.live import LiveArchiver, LiveWorker, Metrics, log_end, nodewarden

HISTORY = 1  # the partition of the shard that imports go to


@dataclass(frozen=True)
class Told:
    """What the worker told of one log, and the archive that the archiver wrote meanwhile."""

    incidents: bytes
    archive: Path
    metrics: Metrics


def fold_live(broker: Broker, place: Path, *commands: tuple[str | Path, ...]) -> Told:
    """Run commands that publish, one after the other, before a worker and an archiver."""
    fresh_topics(broker)
    archive = place / "archive"
    with LiveWorker(broker, place) as worker, LiveArchiver(broker, place, archive) as archiver:
        for command in commands:
            nodewarden(*command, "--kafka", "--broker", broker.address)
        metrics = worker.wait_caught_up()
        archiver.wait_taken(log_end(broker, HISTORY))
    return Told(incidents_live(broker), archive, metrics)


def incidents_live(broker: Broker) -> bytes:
    """The list `incidents` of `incidents --json`, as it was printed."""
    return _list(nodewarden("incidents", "--json", "--broker", broker.address))


def incidents_replayed(*paths: Path) -> bytes:
    """The list `incidents` of `replay --json`, as it was printed."""
    return _list(nodewarden("replay", "--json", *paths))


def replayed_summary(*paths: Path) -> dict[str, Any]:
    """The object `summary` of `replay --json`."""
    summary: dict[str, Any] = msgspec.json.decode(nodewarden("replay", "--json", *paths))["summary"]
    return summary


def gist(printed: bytes) -> list[tuple[str, str, tuple[str, ...]]]:
    """Of each incident what a person asks first: kind, action, targets."""
    found = msgspec.json.decode(printed)
    return [(i["kind"], i["verdict"]["action"], tuple(i["verdict"]["targets"])) for i in found]


def _list(printed: str) -> bytes:
    return bytes(msgspec.json.decode(printed, type=dict[str, msgspec.Raw])["incidents"])
