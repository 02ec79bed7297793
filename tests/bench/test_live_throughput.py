"""Samples per CPU second of the worker, through Kafka and Faust, and the share of each part.

Printed, never asserted: machines differ.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

from collectors.broker.publisher import KafkaPublisher
from evaluation.simulator import Simulation
from nodewarden.clock import SystemClock
from nodewarden.shards import Target
from telemetry.metrics import CATALOGUE
from telemetry.records import Arrived, Frame, Record, Steps
from telemetry.settings import KafkaSettings
from tests.bench.brokers import clean_topics, kafka, process_cpu_s
from tests.bench.worker_modes import MODES
from tests.kafka.broker import Broker
from tests.kafka.feed import publish, whole
from tests.kafka.live import LiveWorker

__all__ = ["clean_topics", "kafka"]
pytestmark = [pytest.mark.bench, pytest.mark.kafka, pytest.mark.slow]

NODES, GPUS, METRICS = 512, 8, 60  # 480 values a frame
MINUTES = 8.0
TARGET = Target("history", 1)


def frames() -> Iterator[tuple[float, Record]]:
    """A quiet job whose GPU frames have 60 metrics every 10 s; seed 1."""
    run = Simulation(NODES, GPUS, minutes=MINUTES, seed=1, gpu_interval_s=10.0, nic_interval_s=10.0)
    names = [metric.name for metric in CATALOGUE if metric.device == "gpu"]
    noise = random.Random(1)
    pool = [[50.0 + noise.random() for _ in range(GPUS)] for _ in range(997)]
    for place, (arrival, record) in enumerate(run.records()):
        if isinstance(record, Steps):
            continue
        if isinstance(record, Frame):
            if record.source != "gpu":
                continue
            missing = [name for name in names if name not in record.metrics]
            more = {
                name: pool[(place + 7 * number) % len(pool)]
                for number, name in enumerate(missing[: METRICS - len(record.metrics)])
            }
            yield arrival, msgspec.structs.replace(record, metrics={**record.metrics, **more})
        else:
            yield arrival, record


def steps() -> Iterator[tuple[float, Record]]:
    """The same job's steps alone, all ranks of a node in one message."""
    run = Simulation(NODES, GPUS, minutes=MINUTES, seed=1)
    return ((at_s, record) for at_s, record in run.records() if not isinstance(record, Frame))


def test_samples_per_cpu_second(clean_topics: Broker, tmp_path: Path) -> None:
    measured(clean_topics, tmp_path, frames(), "frames")


def test_steps_per_cpu_second(clean_topics: Broker, tmp_path: Path) -> None:
    measured(clean_topics, tmp_path, steps(), "steps")


def measured(
    broker: Broker, directory: Path, records: Iterable[tuple[float, Record]], what: str
) -> None:
    messages, samples, size = fill(broker, records)
    print(f"\n{messages:,} records ({what}), {samples / 1e6:.1f} M samples, {size / 1e6:.0f} MB")
    spent: dict[str, float] = {}
    for mode in MODES:
        spent[mode] = min(spent_s(broker, directory, mode) for _ in range(2))
        per_s = f"{messages / spent[mode]:9,.0f} records"
        if samples:
            per_s += f" and {samples / spent[mode] / 1e6:6.2f} M samples"
        print(f"{mode:<10} {spent[mode]:6.2f} CPU s {per_s} per CPU second")
    whole_s = spent["all"]
    print(
        f"share: transport {spent['transport'] / whole_s:.0%}, "
        f"decode {(spent['decode'] - spent['transport']) / whole_s:.0%}, "
        f"detection {(whole_s - spent['decode']) / whole_s:.0%}"
    )


def fill(broker: Broker, records: Iterable[tuple[float, Record]]) -> tuple[int, int, int]:
    """(records, samples, bytes) in the history shard."""
    publisher = KafkaPublisher(KafkaSettings(brokers=(broker.address,)), SystemClock())
    count = samples = size = 0
    for arrived in whole([records]):
        publish(publisher, TARGET, arrived)
        count += 1
        size += len(msgspec.json.encode(arrived.record))
        samples += values(arrived)
    publisher.flush()
    publisher.close()
    return count, samples, size


def values(arrived: Arrived) -> int:
    """How many the record holds."""
    record = arrived.record
    if not isinstance(record, Frame):
        return 0
    return sum(len(column) for column in record.metrics.values())


def spent_s(broker: Broker, directory: Path, mode: str) -> float:
    """CPU seconds of a new worker from its start to the end of the log, less those of its start.

    Its first partition is empty: when that is there and the other not, nothing is folded yet.
    """
    program = ("-m", "tests.bench.worker_modes", mode)
    # One instance id: what a killed worker held goes to the next one at once.
    worker = LiveWorker(broker, directory, program=program, snapshot_s=3_600.0)
    with worker:
        idle_s = start_s(worker)
        worker.wait_caught_up(deadline_s=300.0)
        used_s = process_cpu_s(worker.pid) - idle_s
        worker.kill()
    return used_s


def start_s(worker: LiveWorker) -> float:
    """CPU seconds when the worker has loaded its shards."""
    worker.wait_until(lambda found: found.get(("loads_total", ""), 0.0) >= 1, "loading")
    return process_cpu_s(worker.pid)
