"""Files between launcher and service: whole, bounded, through no link, nobody else's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from telemetry.errors import InputError, SourceUnavailable
from telemetry.launch_files import READ_MAX_BYTES, job_directory, read_file, remove_file, write_file
from telemetry.launching import LaunchOrder

ORDER = LaunchOrder(
    id="c1", job="7", attempt=0, do="restart", mode="in_place", expires_at=1.0, exclude=["n1"]
)


def test_what_is_written_is_read_and_what_is_not_there_is_none(tmp_path: Path) -> None:
    assert read_file(tmp_path, "order.json", LaunchOrder) is None
    assert read_file(tmp_path / "missing", "order.json", LaunchOrder) is None
    write_file(tmp_path, "order.json", ORDER)
    assert read_file(tmp_path, "order.json", LaunchOrder) == ORDER
    assert ["order.json"] == os.listdir(tmp_path)
    assert remove_file(tmp_path, "order.json")
    assert not remove_file(tmp_path, "order.json")


def test_a_link_is_neither_followed_nor_written_through(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("untouched")
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "order.json").symlink_to(secret)
    with pytest.raises(SourceUnavailable):
        read_file(folder, "order.json", LaunchOrder)
    write_file(folder, "order.json", ORDER)
    assert "untouched" == secret.read_text()
    assert not (folder / "order.json").is_symlink()
    (tmp_path / "linked").symlink_to(folder)
    with pytest.raises(SourceUnavailable):
        write_file(tmp_path / "linked", "order.json", ORDER)


def test_a_part_that_a_killed_writer_left_is_in_nobody_s_way(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("untouched")
    (tmp_path / f".order.json.{os.getpid()}").symlink_to(secret)
    write_file(tmp_path, "order.json", ORDER)
    assert ("untouched", ORDER) == (
        secret.read_text(), read_file(tmp_path, "order.json", LaunchOrder),
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"id": "c1"}',
        b'{"id":"../x","job":"7","attempt":0,"do":"stop","mode":"in_place","expires_at":1.0}',
        b'{"id":"c1","job":"7;id","attempt":0,"do":"stop","mode":"in_place","expires_at":1.0}',
        b'{"id":"c1","job":"7","attempt":-1,"do":"stop","mode":"in_place","expires_at":1.0}',
        b'{"id":"c1","job":"7","attempt":0,"do":"rm","mode":"in_place","expires_at":1.0}',
        b'{"id":"c1","job":"7","attempt":0,"do":"stop","mode":"in_place","expires_at":1.0,"x":1}',
        b'{"id":"c1","job":"7","attempt":0,"do":"stop","mode":"in_place","expires_at":1.0,'
        b'"nodes":["-x"]}',
        b'{"id":"c1","job":"7","attempt":0,"do":"stop","mode":"in_place","expires_at":1.0,'
        b'"versions":{"code":"$(id)"}}',
    ],
)  # fmt: skip
def test_what_is_no_order_is_said_and_not_taken(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "order.json").write_bytes(text)
    with pytest.raises(InputError, match=r"order\.json"):
        read_file(tmp_path, "order.json", LaunchOrder)


def test_more_than_the_bound_and_what_is_no_plain_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "order.json").open("wb") as file:
        file.truncate(READ_MAX_BYTES + 1)
    with pytest.raises(InputError, match="more than"):
        read_file(tmp_path, "order.json", LaunchOrder)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="no plain file"):
        read_file(tmp_path, "pipe", LaunchOrder)


def test_somebody_else_s_order_is_not_taken(tmp_path: Path) -> None:
    write_file(tmp_path, "order.json", ORDER)
    with pytest.raises(InputError, match="written by user"):
        read_file(tmp_path, "order.json", LaunchOrder, frozenset({os.getuid() + 1}))


def test_nothing_is_removed_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    write_file(tmp_path / "real", "order.json", ORDER)
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    with pytest.raises(SourceUnavailable):
        remove_file(tmp_path / "linked", "order.json")
    assert ["order.json"] == os.listdir(tmp_path / "real")


@pytest.mark.parametrize("job", ["", "..", "7/..", "7_", "a", "7 ", "7\n", "7+1", "-7"])
def test_what_is_no_job_s_number_has_no_directory(tmp_path: Path, job: str) -> None:
    with pytest.raises(InputError, match="is no job's number"):
        job_directory(tmp_path, job)


def test_tasks_of_an_array_have_directories_of_their_own(tmp_path: Path) -> None:
    assert tmp_path / "12_3" == job_directory(tmp_path, "12_3")
