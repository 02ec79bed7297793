"""Command lines of the archiver and the inventory poller, as far as they need no broker."""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from nodewarden.archiving import archive
from nodewarden.cli import run
from nodewarden.clock import SystemClock
from nodewarden.serving import serve_metrics
from streams.archive_metrics import ArchiveMetrics
from streams.archive_store import DirectoryStore, WriterLock
from telemetry.archive import ArchiveWriter, Torn, read_archive
from telemetry.errors import SettingsError
from telemetry.records import Allocation, Beat, Record, Settings
from telemetry.settings import Configuration
from telemetry.testing import MemoryLog
from telemetry.topics import TELEMETRY, TOPICS
from tests.dying_archiver import UntilIdle
from tests.kafka.broker import free_port


def test_an_url_needs_a_staging_directory(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["archive", "--out", "s3://bucket/archive"], {}) == 2
    assert "archive.staging_dir" in capsys.readouterr().err


@pytest.mark.skipif(find_spec("s3fs") is not None, reason="s3fs is installed")
def test_s3_without_its_library_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"NODEWARDEN_ARCHIVE__STAGING_DIR": str(tmp_path)}
    assert run(["archive", "--out", "s3://bucket/archive"], environ) == 2
    assert "nodewarden[s3]" in capsys.readouterr().err


def test_a_metrics_address_that_is_none_stops_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"NODEWARDEN_ARCHIVE__METRICS_ADDRESS": "nowhere"}
    assert run(["archive", "--out", str(tmp_path)], environ) == 2
    assert "archive.metrics_address" in capsys.readouterr().err


def test_an_archiver_that_syncs_too_seldom_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"NODEWARDEN_ARCHIVE__SYNC_S": "60"}
    assert run(["archive", "--out", str(tmp_path)], environ) == 2
    assert "SYNC_S" in capsys.readouterr().err


def test_metrics_are_served_while_the_service_runs() -> None:
    metrics = ArchiveMetrics()
    metrics.gaps.labels(TELEMETRY, 0, "deleted").inc()
    address = f"127.0.0.1:{free_port()}"
    with serve_metrics(metrics.registry, address, "x"):
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5.0) as answer:
            text = answer.read().decode()
        with pytest.raises(SettingsError, match=re.escape(address)):
            serve_metrics(metrics.registry, address, "x").__enter__()
    names = {family.name for family in text_string_to_metric_families(text)}
    assert "nodewarden_archive_gaps" in names


def test_inventory_prints_one_listing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listing = tmp_path / "jobs.json"
    listing.write_text(json.dumps({"jobs": [{"id": "a", "nodes": ["n1"]}]}))
    assert run(["inventory", "--from", str(listing), "--once", "--stdout"], {}) == 0
    lines = capsys.readouterr().out.splitlines()
    records = [msgspec.json.decode(line, type=Record) for line in lines]
    assert [type(record) for record in records] == [Settings, Allocation, Beat]


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_inventory_without_a_listing_at_the_start_is_refused(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listing = tmp_path / "jobs.json"
    if text is not None:
        listing.write_text(text)
    assert run(["inventory", "--from", str(listing), "--once", "--stdout"], {}) == 2
    assert str(listing) in capsys.readouterr().err


def test_inventory_tells_no_history_shard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"NODEWARDEN_ENGINE__SHARD": "history"}
    asked = ["inventory", "--from", str(tmp_path / "jobs.json"), "--once", "--stdout"]
    assert run(asked, environ) == 2
    assert "no live shard" in capsys.readouterr().err


def test_what_was_archived_replays_as_what_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An archive through the log and the archiver into another one: the same incidents."""
    first, second = tmp_path / "first", tmp_path / "second"
    asked = ["--nodes", "16", "--minutes", "10", "--fault", "xid79@3+240", "--seed", "1"]
    assert run(["simulate", *asked, "--out", str(first)], {}) == 0
    log = MemoryLog({topic.name: 2 if topic.by_shard else 1 for topic in TOPICS})
    for line in read_archive(first):
        assert not isinstance(line, Torn)
        log.now_ms = line.timestamp_ms
        log.append(
            TELEMETRY, line.value, partition=line.partition, key=line.key, headers=line.headers
        )
    stop = threading.Event()
    archive(
        Configuration(), DirectoryStore(second), SystemClock(), ArchiveMetrics(), stop,
        reader=lambda: UntilIdle(log.reader(), stop),
    )  # fmt: skip
    capsys.readouterr()
    replayed = []
    for path in (first, second):
        assert run(["replay", str(path), "--json"], {}) == 0
        replayed.append(capsys.readouterr().out)
    assert replayed[0] == replayed[1]
    assert json.loads(replayed[0])["incidents"]


def test_an_archive_in_use_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ArchiveWriter(tmp_path) as writer:
        writer.append(0, 1, b"1")
    lock = WriterLock(tmp_path)
    environ = {"NODEWARDEN_ARCHIVE__METRICS_ADDRESS": ""}
    assert run(["archive", "--out", str(tmp_path), "--broker", "127.0.0.1:1"], environ) == 2
    lock.release()
    assert "another archiver" in capsys.readouterr().err
