"""How soon a killed worker is replaced, and how soon one ends. Printed; only failures assert."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from collectors.broker.publisher import KafkaPublisher
from evaluation.simulator import START_S, Simulation
from nodewarden.clock import SystemClock
from nodewarden.shards import Target
from telemetry.codec import encode
from telemetry.records import Arrived, Beat, Event, Record
from telemetry.settings import KafkaSettings
from telemetry.topics import FINDINGS, TELEMETRY
from tests.bench.brokers import clean_topics, kafka, process_cpu_s
from tests.kafka.broker import Broker
from tests.kafka.feed import publish, whole
from tests.kafka.live import LiveWorker, log_end

__all__ = ["clean_topics", "kafka"]
pytestmark = [pytest.mark.bench, pytest.mark.kafka, pytest.mark.slow]

ROUNDS = 10
NODES, MINUTES = 1_024, 4.0
TARGET = Target("history", 1)
SOON_S = 0.01
GIVEN_UP_S = 60.0


def publisher(broker: Broker) -> KafkaPublisher:
    return KafkaPublisher(KafkaSettings(brokers=(broker.address,)), SystemClock())


def wait(true: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + GIVEN_UP_S
    while not true():
        assert time.monotonic() < end_s, f"not {what} in {GIVEN_UP_S:g} s"
        time.sleep(SOON_S)


def settled(worker: LiveWorker, shard: str) -> float:
    """Up to where the shard is folded and told; -1 while nobody answers."""
    return worker.metrics().get(("settled_offset", shard), -1.0)


def reached(worker: LiveWorker, offset: int) -> bool:
    return settled(worker, "main") >= offset


def beat(onto: KafkaPublisher, seq: int) -> None:
    """One record for the live shard, acknowledged."""
    said = Beat(at=time.time(), node="", source="bench", started_at=1.0, seq=seq)
    onto.publish(TELEMETRY, encode(said), key=b"main", partition=0)
    onto.flush()


def test_a_replacement_folds_soon_after_kill_9(clean_topics: Broker, tmp_path: Path) -> None:
    """From the kill to a record acknowledged as folded by the replacement, which starts at once."""
    took: list[float] = []
    used: list[float] = []
    onto = publisher(clean_topics)
    with LiveWorker(clean_topics, tmp_path) as worker:
        for number in range(ROUNDS):
            beat(onto, 2 * number)
            worker.wait_caught_up(shard="main")
            worker.kill()
            killed_s = time.monotonic()
            beat(onto, 2 * number + 1)
            wanted = log_end(clean_topics, 0)
            worker.start()
            wait(partial(reached, worker, wanted), "folding")
            took.append(time.monotonic() - killed_s)
            used.append(process_cpu_s(worker.pid))
    onto.close()
    print(
        f"\nkill -9 to the replacement folding: median {statistics.median(took):.2f} s of "
        f"{ROUNDS} ({min(took):.2f} to {max(took):.2f} s), of it {statistics.median(used):.2f} s "
        "of its own CPU time"
    )


def big() -> Iterator[tuple[float, Record]]:
    return Simulation(NODES, minutes=MINUTES, seed=1).records()


def xid(number: int, at_s: float) -> Arrived:
    """A GPU that has fallen off the bus, of one node."""
    said = Event(
        at=at_s, node=f"n{number:04d}", source="bench", started_at=2.0, seq=number, type="xid",
        code=79, severity="critical", entity="pci:0000:c3:00", class_="gpu_lost",
        text="NVRM: Xid (PCI:0000:c3:00): 79, GPU has fallen off the bus.",
    )  # fmt: skip
    return Arrived(0, at_s, said)


def test_1024_nodes_first_new_finding_and_the_end_under_load(
    clean_topics: Broker, tmp_path: Path
) -> None:
    records = list(whole([tuple(big())]))[:-1]  # it goes on: no end
    onto = publisher(clean_topics)
    end_s = START_S + MINUTES * 60.0
    for arrived in records:
        publish(onto, TARGET, arrived)
    onto.flush()
    with LiveWorker(clean_topics, tmp_path, snapshot_s=30.0) as worker:
        wait(lambda: settled(worker, "history") > 0, "folding")
        began_s = time.monotonic()
        assert worker.stop() == 0
        ended_s = time.monotonic() - began_s
        worker.start()
        worker.wait_caught_up()
        told = log_end(clean_topics, 1, FINDINGS)
        worker.kill()
        killed_s = time.monotonic()
        worker.start()
        publish(onto, TARGET, xid(7, end_s + 1.0))
        onto.flush()
        wait(lambda: log_end(clean_topics, 1, FINDINGS) > told, "a new finding")
        first_s = time.monotonic() - killed_s
        worker.wait_caught_up()
        began_s = time.monotonic()
        assert worker.stop() == 0
        whole_s = time.monotonic() - began_s
        backlog = [line for line in worker.lines() if "records to catch up" in line][-1]
    print(f"\n{NODES} nodes, {len(records):,} records; the replacement: {backlog}")
    print(f"SIGTERM under load {ended_s:.2f} s, with the whole state to keep {whole_s:.2f} s")
    print(f"kill -9 to the first new finding {first_s:.2f} s")
    onto.close()
