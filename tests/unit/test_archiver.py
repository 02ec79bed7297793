"""What the archiver takes stands in the archive once and without a gap, whatever happens to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.archive_metrics import ArchiveMetrics
from streams.archive_settler import Settler
from streams.archive_store import DirectoryStore, WriterLock
from streams.archiver import BOUNDS_EVERY_S, DISCOVER_EVERY_S, Archiver, Gap
from telemetry.archive import Torn, archive_files, read_archive
from telemetry.archive_manifest import parse_manifest, rebuild_manifest
from telemetry.errors import InputError, SourceUnavailable
from telemetry.ports import Place
from telemetry.settings import ArchiveSettings
from telemetry.testing import ManualClock, MemoryLog, MemoryLogReader
from telemetry.topics import INVENTORY, TELEMETRY

TOPICS = (TELEMETRY, INVENTORY)
PLAIN = ArchiveSettings()
SMALL = ArchiveSettings(roll_bytes=600, flush_bytes=200)


@contextmanager
def archiving(
    log: MemoryLog, out: Path, clock: ManualClock, chosen: ArchiveSettings = PLAIN
) -> Iterator[Archiver]:
    """An archiver that started; stopped in the end, as by SIGTERM."""
    metrics = ArchiveMetrics()
    settler = Settler(DirectoryStore(out), chosen, 1_920.0, clock, metrics)
    archiver = Archiver(log.reader(), settler, chosen, clock, metrics, topics=TOPICS)
    try:
        archiver.start()
        yield archiver
    finally:
        archiver.stop()
        settler.work()


def filled(records: int = 10, topic: str = TELEMETRY) -> MemoryLog:
    log = MemoryLog({TELEMETRY: 2, INVENTORY: 1})
    more(log, records, topic)
    return log


def more(log: MemoryLog, records: int, topic: str = TELEMETRY) -> None:
    for _ in range(records):
        log.append(topic, json.dumps({"n": log.now_ms, "pad": "x" * 40}).encode(), key=b"main")
        log.now_ms += 1_000


def offsets(out: Path, topic: str = TELEMETRY) -> list[int]:
    found = list(read_archive(out, topic))
    assert not [torn for torn in found if isinstance(torn, Torn)]
    return [line.offset for line in found if not isinstance(line, Torn)]


def run(archiver: Archiver, steps: int = 3) -> None:
    for _ in range(steps):
        archiver.step(0.1)


def test_every_topic_is_archived_as_it_was(tmp_path: Path) -> None:
    log = filled(3)
    log.append(TELEMETRY, b'{"a":1}', partition=1, key=b"history", headers=[("kind", b"beat")])
    log.append(INVENTORY, None, key=b"job/7")
    with archiving(log, tmp_path, ManualClock()) as archiver:
        run(archiver)
    for place in ((TELEMETRY, 0), (TELEMETRY, 1), (INVENTORY, 0)):
        assert list(read_archive(tmp_path, *place)) == list(log.records(place, 0))


def test_a_restart_goes_on_in_the_same_file(tmp_path: Path) -> None:
    log, clock = filled(10), ManualClock()
    for _ in range(3):
        with archiving(log, tmp_path, clock) as archiver:
            run(archiver)
        more(log, 5)
    assert offsets(tmp_path) == list(range(20))
    assert len(archive_files(tmp_path)) == 1


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(0, 400), min_size=1, max_size=5))
def test_a_tail_torn_anywhere_is_cut_and_read_again(
    cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = tmp_path_factory.mktemp("archive")
    log, clock = filled(8), ManualClock()
    for cut in cuts:
        with archiving(log, out, clock, SMALL) as archiver:
            run(archiver)
        newest = out / archive_files(out)[-1].relative
        data = newest.read_bytes()
        newest.write_bytes(data[: max(0, len(data) - cut)])
        more(log, 4)
    with archiving(log, out, clock, SMALL) as archiver:
        run(archiver)
    assert offsets(out) == list(range(8 + 4 * len(cuts)))


def test_a_file_without_a_whole_record_says_where_to_go_on(tmp_path: Path) -> None:
    """Its name: what the broker deleted since is a gap although nothing was ever archived."""
    place = tmp_path / TELEMETRY / "0"
    place.mkdir(parents=True)
    (place / "4.jsonl.zst").write_bytes(b"\x28\xb5")
    log = filled(10)
    log.trim(TELEMETRY, 0, 6)
    with archiving(log, tmp_path, ManualClock()) as archiver:
        run(archiver)
        assert archiver.gaps == [Gap(TELEMETRY, 0, 4, 6, "deleted")]
    assert offsets(tmp_path) == [6, 7, 8, 9]
    assert [file.first_offset for file in archive_files(tmp_path)] == [6]


def test_broken_frames_are_kept_beside_the_file_and_read_again(tmp_path: Path) -> None:
    log, clock = filled(10), ManualClock()
    with archiving(log, tmp_path, clock, ArchiveSettings(flush_bytes=1)) as archiver:
        run(archiver)
    [file] = archive_files(tmp_path)
    path = tmp_path / file.relative
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with archiving(log, tmp_path, clock) as archiver:
        run(archiver)
    assert offsets(tmp_path) == list(range(10))
    assert path.with_name(f"{path.name}.damaged").stat().st_size > 0


def test_what_the_broker_deleted_while_we_were_away_is_a_gap_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, clock = filled(10), ManualClock()
    with archiving(log, tmp_path, clock) as archiver:
        run(archiver)
    more(log, 10)
    log.trim(TELEMETRY, 0, 15)
    with archiving(log, tmp_path, clock) as archiver:
        run(archiver)
        assert archiver.gaps == [Gap(TELEMETRY, 0, 10, 15, "deleted")]
    assert "gap topic=nodewarden.telemetry partition=0 first=10 until=15" in caplog.text
    assert offsets(tmp_path) == [*range(10), *range(15, 20)]


def test_what_the_broker_deletes_before_our_eyes_is_a_gap(tmp_path: Path) -> None:
    log, clock = filled(10), ManualClock()
    with archiving(log, tmp_path, clock) as archiver:
        run(archiver)
        more(log, 10)
        log.trim(TELEMETRY, 0, 15)
        run(archiver)
        assert archiver.gaps == [Gap(TELEMETRY, 0, 10, 15, "deleted")]


def test_a_gap_is_said_also_where_nothing_is_left(tmp_path: Path) -> None:
    log, clock = filled(10), ManualClock()
    with archiving(log, tmp_path, clock) as archiver:
        run(archiver)
        more(log, 10)
        log.trim(TELEMETRY, 0, 20)
        clock.advance(BOUNDS_EVERY_S)
        run(archiver)
        assert archiver.gaps == [Gap(TELEMETRY, 0, 10, 20, "deleted")]
        more(log, 1)
        run(archiver)
        assert len(archiver.gaps) == 1
    assert offsets(tmp_path)[-1] == 20


def test_a_gap_seen_while_the_broker_goes_away_is_said_later(tmp_path: Path) -> None:
    log = filled(10)
    with archiving(log, tmp_path, ManualClock()) as archiver:
        run(archiver)
        more(log, 10)
        log.trim(TELEMETRY, 0, 15)
        log.refuse(1)
        with pytest.raises(SourceUnavailable):
            archiver.step(0.1)
        run(archiver)
        assert archiver.gaps == [Gap(TELEMETRY, 0, 10, 15, "deleted")]


def test_offsets_that_compaction_left_out_are_no_gap(tmp_path: Path) -> None:
    log = filled(10, INVENTORY)
    log.compact(INVENTORY, 0, [2, 3, 7])
    with archiving(log, tmp_path, ManualClock()) as archiver:
        run(archiver)
        assert archiver.gaps == []
    assert offsets(tmp_path, INVENTORY) == [0, 1, 4, 5, 6, 8, 9]


def test_the_archive_of_another_log_is_refused(tmp_path: Path) -> None:
    clock = ManualClock()
    with archiving(filled(10), tmp_path, clock) as archiver:
        run(archiver)
    with (
        pytest.raises(InputError, match="another cluster's archive"),
        archiving(filled(5), tmp_path, clock),
    ):
        pass


def test_a_broker_that_goes_away_loses_and_doubles_nothing(tmp_path: Path) -> None:
    log = filled(10)
    with archiving(log, tmp_path, ManualClock()) as archiver:
        run(archiver)
        log.refuse(1)
        with pytest.raises(SourceUnavailable):
            archiver.step(0.1)
        more(log, 3)
        run(archiver)
    assert offsets(tmp_path) == list(range(13))


def test_what_was_taken_is_on_the_disk_after_the_sync_interval(tmp_path: Path) -> None:
    log, clock = filled(10), ManualClock()
    with archiving(log, tmp_path, clock) as archiver:
        archiver.step(0.1)
        assert offsets(tmp_path) == []
        clock.advance(PLAIN.sync_s)
        archiver.step(0.1)
        assert offsets(tmp_path) == list(range(10))


class Slow(MemoryLogReader):
    """Looks at the disk whenever it is asked something that may take long."""

    def __init__(self, log: MemoryLog, out: Path) -> None:
        super().__init__(log, 500)
        self._out = out
        self.seen: list[list[int]] = []

    def bounds(self, places: Sequence[Place]) -> Mapping[Place, tuple[int, int]]:
        self.seen.append(offsets(self._out))
        return super().bounds(places)


def test_before_a_question_to_the_broker_everything_is_on_the_disk(tmp_path: Path) -> None:
    log, clock, metrics = filled(10), ManualClock(), ArchiveMetrics()
    reader = Slow(log, tmp_path)
    settler = Settler(DirectoryStore(tmp_path), PLAIN, 1_920.0, clock, metrics)
    archiver = Archiver(reader, settler, PLAIN, clock, metrics, topics=TOPICS)
    archiver.start()
    archiver.step(0.1)
    more(log, 5)
    clock.advance(BOUNDS_EVERY_S)
    archiver.step(0.1)
    log.trim(TELEMETRY, 0, 15)
    more(log, 5)
    log.trim(TELEMETRY, 0, 18)
    archiver.step(0.1)
    archiver.stop()
    assert reader.seen == [[], list(range(15)), list(range(15))]


def test_a_closed_file_that_somebody_removed_does_not_stop_the_others(tmp_path: Path) -> None:
    log, clock = filled(40), ManualClock()
    with archiving(log, tmp_path, clock, SMALL) as archiver:
        run(archiver)
    files = archive_files(tmp_path)
    (tmp_path / "manifest.json").unlink()
    metrics = ArchiveMetrics()
    settler = Settler(DirectoryStore(tmp_path), SMALL, 1_920.0, clock, metrics)
    for file in files[:3]:
        settler.offer(file)
    (tmp_path / files[0].relative).unlink()
    (tmp_path / files[1].relative).write_bytes(zstandard.compress(b"no record\n"))
    settler.work()
    said = parse_manifest((tmp_path / "manifest.json").read_bytes())
    assert list(said) == [files[2].relative]


def test_a_topic_that_comes_into_being_is_archived_from_its_first_record(tmp_path: Path) -> None:
    log, clock = MemoryLog({TELEMETRY: 1}), ManualClock()
    with archiving(log, tmp_path, clock) as archiver:
        run(archiver)
        log.create(INVENTORY, 1)
        more(log, 4, INVENTORY)
        clock.advance(DISCOVER_EVERY_S)
        run(archiver)
    assert offsets(tmp_path, INVENTORY) == [0, 1, 2, 3]


def test_files_roll_and_the_index_knows_the_closed_ones(tmp_path: Path) -> None:
    log = filled(40)
    with archiving(log, tmp_path, ManualClock(), SMALL) as archiver:
        run(archiver)
    files = archive_files(tmp_path)
    assert len(files) > 3
    said = parse_manifest((tmp_path / "manifest.json").read_bytes())
    assert list(said) == [file.relative for file in files[:-1]]
    whole = {file.path: file for file in rebuild_manifest(tmp_path).files}
    assert said == {path: whole[path] for path in said}


def test_an_idle_partition_closes_its_file_by_time(tmp_path: Path) -> None:
    log, clock = filled(5), ManualClock()
    with archiving(log, tmp_path, clock) as archiver:
        for _ in range(3):
            clock.advance(PLAIN.roll_s)
            archiver.step(0.1)
        more(log, 1)
        run(archiver)
    assert [file.first_offset for file in archive_files(tmp_path)] == [0, 5]


def test_a_closed_file_is_never_continued(tmp_path: Path) -> None:
    log, clock = filled(5), ManualClock()
    with archiving(log, tmp_path, clock) as archiver:
        for _ in range(3):
            clock.advance(PLAIN.roll_s)
            archiver.step(0.1)
    more(log, 1)
    with archiving(log, tmp_path, clock) as archiver:
        run(archiver)
    assert [file.first_offset for file in archive_files(tmp_path)] == [0, 5]
    assert offsets(tmp_path) == list(range(6))


def test_a_record_that_no_line_holds_is_a_gap_and_the_next_is_taken(tmp_path: Path) -> None:
    log = filled(1)
    log.append(TELEMETRY, b"\xff" * 13_000_000)
    more(log, 1)
    with archiving(log, tmp_path, ManualClock()) as archiver:
        run(archiver)
        assert archiver.gaps == [Gap(TELEMETRY, 0, 1, 2, "too_large")]
    assert offsets(tmp_path) == [0, 2]


def test_two_archivers_do_not_write_into_one_directory(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path)
    with pytest.raises(InputError, match="another archiver writes here"):
        WriterLock(tmp_path)
    lock.release()
    WriterLock(tmp_path).release()


def lag(archiver: Archiver, topic: str, partition: int) -> float:
    value = archiver._metrics.registry.get_sample_value(
        "nodewarden_archive_lag_records", {"topic": topic, "partition": str(partition)}
    )
    assert value is not None
    return value


def test_lag_and_bytes_are_metrics(tmp_path: Path) -> None:
    log, clock = filled(1_200), ManualClock()
    with archiving(log, tmp_path, clock) as archiver:
        clock.advance(BOUNDS_EVERY_S)
        archiver.step(0.1)
        assert lag(archiver, TELEMETRY, 0) == 700
        run(archiver)
        clock.advance(BOUNDS_EVERY_S)
        archiver.step(0.1)
        assert lag(archiver, TELEMETRY, 0) == 0
        written = archiver._metrics.registry.get_sample_value(
            "nodewarden_archive_written_bytes_total", {"topic": TELEMETRY}
        )
    [file] = archive_files(tmp_path)
    assert written == (tmp_path / file.relative).stat().st_size
