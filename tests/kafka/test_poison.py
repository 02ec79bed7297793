"""K11: a record that is no use is kept with its reason, the next is taken, the worker lives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collectors.broker.publisher import KafkaPublisher
from nodewarden.clock import SystemClock
from telemetry.codec import TEXT_MAX, encode
from telemetry.records import Begin, Event, Frame, Rejected
from telemetry.settings import KafkaSettings
from telemetry.topics import FINDINGS, INCIDENTS, REJECTED, STATE, TELEMETRY
from tests.kafka.broker import Broker
from tests.kafka.comparing import incidents_live, incidents_replayed, replayed_summary
from tests.kafka.conftest import fresh_topics
from tests.kafka.live import LiveArchiver, LiveWorker, log_end
from tests.kafka.reading import read_all

pytestmark = pytest.mark.kafka
LIVE, HISTORY = 0, 1
HUGE_BYTES = 5_000_000


def event(seq: int, **header: Any) -> Event:
    """A GPU that falls off the bus of a node of its own."""
    return Event(**{
        "at": time.time(), "node": f"n{seq:03d}", "source": "kernel", "started_at": 1.7e9,
        "seq": 0, "type": "gpu_lost", "code": 79, "severity": "critical", "class_": "fallen",
        "text": "NVRM: Xid (PCI:0000:c3:00): 79, GPU has fallen off the bus.",
        "entity": "pci:0000:c3:00", **header,
    })  # fmt: skip


def built(**fields: Any) -> bytes:
    """The JSON of a good event with some fields changed; None leaves a field out."""
    whole = msgspec.json.decode(encode(event(900)))
    changed = {k: v for k, v in {**whole, **fields}.items() if v is not None or k not in fields}
    return msgspec.json.encode(changed)


FRAME = Frame(
    at=1.79e9, node="n1", source="gpu", started_at=1.7e9, seq=0, entities={"gpu": ["GPU-1"]},
    metrics={"gpu_temperature_celsius": [61.0, 62.0]},
)  # fmt: skip

# name -> value, key, partition, the reason or its beginning
POISON: dict[str, tuple[bytes | None, bytes | None, int, str]] = {
    "null": (None, b"main", LIVE, "null is no record"),
    "null as text": (b"null", b"main", LIVE, "null is no record"),
    "nothing": (b"", b"main", LIVE, "empty value"),
    "bytes": (b"\x00\xff\xfe\x80", b"main", LIVE, "no record: "),
    "no object": (b"[1, 2]", b"main", LIVE, "no record: Expected `object`"),
    "half an object": (built()[:-9], b"main", LIVE, "no record: Input data was truncated"),
    "deeply nested": (b'{"x":' * 100_000, b"main", LIVE, "nested too deeply"),
    "wrong type": (built(at="now"), b"main", LIVE, "no record: Expected `float`, got `str`"),
    "unknown kind": (built(kind="gossip"), b"main", LIVE, "no record: Invalid value 'gossip'"),
    "missing field": (built(seq=None), b"main", LIVE, "no record: Object missing required field"),
    "no time": (built(at=-1.0), b"main", LIVE, "at: -1 is no time"),
    "other schema": (built(v=99), b"main", LIVE, "v: schema 99"),
    "too many values": (encode(FRAME), b"main", LIVE, "gpu_temperature_celsius"),
    "wrong partition": (built(), b"history", LIVE, "the record of shard 'history' in the part"),
    "key is no text": (built(), b"\xff\xfe", LIVE, "the record of shard"),
    "replayed in a live shard": (built(replayed=1.79e9), b"main", LIVE, "a replayed record in a l"),
    "live in a history shard": (built(), b"history", HISTORY, "a live record in a history shard"),
    "5 MB": (built(text="x" * HUGE_BYTES), b"main", LIVE, "5000"),
}


@contextmanager
def publishing(broker: Broker) -> Iterator[KafkaPublisher]:
    """A publisher that sends what no program of ours would."""
    settings = KafkaSettings(brokers=(broker.address,), record_max_bytes=2 * HUGE_BYTES)
    publisher = KafkaPublisher(settings, SystemClock())
    yield publisher
    publisher.flush()
    publisher.close()


def test_k11_each_poison_is_kept_with_its_reason_and_the_next_record_is_taken(
    kafka: Broker, tmp_path: Path
) -> None:
    fresh_topics(kafka, record_max_bytes=2 * HUGE_BYTES)
    archive = tmp_path / "archive"
    places: dict[str, str] = {}
    with LiveWorker(kafka, tmp_path) as worker, LiveArchiver(kafka, tmp_path, archive) as archiver:
        worker.wait_caught_up(1, "main")  # its settings are in force
        with publishing(kafka) as to:
            for number, (name, (value, key, partition, _)) in enumerate(POISON.items()):
                places[f"{TELEMETRY}/{partition}@{log_end(kafka, partition)}"] = name
                to.publish(TELEMETRY, value, key=key, partition=partition)
                to.publish(TELEMETRY, encode(event(number)), key=b"main", partition=LIVE)
                to.flush()
            extra = built(node="n950", colour="green")  # a newer agent's field: it is ignored
            to.publish(TELEMETRY, extra, key=b"main", partition=LIVE)
        worker.wait_caught_up(shard="main")
        metrics = worker.wait_caught_up(shard="history")
        archiver.wait_taken(log_end(kafka, LIVE) + log_end(kafka, HISTORY))

    kept = [
        msgspec.json.decode(line.value or b"", type=Rejected) for line in read_all(kafka, REJECTED)
    ]
    reasons = {places[found.place]: found.reason for found in kept}
    assert len(kept) == len(POISON)
    for name, (_, _, _, reason) in POISON.items():
        assert reasons[name].startswith(reason), (name, reasons[name])
    (huge,) = [found for found in kept if places[found.place] == "5 MB"]
    assert huge.length > HUGE_BYTES
    assert len(huge.text) == TEXT_MAX
    assert metrics["rejected_total", "main"] == len(POISON) - 1
    assert metrics["rejected_total", "history"] == 1
    assert metrics["used_total", "main"] == len(POISON) + 1
    assert incidents_live(kafka).count(b'"kind": "gpu_lost"') == len(POISON) + 1

    assert incidents_live(kafka) == incidents_replayed(archive)
    assert replayed_summary(archive)["rejected"] == len(POISON)


def test_k11_what_is_foreign_in_the_topics_that_a_worker_reads_back_does_not_stop_it(
    kafka: Broker, tmp_path: Path
) -> None:
    fresh_topics(kafka)
    nested = b'{"id":"a","rev":0,"x":' + b"[" * 100_000
    with publishing(kafka) as to:
        for value in (None, b"", b"\xff\x00", b"{}", b'{"id":7}', nested):
            for topic in (FINDINGS, INCIDENTS):
                to.publish(topic, value, key=b"main", partition=LIVE)
            for key in (b"main/a/marker", b"main/a/0", b"\xff"):
                to.publish(STATE, value, key=key, partition=LIVE)

    with LiveWorker(kafka, tmp_path) as worker:
        worker.wait_caught_up(1, "main")
        with publishing(kafka) as to:
            to.publish(TELEMETRY, encode(event(1)), key=b"main", partition=LIVE)
        worker.wait_caught_up(shard="main")

    assert incidents_live(kafka).count(b'"kind": "gpu_lost"') == 1


def test_k11_what_came_before_any_settings_is_kept_and_told_alike_by_replay(
    kafka: Broker, tmp_path: Path
) -> None:
    """Also the `Begin` of an import that went to the wrong partition before there was a worker."""
    fresh_topics(kafka)
    archive = tmp_path / "archive"
    begin = Begin(at=1.79e9, node="", source="import", started_at=0.0, seq=0, replayed=1.79e9)
    with publishing(kafka) as to:
        to.publish(TELEMETRY, encode(begin), key=b"history", partition=LIVE)
        to.publish(TELEMETRY, encode(event(1)), key=b"main", partition=LIVE)

    with LiveWorker(kafka, tmp_path) as worker, LiveArchiver(kafka, tmp_path, archive) as archiver:
        worker.wait_caught_up(3, "main")
        with publishing(kafka) as to:
            to.publish(TELEMETRY, encode(event(2)), key=b"main", partition=LIVE)
        metrics = worker.wait_caught_up(shard="main")
        archiver.wait_taken(log_end(kafka, LIVE))

    assert metrics["rejected_total", "main"] == 2
    assert incidents_live(kafka).count(b'"kind": "gpu_lost"') == 1
    assert incidents_live(kafka) == incidents_replayed(archive)
    assert replayed_summary(archive)["rejected"] == 2
