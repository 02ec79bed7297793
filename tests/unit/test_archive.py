"""An archive survives its writer's death: what is whole is read, what is torn is said."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telemetry.archive import (
    ArchiveFile,
    ArchiveWriter,
    Torn,
    archive_files,
    is_archive,
    read_archive,
)
from telemetry.archive_line import LINE_MAX, ArchiveLine
from telemetry.archive_manifest import rebuild_manifest
from telemetry.archive_records import read_records
from telemetry.codec import encode
from telemetry.errors import InputError
from telemetry.records import Arrived, Beat, Rejected
from telemetry.topics import FINDINGS, TELEMETRY
from telemetry.zstd_frames import whole_frames_end

AT_MS = 1_700_000_000_000


def write(
    path: Path, offsets: Sequence[int], flush_every: int = 2, roll_bytes: int = 1_000_000
) -> Path:
    with ArchiveWriter(path, TELEMETRY, 0, roll_bytes=roll_bytes) as writer:
        for count, offset in enumerate(offsets, start=1):
            writer.append(offset, AT_MS + offset, json.dumps({"n": offset}).encode(), b"main")
            if count % flush_every == 0:
                writer.flush()
    return path


def only_file(path: Path) -> Path:
    [file] = archive_files(path)
    return path / file.relative


def offsets_of(found: Sequence[ArchiveLine | Torn]) -> list[int]:
    return [line.offset for line in found if isinstance(line, ArchiveLine)]


def torn_of(found: Sequence[ArchiveLine | Torn]) -> list[Torn]:
    return [torn for torn in found if isinstance(torn, Torn)]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path, TELEMETRY, 3) as writer:
        writer.append(5, AT_MS, b'{"a":1}', b"main", [("kind", b"beat")])
        writer.append(9, AT_MS + 1, None, timestamp_type="CreateTime")
    assert (tmp_path / "nodewarden.telemetry" / "3" / "5.jsonl.zst").is_file()
    assert list(read_archive(tmp_path)) == [
        ArchiveLine(TELEMETRY, 3, 5, AT_MS, "LogAppendTime", (("kind", b"beat"),), b"main",
                    b'{"a":1}'),
        ArchiveLine(TELEMETRY, 3, 9, AT_MS + 1, "CreateTime", (), None, None),
    ]  # fmt: skip


def test_plain_zstd_tools_read_the_file(tmp_path: Path) -> None:
    write(tmp_path, range(5))
    with only_file(tmp_path).open("rb") as file:
        text = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
    assert [json.loads(line)["offset"] for line in text.splitlines()] == [0, 1, 2, 3, 4]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = write(tmp_path_factory.mktemp("small"), range(9))
    return only_file(path).read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_cut_at_any_byte_a_whole_prefix_is_read_and_the_tear_is_said(
    small: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(small)))
    place = tmp_path / TELEMETRY / "0"
    place.mkdir(parents=True, exist_ok=True)
    (place / "0.jsonl.zst").write_bytes(small[:cut])

    found = list(read_archive(tmp_path))

    whole = whole_frames_end(io.BytesIO(small), cut)
    assert offsets_of(found) == list(range(len(offsets_of(found))))
    assert len(offsets_of(found)) in (0, 2, 4, 6, 8, 9)
    assert [torn.reason for torn in torn_of(found)] == (
        [] if whole == cut else [f"torn tail of {cut - whole} bytes"]
    )
    if cut == len(small):
        assert offsets_of(found) == list(range(9))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_byte_never_raises_and_never_invents_an_offset(
    small: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(small) - 1))
    broken = bytearray(small)
    broken[at] ^= data.draw(st.integers(1, 255))
    place = tmp_path / TELEMETRY / "0"
    place.mkdir(parents=True, exist_ok=True)
    (place / "0.jsonl.zst").write_bytes(broken)
    found = list(read_archive(tmp_path))
    assert set(offsets_of(found)) <= set(range(9))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(max_size=400))
def test_random_bytes_are_torn_not_an_error(tmp_path: Path, noise: bytes) -> None:
    place = tmp_path / TELEMETRY / "0"
    place.mkdir(parents=True, exist_ok=True)
    (place / "0.jsonl.zst").write_bytes(noise)
    assert offsets_of(list(read_archive(tmp_path))) == []
    list(read_records(tmp_path))


def test_a_killed_writer_leaves_every_flushed_record(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from telemetry.archive import ArchiveWriter\n"
        "writer = ArchiveWriter(Path(sys.argv[1]))\n"
        "for offset in range(7):\n"
        "    writer.append(offset, 1, b'1')\n"
        "    if offset == 4: writer.sync()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert offsets_of(list(read_archive(tmp_path))) == [0, 1, 2, 3, 4]


def test_files_are_read_in_numeric_order_of_their_first_offset(tmp_path: Path) -> None:
    write(tmp_path, range(95, 112), roll_bytes=1)
    names = [file.first_offset for file in archive_files(tmp_path)]
    assert names == sorted(names)
    assert len(names) > 5
    assert offsets_of(list(read_archive(tmp_path))) == list(range(95, 112))


def test_a_file_rolls_by_record_time(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path, roll_s=10.0) as writer:
        for offset in range(25):
            writer.append(offset, AT_MS + 1_000 * offset, b"1")
    assert [file.first_offset for file in archive_files(tmp_path)] == [0, 10, 20]


def test_reading_starts_at_an_offset_without_opening_older_files(tmp_path: Path) -> None:
    write(tmp_path, range(20), roll_bytes=1)
    first = archive_files(tmp_path)[0]
    (tmp_path / first.relative).write_bytes(b"rubbish")
    found = list(read_archive(tmp_path, from_offset=13))
    assert offsets_of(found) == list(range(13, 20))
    assert torn_of(found) == []


def test_gaps_in_offsets_stay_visible(tmp_path: Path) -> None:
    write(tmp_path, [1, 2, 7, 8])
    assert offsets_of(list(read_archive(tmp_path))) == [1, 2, 7, 8]


def test_damage_in_one_file_does_not_hide_the_next(tmp_path: Path) -> None:
    write(tmp_path, range(8), roll_bytes=1)
    files = archive_files(tmp_path)
    path = tmp_path / files[1].relative
    path.write_bytes(path.read_bytes()[:-3])
    found = list(read_archive(tmp_path))
    assert offsets_of(found) == [0, 1, 4, 5, 6, 7]
    assert [torn.path for torn in torn_of(found)] == [files[1].relative]


def test_an_archive_is_never_written_over(tmp_path: Path) -> None:
    write(tmp_path, [4])
    with pytest.raises(InputError, match="exists already"):
        write(tmp_path, [4])


def test_a_record_that_no_reader_would_take_is_refused(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path) as writer, pytest.raises(InputError, match="over 16 MB"):
        writer.append(0, AT_MS, b" " * LINE_MAX)


def place_lines(path: Path, *lines: bytes) -> Path:
    place = path / TELEMETRY / "0"
    place.mkdir(parents=True)
    data = zstandard.ZstdCompressor().compress(b"\n".join(lines))
    (place / "0.jsonl.zst").write_bytes(data)
    return path


def raw_line(offset: int, value: bytes = b"1", topic: str = TELEMETRY) -> bytes:
    return b'{"topic":"%s","partition":0,"offset":%d,"timestamp":%d,"value":%s}' % (
        topic.encode(), offset, AT_MS, value,
    )  # fmt: skip


def test_a_giant_line_is_passed_over_in_bounded_memory(tmp_path: Path) -> None:
    giant = b"x" * (3 * LINE_MAX)
    found = list(read_archive(place_lines(tmp_path, raw_line(0), giant, raw_line(2))))
    assert offsets_of(found) == [0, 2]
    assert [torn.reason for torn in torn_of(found)] == ["line over 16 MB"]


def test_a_broken_line_is_said_and_the_next_is_read(tmp_path: Path) -> None:
    found = list(read_archive(place_lines(tmp_path, raw_line(0), b"{", raw_line(2))))
    assert offsets_of(found) == [0, 2]
    assert [torn.offset for torn in torn_of(found)] == [0]


def test_a_line_of_another_topic_is_not_believed(tmp_path: Path) -> None:
    found = list(read_archive(place_lines(tmp_path, raw_line(0, topic=FINDINGS), raw_line(1))))
    assert offsets_of(found) == [1]
    assert [torn.reason for torn in torn_of(found)] == ["holds a line of nodewarden.findings/0"]


def test_links_and_odd_names_are_not_followed(tmp_path: Path) -> None:
    path = write(tmp_path / "a", range(3))
    place = path / TELEMETRY / "0"
    (place / "7.jsonl.zst").symlink_to("/dev/zero")
    (place / "007.jsonl.zst").write_bytes(b"")
    (place / "notes.txt").write_text("x")
    (path / TELEMETRY / "1").symlink_to(place, target_is_directory=True)
    (path / TELEMETRY / "zero").mkdir()
    (path / "bad topic!").mkdir()
    assert archive_files(path) == [ArchiveFile(TELEMETRY, 0, 0)]


def test_what_is_an_archive(tmp_path: Path) -> None:
    assert not is_archive(tmp_path)
    assert not is_archive(tmp_path / "missing")
    (tmp_path / "file").write_text("x")
    assert not is_archive(tmp_path / "file")
    assert is_archive(write(tmp_path / "a", [0]))


def test_a_directory_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing"):
        list(read_archive(tmp_path / "missing"))


def test_a_file_that_cannot_be_opened_is_torn_and_the_next_is_read(tmp_path: Path) -> None:
    write(tmp_path, range(4), roll_bytes=1)
    files = archive_files(tmp_path)
    found = iter(read_archive(tmp_path))
    next(found)
    (tmp_path / files[1].relative).unlink()
    assert torn_of(list(found)) == [Torn(files[1].relative, "No such file or directory")]


def test_partitions_are_read_one_after_the_other(tmp_path: Path) -> None:
    for partition in (1, 0):
        with ArchiveWriter(tmp_path, TELEMETRY, partition) as writer:
            writer.append(10 + partition, AT_MS, b"1")
    assert offsets_of(list(read_archive(tmp_path))) == [10, 11]
    assert offsets_of(list(read_archive(tmp_path, partition=1))) == [11]


def test_the_manifest_is_an_index_that_can_be_rebuilt(tmp_path: Path) -> None:
    write(tmp_path, [1, 2, 7, 8])
    path = only_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    rebuild_manifest(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest == {
        "version": 1,
        "files": [{
            "path": "nodewarden.telemetry/0/1.jsonl.zst", "topic": TELEMETRY, "partition": 0,
            "first_offset": 1, "last_offset": 2, "lines": 2, "first_timestamp": AT_MS + 1,
            "last_timestamp": AT_MS + 2, "bytes": path.stat().st_size, "torn": 1,
        }],
    }  # fmt: skip
    assert is_archive(tmp_path)


def beat(seq: int) -> Beat:
    return Beat(at=AT_MS / 1000, node="", source="engine", started_at=0.0, seq=seq)


def test_records_arrive_at_their_place_with_the_archived_time(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path) as writer:
        for seq in range(3):
            writer.append(seq + 4, AT_MS + 500 * seq, encode(beat(seq)), b"main")
    assert list(read_records(tmp_path, from_offset=5)) == [
        Arrived(5, AT_MS / 1000 + 0.5, beat(1)),
        Arrived(6, AT_MS / 1000 + 1.0, beat(2)),
    ]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "null is no record"),
        (b"null", "null is no record"),
        (b"hello", "no record: JSON is malformed"),
        (b'{"kind":"rejected","reason":"r","text":"t"}', "no record: Invalid value 'rejected'"),
        (encode(beat(-1)), "seq: -1 is no position"),
        (b'{"kind":"beat"}', "no record: Object missing required field `at`"),
    ],
)
def test_a_value_that_is_no_record_is_rejected_at_its_place(
    tmp_path: Path, value: bytes | None, reason: str
) -> None:
    with ArchiveWriter(tmp_path) as writer:
        writer.append(4, AT_MS, value)
    [found] = read_records(tmp_path)
    assert isinstance(found, Arrived)
    assert isinstance(found.record, Rejected)
    assert found.record.reason.startswith(reason)
    assert found.record.place == "nodewarden.telemetry/0@4"


def test_both_readers_say_the_same_of_damage(tmp_path: Path) -> None:
    place_lines(tmp_path, raw_line(0, encode(beat(0))), b"{", raw_line(2, b"1"))
    slow = [type(found).__name__ for found in read_archive(tmp_path)]
    fast = [type(found).__name__ for found in read_records(tmp_path)]
    assert slow == ["ArchiveLine", "Torn", "ArchiveLine"]
    assert fast == ["Arrived", "Torn", "Arrived"]


def test_frames_of_other_writers_are_found_whole() -> None:
    """Many blocks, no checksum, run-length blocks, skippable frames."""
    zeros = zstandard.ZstdCompressor(write_checksum=False).compress(b"\0" * 1_000_000)
    noise = zstandard.ZstdCompressor(write_checksum=True).compress(bytes(range(256)) * 2_000)
    skippable = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    data = zeros + skippable + noise
    assert whole_frames_end(io.BytesIO(data), len(data)) == len(data)
    assert whole_frames_end(io.BytesIO(data), len(data) - 1) == len(zeros) + len(skippable)
    assert whole_frames_end(io.BytesIO(data), len(zeros) + 9) == len(zeros)
    assert whole_frames_end(io.BytesIO(b"PK\x03\x04"), 4) == 0
    reserved = b"\x28\xb5\x2f\xfd\x00\x00\x07\x00\x00"
    assert whole_frames_end(io.BytesIO(reserved), len(reserved)) == 0
    assert whole_frames_end(io.BytesIO(b""), 0) == 0


def test_a_topic_that_the_archive_does_not_hold_is_empty(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path, "nodewarden.telemetry", 0) as writer:
        writer.append(0, 1_000, b"{}")
    assert list(read_archive(tmp_path, "nodewarden.state")) == []
