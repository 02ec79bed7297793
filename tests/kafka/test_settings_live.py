"""F6, L5: a worker's settings file changes while it works."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from telemetry.archive_line import ArchiveLine
from telemetry.findings import Finding, Incident
from telemetry.records import Frame, Record, Settings
from telemetry.topics import FINDINGS, INCIDENTS, TELEMETRY
from tests.kafka.broker import Broker
from tests.kafka.comparing import incidents_live, incidents_replayed
from tests.kafka.conftest import fresh_topics
from tests.kafka.live import LiveArchiver, LiveWorker, log_end
from tests.kafka.live_cluster import ENGINE, LiveCluster
from tests.kafka.reading import read_all

pytestmark = pytest.mark.kafka
RUN_MAX_S = 90.0
_RECORD = msgspec.json.Decoder(Record)

# Congestion must hold for an hour, and the evidence be perfect: nothing is ever isolated.
STRICT = {**ENGINE, "should_be_zero": {"hold_s": 3_600.0}, "policy": {"confidence_min": 0.99}}
AWAKE = {**STRICT, "should_be_zero": ENGINE["should_be_zero"]}
USUAL = {**AWAKE, "policy": {"confidence_min": 0.5}}


def telemetry(broker: Broker) -> list[tuple[ArchiveLine, Record]]:
    """The live shard's log."""
    return [(line, _RECORD.decode(line.value or b"")) for line in read_all(broker, TELEMETRY)]


def revisions(broker: Broker) -> list[Incident]:
    """All that was said of incidents, in order."""
    return [
        msgspec.json.decode(line.value or b"", type=Incident)
        for line in read_all(broker, INCIDENTS)
    ]


def findings(broker: Broker) -> list[Finding]:
    """All that was said of findings, in order."""
    return [
        msgspec.json.decode(line.value or b"", type=Finding) for line in read_all(broker, FINDINGS)
    ]


def congested(broker: Broker) -> bool:
    """Whether `should_be_zero` has said so."""
    return any(found.detector == "should_be_zero" for found in findings(broker))


def action(broker: Broker) -> str:
    """Of the newest revision."""
    found = revisions(broker)
    return found[-1].verdict.action if found else ""


def wait_for(true: Callable[[], bool], what: str, deadline_s: float = 90.0) -> None:
    """Poll until `true`."""
    end_s = time.monotonic() + deadline_s
    while not true():
        assert time.monotonic() < end_s, f"not {what} within {deadline_s:g} s"
        time.sleep(0.2)


@contextmanager
def watching(broker: Broker, place: Path) -> Iterator[tuple[LiveWorker, LiveCluster]]:
    """A worker with strict settings, an archiver, and a cluster with a congested node."""
    fresh_topics(broker)
    with (
        LiveWorker(broker, place, settings={"engine": STRICT}) as worker,
        LiveArchiver(broker, place, place / "archive") as archiver,
    ):
        worker.wait_caught_up(1, "main")  # its settings are in force
        with LiveCluster(broker, RUN_MAX_S, ["ecn@n002+12*obvious"]) as cluster:
            yield worker, cluster
        worker.wait_caught_up(shard="main")
        archiver.wait_taken(log_end(broker, 0))


def test_f6_changed_thresholds_take_force_live_with_the_state_kept(
    kafka: Broker, tmp_path: Path
) -> None:
    with watching(kafka, tmp_path) as (worker, cluster):
        wait_for(lambda: action(kafka) == "diagnose", "told of the slow job and its evidence")
        assert not congested(kafka)

        worker.change_settings({"engine": AWAKE})
        wait_for(lambda: congested(kafka), "told of the congestion")
        assert action(kafka) == "diagnose"

        worker.change_settings({"engine": USUAL})
        wait_for(lambda: action(kafka) == "isolate_and_restart", "judged anew")
        cluster.stop()

    log = telemetry(kafka)
    changes = [(line, record.settings) for line, record in log if isinstance(record, Settings)]
    chosen = [(s.should_be_zero.hold_s, s.policy.confidence_min) for _, s in changes]
    assert chosen == [(3_600.0, 0.99), (6.0, 0.99), (6.0, 0.5)]
    awake_s, usual_s = (line.timestamp_ms / 1000.0 for line, _ in changes[1:])

    # The run of bad values before the change counts: said with the tick that closes next.
    first = next(found for found in findings(kafka) if found.detector == "should_be_zero")
    assert first.onset < awake_s
    scrapes = [
        record for line, record in log
        if isinstance(record, Frame) and (record.node, record.source) == ("n002", "nic")
        and awake_s < line.timestamp_ms / 1000.0 < first.at
    ]  # fmt: skip
    assert len(scrapes) <= 2

    # Judged anew by the record itself, and the incident is the same one.
    told = revisions(kafka)
    assert len({incident.id for incident in told}) == 1
    assert told[-1].verdict.targets == ["n002"]
    assert told[-1].verdict.at == usual_s
    assert {found.state for found in findings(kafka)} <= {"open", "update"}
    assert incidents_live(kafka) == incidents_replayed(tmp_path / "archive")


def test_l5_a_broken_settings_file_is_said_once_and_the_old_settings_stay(
    kafka: Broker, tmp_path: Path
) -> None:
    fresh_topics(kafka)

    def complaints() -> list[str]:
        return [line for line in worker.lines() if "not taken" in line]

    with LiveWorker(kafka, tmp_path) as worker:
        worker.wait_caught_up(1, "main")
        worker.write_settings("engine = [\n")
        wait_for(lambda: len(complaints()) == 1, "said that the file is broken")
        worker.change_settings({"engine": {"zscore": {"sigma": 3.0}}})
        wait_for(lambda: len(complaints()) == 2, "said that a key is unknown")
        worker.config.unlink()
        wait_for(lambda: len(complaints()) == 3, "said that the file is gone")
        assert log_end(kafka, 0) == 1
        worker.change_settings({"engine": {"zscore": {"sigmas": 3.0}}})
        worker.wait_caught_up(2, "main")

    broken, unknown, gone = complaints()
    assert "no TOML" in broken
    assert "engine.zscore.sigma" in unknown
    assert "sigmas" in unknown
    assert str(worker.config) in gone
    assert [
        record.settings.zscore.sigmas for _, record in telemetry(kafka)
        if isinstance(record, Settings)
    ] == [2.0, 3.0]  # fmt: skip
