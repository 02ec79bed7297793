"""Which files an archive has: `<topic>/<partition>/<first offset>.jsonl.zst`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from telemetry.errors import InputError
from telemetry.topics import TELEMETRY

TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")  # Kafka's own rule for names

_SUFFIX = ".jsonl.zst"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


class ArchiveFile(msgspec.Struct, frozen=True, order=True):
    """One file of an archive; they sort in offset order."""

    topic: str
    partition: int
    first_offset: int

    @property
    def relative(self) -> str:
        """Its path below the archive's directory."""
        return f"{self.topic}/{self.partition}/{self.first_offset}{_SUFFIX}"


def file_of(relative: str) -> ArchiveFile | None:
    """The archive file that stands at this path below the archive, None where none does."""
    parts = relative.split("/")
    if len(parts) != 3:
        return None
    topic, number, name = parts
    first = name.removesuffix(_SUFFIX)
    if first == name or not all(_NUMBER.fullmatch(text) for text in (number, first)):
        return None
    return ArchiveFile(topic, int(number), int(first)) if TOPIC_NAME.fullmatch(topic) else None


def is_archive(path: Path) -> bool:
    """Whether `path` is a directory with at least one archive file of any topic in its place."""
    return path.is_dir() and next(_files(path, None, None), None) is not None


def archive_files(
    path: Path, topic: str | None = TELEMETRY, partition: int | None = None
) -> list[ArchiveFile]:
    """The files of a topic (None: of all), by topic, partition and offset.

    Raises InputError where `path` is no directory that can be listed.
    """
    return sorted(_files(path, topic, partition))


def _files(path: Path, topic: str | None, partition: int | None) -> Iterator[ArchiveFile]:
    """Regular files in their place; symbolic links below `path` are not followed."""
    for topic_name in _directories(path):
        if not TOPIC_NAME.fullmatch(topic_name) or topic not in (None, topic_name):
            continue
        for number in _directories(path / topic_name):
            if not _NUMBER.fullmatch(number) or partition not in (None, int(number)):
                continue
            for name in _regular_files(path / topic_name / number):
                first = name.removesuffix(_SUFFIX)
                if first != name and _NUMBER.fullmatch(first):
                    yield ArchiveFile(topic_name, int(number), int(first))


def _directories(path: Path) -> list[str]:
    return [entry.name for entry in _entries(path) if entry.is_dir(follow_symlinks=False)]


def _regular_files(path: Path) -> list[str]:
    return [entry.name for entry in _entries(path) if entry.is_file(follow_symlinks=False)]


def _entries(path: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except NotADirectoryError:
        return []
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
