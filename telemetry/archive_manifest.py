"""`manifest.json` of an archive: an index for people and tools; replay does not need it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from telemetry.archive import ArchiveFile, Torn, archive_files, read_archive_file


class ManifestFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file; offsets and timestamps (ms) are null where no line could be read."""

    path: str
    topic: str
    partition: int
    first_offset: int | None
    last_offset: int | None
    lines: int
    first_timestamp: int | None
    last_timestamp: int | None
    bytes: int
    torn: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """All files of all topics, in order."""

    version: int = 1
    files: list[ManifestFile]


def rebuild_manifest(path: Path) -> Manifest:
    """Read the whole archive and write its index anew, in one step.

    Raises InputError where `path` cannot be listed, OSError where it cannot be written.
    """
    manifest = Manifest(files=[_described(path, file) for file in archive_files(path, topic=None)])
    target = path / "manifest.json"
    partial = target.with_suffix(".json.partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
    os.replace(partial, target)
    return manifest


def _described(path: Path, file: ArchiveFile) -> ManifestFile:
    first: tuple[int, int] | None = None
    last: tuple[int, int] | None = None
    lines = torn = 0
    for found in read_archive_file(path, file):
        if isinstance(found, Torn):
            torn += 1
            continue
        lines += 1
        last = (found.offset, found.timestamp_ms)
        first = first or last
    return ManifestFile(
        path=file.relative,
        topic=file.topic,
        partition=file.partition,
        first_offset=first[0] if first is not None else None,
        last_offset=last[0] if last is not None else None,
        lines=lines,
        first_timestamp=first[1] if first is not None else None,
        last_timestamp=last[1] if last is not None else None,
        bytes=(path / file.relative).stat().st_size,
        torn=torn,
    )
