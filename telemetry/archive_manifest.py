"""`manifest.json` of an archive: an index for people and tools; replay does not need it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from telemetry.archive import ArchiveFile, Extent, Torn, archive_files, read_archive_file

MANIFEST = "manifest.json"


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


def manifest_file(extent: Extent) -> ManifestFile:
    """The index's line of a file that is whole."""
    return ManifestFile(
        path=extent.file.relative,
        topic=extent.file.topic,
        partition=extent.file.partition,
        first_offset=extent.first_offset,
        last_offset=extent.last_offset,
        lines=extent.lines,
        first_timestamp=extent.first_ms,
        last_timestamp=extent.last_ms,
        bytes=extent.bytes,
        torn=0,
    )


def manifest_text(files: Iterable[ManifestFile]) -> bytes:
    """`manifest.json` with these files, in order."""
    ordered = sorted(files, key=lambda file: (file.topic, file.partition, file.first_offset or 0))
    return msgspec.json.format(msgspec.json.encode(Manifest(files=ordered)), indent=1) + b"\n"


def parse_manifest(data: bytes) -> dict[str, ManifestFile]:
    """The files of a manifest by path; empty where it is none, it can be made anew."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return {file.path: file for file in manifest.files}


def write_manifest(path: Path, files: Iterable[ManifestFile]) -> None:
    """Write the index of the archive in `path` in one step. Raises OSError."""
    target = path / MANIFEST
    partial = target.with_suffix(".json.partial")
    partial.write_bytes(manifest_text(files))
    os.replace(partial, target)


def rebuild_manifest(path: Path) -> Manifest:
    """Read the whole archive and write its index anew, in one step.

    Raises InputError where `path` cannot be listed, OSError where it cannot be written.
    """
    manifest = Manifest(files=[_described(path, file) for file in archive_files(path, topic=None)])
    write_manifest(path, manifest.files)
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
