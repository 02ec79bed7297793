"""Where closed files of an archive are kept: the port, and a directory of this machine."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from telemetry.archive import ArchiveFile, Extent, archive_files
from telemetry.archive_manifest import (
    MANIFEST,
    ManifestFile,
    manifest_file,
    parse_manifest,
    write_manifest,
)
from telemetry.errors import InputError
from telemetry.ports import Place


class KeptFile(msgspec.Struct, frozen=True):
    """One file that is kept; `modified_s` is when it was last written, Unix seconds."""

    file: ArchiveFile
    bytes: int
    modified_s: float


class ArchiveStore(Protocol):
    """Keeps closed files. Files grow in `work_dir`, a local directory, until they are closed.

    Raises SourceUnavailable where it does not answer; what was asked may be asked again.
    """

    @property
    def work_dir(self) -> Path:
        """Where files grow."""
        ...

    @property
    def remote(self) -> bool:
        """Whether closed files leave `work_dir`."""
        ...

    def newest(self) -> Mapping[Place, int]:
        """The last offset kept of each partition, elsewhere than in `work_dir`."""
        ...

    def has(self, file: ArchiveFile) -> bool:
        """Whether the file was settled as it stands in `work_dir`."""
        ...

    def settle(self, extent: Extent) -> None:
        """Keep a closed file for good; harmless where it is kept already."""
        ...

    def kept(self) -> Sequence[KeptFile]:
        """Everything that is kept."""
        ...

    def remove(self, file: ArchiveFile) -> None:
        """Forget one; harmless where it is gone already."""
        ...

    def index(self) -> None:
        """Write `manifest.json`: what was settled and not removed."""
        ...


class DirectoryStore:
    """A local directory: files grow where they stay.

    Raises InputError where the directory cannot be made.
    """

    remote = False

    def __init__(self, out_dir: Path) -> None:
        make_directory(out_dir)
        self._out_dir = out_dir
        self._manifest = _read_manifest(out_dir)
        self._indexed = True

    @property
    def work_dir(self) -> Path:
        """The directory itself."""
        return self._out_dir

    def newest(self) -> Mapping[Place, int]:
        """Nothing is kept elsewhere."""
        return {}

    def has(self, file: ArchiveFile) -> bool:
        """Whether the index knows it at its present size."""
        known = self._manifest.get(file.relative)
        return known is not None and known.bytes == (self._out_dir / file.relative).stat().st_size

    def settle(self, extent: Extent) -> None:
        """Note it for the index."""
        self._manifest[extent.file.relative] = manifest_file(extent)
        self._indexed = False

    def kept(self) -> Sequence[KeptFile]:
        """All files, the growing ones too."""
        return [kept_file(self._out_dir, file) for file in archive_files(self._out_dir, None)]

    def remove(self, file: ArchiveFile) -> None:
        """Delete it."""
        (self._out_dir / file.relative).unlink(missing_ok=True)
        self._manifest.pop(file.relative, None)
        self._indexed = False

    def index(self) -> None:
        """Write the index where something changed since."""
        if not self._indexed:
            write_manifest(self._out_dir, self._manifest.values())
            self._indexed = True


def kept_file(path: Path, file: ArchiveFile) -> KeptFile:
    """A file of the archive in `path` with its size and age."""
    found = (path / file.relative).stat()
    return KeptFile(file, found.st_size, found.st_mtime)


def make_directory(path: Path) -> None:
    """Make `path`. Raises InputError with the remedy."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; choose another directory") from error


class WriterLock:
    """Held while this process writes into a directory; the kernel frees it when we die.

    Raises InputError where another process holds it.
    """

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path / ".archiver.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._handle)
            raise InputError(f"{path}: another archiver writes here; stop it first") from error

    def release(self) -> None:
        """Let others write."""
        os.close(self._handle)


def _read_manifest(path: Path) -> dict[str, ManifestFile]:
    try:
        return parse_manifest((path / MANIFEST).read_bytes())
    except FileNotFoundError:
        return {}
