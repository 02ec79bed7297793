"""Simulated logs through Kafka and the live worker: told as replay tells them, to the byte."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

import msgspec
import numpy as np
import pytest

from evaluation.faults import parse_fault
from evaluation.simulator import Simulation
from telemetry.archive import ArchiveWriter
from telemetry.codec import encode
from telemetry.records import Frame, Record
from telemetry.topics import TELEMETRY
from tests.kafka.broker import Broker
from tests.kafka.comparing import fold_live, gist, incidents_replayed

pytestmark = pytest.mark.kafka
LATE_SHARE, LATE_MAX_S, TWICE_SHARE = 0.03, 120.0, 0.01


def test_a_simulation_onto_the_live_topics_is_told_as_its_archive_replays(
    kafka: Broker, tmp_path: Path
) -> None:
    truth = tmp_path / "truth.json"

    told = fold_live(
        kafka, tmp_path,
        ("simulate", "--nodes", "8", "--gpus", "2", "--minutes", "25",
         "--fault", "thermal@n002+600", "--truth", truth),
    )  # fmt: skip

    assert told.incidents == incidents_replayed(told.archive)
    assert gist(told.incidents) == [("gpu_thermal", "isolate_and_restart", ("n002",))]
    assert msgspec.json.decode(truth.read_bytes())["faults"][0]["nodes"] == ["n002"]


def test_late_and_repeated_records_are_counted_and_told_as_replay_tells_them(
    kafka: Broker, tmp_path: Path
) -> None:
    run = Simulation(
        8, 2, minutes=25.0, seed=5, faults=[parse_fault("ecn@n004+500")], nic_interval_s=15.0
    )
    write_log(tmp_path / "late", delayed(run))

    told = fold_live(kafka, tmp_path, ("import", tmp_path / "late"))

    assert told.incidents == incidents_replayed(told.archive)
    assert gist(told.incidents) == [("nic_congested", "isolate_and_restart", ("n004",))]
    assert told.metrics["late_total", "history"] > 5
    assert told.metrics["duplicate_total", "history"] > 5
    assert told.metrics["lost_total", "history"] == 0


def delayed(run: Simulation) -> Iterator[tuple[float, Record]]:
    """The run's records by arrival, some frames much later, some twice."""
    dice = np.random.default_rng(5)
    log: list[tuple[float, int, Record]] = []
    for number, (arrival_s, record) in enumerate(run.records()):
        if isinstance(record, Frame):
            late_s = LATE_MAX_S * float(dice.random()) if dice.random() < LATE_SHARE else 0.0
            log.append((round(arrival_s + late_s, 3), number, record))
            if dice.random() < TWICE_SHARE:
                log.append((round(arrival_s + late_s + 1.0, 3), number, record))
        else:
            log.append((arrival_s, number, record))
    log.sort(key=itemgetter(0, 1))
    yield from ((arrival_s, record) for arrival_s, _, record in log)


def write_log(out: Path, records: Iterator[tuple[float, Record]]) -> None:
    """An archive of a live shard."""
    with ArchiveWriter(out, TELEMETRY, 0) as writer:
        for offset, (arrival_s, record) in enumerate(records):
            kind = str(record.__struct_config__.tag).encode()
            time_ms = round(arrival_s * 1000.0)
            writer.append(offset, time_ms, encode(record), b"main", [("kind", kind)])
