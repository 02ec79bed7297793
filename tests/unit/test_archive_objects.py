"""An object store gets whole files once; no kill between here and there loses or doubles one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import fsspec
import pytest

from streams.archive_metrics import ArchiveMetrics
from streams.archive_objects import ObjectStore
from streams.archive_settler import Settler
from streams.archiver import Archiver
from telemetry.archive import ArchiveFile, ArchiveWriter, Torn, archive_files, read_archive
from telemetry.archive_manifest import parse_manifest
from telemetry.archive_repair import examine
from telemetry.errors import SettingsError, SourceUnavailable
from telemetry.settings import ArchiveSettings
from telemetry.testing import ManualClock, MemoryLog
from telemetry.topics import TELEMETRY

SMALL = ArchiveSettings(roll_bytes=600, flush_bytes=200)


@dataclass
class Place:
    """One archive in an object store, and the staging directory before it."""

    url: str
    staging: Path

    def store(self) -> ObjectStore:
        return ObjectStore(self.url, self.staging)

    def objects(self) -> list[str]:
        return [kept.file.relative for kept in self.store().kept()]

    def downloaded(self, target: Path) -> Path:
        """Everything that the store has, then what is still growing here."""
        system, root = fsspec.core.url_to_fs(self.url)
        for name in self.objects():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            system.get_file(f"{root}/{name}", str(target / name))
        for file in archive_files(self.staging, None):
            assert not (target / file.relative).exists()
            (target / file.relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.staging / file.relative, target / file.relative)
        return target


@pytest.fixture(params=["memory", "file", "local"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "memory":
        yield Place("memory://bucket/archive", tmp_path / "staging")
        system = fsspec.filesystem("memory")
        if system.exists("/bucket"):
            system.rm("/bucket", recursive=True)
    else:
        yield Place(f"{request.param}://{tmp_path}/objects", tmp_path / "staging")


@contextmanager
def archiving(log: MemoryLog, store: ObjectStore) -> Iterator[tuple[Archiver, Settler]]:
    clock, metrics = ManualClock(), ArchiveMetrics()
    settler = Settler(store, SMALL, 1_920.0, clock, metrics)
    archiver = Archiver(log.reader(), settler, SMALL, clock, metrics, topics=[TELEMETRY])
    try:
        archiver.start()
        yield archiver, settler
    finally:
        archiver.stop()


def more(log: MemoryLog, records: int) -> None:
    for _ in range(records):
        log.append(TELEMETRY, json.dumps({"n": log.now_ms, "pad": "x" * 40}).encode())
        log.now_ms += 1_000


def offsets(path: Path) -> list[int]:
    return [line.offset for line in read_archive(path) if not isinstance(line, Torn)]


def test_closed_files_are_put_and_the_growing_one_stays_here(place: Place, tmp_path: Path) -> None:
    log = MemoryLog({TELEMETRY: 1})
    for _ in range(3):
        more(log, 15)
        with archiving(log, place.store()) as (archiver, settler):
            archiver.step(0.1)
            settler.work()
    assert len(place.objects()) > 3
    assert len(archive_files(place.staging)) == 1
    assert offsets(place.downloaded(tmp_path / "all")) == list(range(45))
    system, root = fsspec.core.url_to_fs(place.url)
    assert list(parse_manifest(system.cat_file(f"{root}/manifest.json"))) == place.objects()


def test_a_lost_staging_directory_is_read_again_from_the_log(place: Place, tmp_path: Path) -> None:
    log = MemoryLog({TELEMETRY: 1})
    more(log, 15)
    with archiving(log, place.store()) as (archiver, settler):
        archiver.step(0.1)
        settler.work()
    shutil.rmtree(place.staging)
    system, root = fsspec.core.url_to_fs(place.url)
    system.rm_file(f"{root}/manifest.json")
    more(log, 5)
    with archiving(log, place.store()) as (archiver, _):
        archiver.step(0.1)
        assert archiver.gaps == []
    assert offsets(place.downloaded(tmp_path / "all")) == list(range(20))


def test_a_kill_between_the_put_and_the_removal_here_doubles_nothing(
    place: Place, tmp_path: Path
) -> None:
    log = MemoryLog({TELEMETRY: 1})
    more(log, 15)
    with archiving(log, place.store()) as (archiver, settler):
        archiver.step(0.1)
        copies = tmp_path / "copies"
        shutil.copytree(place.staging, copies)
        settler.work()
    shutil.rmtree(place.staging)
    shutil.copytree(copies, place.staging)
    more(log, 5)
    with archiving(log, place.store()) as (archiver, settler):
        archiver.step(0.1)
        settler.work()
    assert offsets(place.downloaded(tmp_path / "all")) == list(range(20))


def test_a_kill_before_the_put_is_made_up_at_the_next_start(place: Place, tmp_path: Path) -> None:
    log = MemoryLog({TELEMETRY: 1})
    more(log, 15)
    with archiving(log, place.store()) as (archiver, _):
        archiver.step(0.1)
    assert place.objects() == []
    with archiving(log, place.store()) as (archiver, settler):
        settler.work()
    assert len(place.objects()) == len(archive_files(place.downloaded(tmp_path / "all"))) - 1
    assert offsets(tmp_path / "all") == list(range(15))


def test_a_stale_staging_directory_yields_to_the_store_and_is_kept(
    place: Place, tmp_path: Path
) -> None:
    log = MemoryLog({TELEMETRY: 1})
    more(log, 1)
    with archiving(log, place.store()) as (archiver, settler):
        archiver.step(0.1)
        settler.work()
        stale = tmp_path / "stale"
        archiver.stop()
        shutil.copytree(place.staging, stale)
    more(log, 30)
    with archiving(log, place.store()) as (archiver, settler):
        archiver.step(0.1)
        settler.work()
    shutil.rmtree(place.staging)
    shutil.copytree(stale, place.staging)
    with archiving(log, place.store()) as (archiver, settler):
        archiver.step(0.1)
        settler.work()
    assert list(place.staging.rglob("*.superseded"))
    assert offsets(place.downloaded(tmp_path / "all")) == list(range(31))


def test_objects_are_removed_and_the_index_forgets_them(place: Place) -> None:
    log = MemoryLog({TELEMETRY: 1})
    more(log, 15)
    store = place.store()
    with archiving(log, store) as (archiver, settler):
        archiver.step(0.1)
        settler.work()
    first = store.kept()[0].file
    store.remove(first)
    store.remove(first)
    store.index()
    assert first.relative not in place.objects()
    system, root = fsspec.core.url_to_fs(place.url)
    assert first.relative not in parse_manifest(system.cat_file(f"{root}/manifest.json"))


def test_a_store_that_does_not_answer_keeps_the_file_waiting(tmp_path: Path) -> None:
    (tmp_path / "objects").write_text("no directory")
    store = ObjectStore(f"file://{tmp_path}/objects", tmp_path / "staging")
    with ArchiveWriter(tmp_path / "staging") as writer:
        writer.append(0, 1, b"1")
    metrics = ArchiveMetrics()
    settler = Settler(store, SMALL, 1_920.0, ManualClock(), metrics)
    settler.offer(ArchiveFile(TELEMETRY, 0, 0))
    with pytest.raises(SourceUnavailable, match="objects"):
        settler.work()
    assert metrics.registry.get_sample_value("nodewarden_archive_waiting_bytes") != 0
    (tmp_path / "objects").unlink()
    settler.work()
    assert metrics.registry.get_sample_value("nodewarden_archive_waiting_bytes") == 0
    assert examine(tmp_path / "objects", ArchiveFile(TELEMETRY, 0, 0)).lines == 1


def test_reading_pauses_while_too_much_waits_for_the_store(tmp_path: Path) -> None:
    chosen = ArchiveSettings(roll_bytes=600, flush_bytes=200, staging_max_bytes=1_000)
    log = MemoryLog({TELEMETRY: 1})
    more(log, 40)
    store = ObjectStore(f"file://{tmp_path}/objects", tmp_path / "staging")
    clock, metrics = ManualClock(), ArchiveMetrics()
    settler = Settler(store, chosen, 1_920.0, clock, metrics)
    archiver = Archiver(
        log.reader(records_max=10), settler, chosen, clock, metrics, topics=[TELEMETRY]
    )
    archiver.start()
    taken = sum(archiver.step(0.1) for _ in range(10))
    assert 10 <= taken < 40
    while taken < 40:
        settler.work()
        taken += archiver.step(0.1)
    archiver.stop()
    assert taken == 40


def test_a_scheme_that_nobody_knows_is_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nosuch"):
        ObjectStore("nosuch://bucket", tmp_path)
