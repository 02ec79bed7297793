"""An archive in an object store, through fsspec: files grow in a staging directory and are put
whole when they are closed; objects never change."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import fsspec
from fsspec.exceptions import FSTimeoutError

from streams.archive_store import KeptFile, make_directory
from telemetry.archive import ArchiveFile, Extent, archive_files, file_of
from telemetry.archive_manifest import (
    MANIFEST,
    ManifestFile,
    manifest_file,
    manifest_text,
    parse_manifest,
)
from telemetry.archive_repair import examine
from telemetry.errors import SettingsError, SourceUnavailable
from telemetry.ports import Place

Result = TypeVar("Result")

_LOCAL = ("file", "local")  # their puts are not whole or not at all
_S3 = ("s3", "s3a")


class ObjectStore:
    """Objects under `url`, as s3://bucket/prefix; `staging_dir` holds what is not yet there.

    Raises SettingsError where the URL's scheme needs something that is not installed.
    """

    remote = True

    def __init__(self, url: str, staging_dir: Path, endpoint_url: str = "") -> None:
        make_directory(staging_dir)
        self._url = url
        self._staging_dir = staging_dir
        self._protocol = url.partition("://")[0]
        options: dict[str, Any] = {}
        if endpoint_url and self._protocol in _S3:
            options["client_kwargs"] = {"endpoint_url": endpoint_url}
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url, **options)
        except ImportError as error:
            raise SettingsError(f"{url}: {error}; install nodewarden[s3]") from error
        except ValueError as error:
            raise SettingsError(f"{url}: {error}") from error
        self._failures = _failures()
        self._manifest: dict[str, ManifestFile] | None = None
        self._indexed = True

    @property
    def work_dir(self) -> Path:
        """The staging directory."""
        return self._staging_dir

    def newest(self) -> Mapping[Place, int]:
        """The last offset of each partition's newest object; local copies of objects go."""
        kept = self.kept()
        self._forget_copies(kept)
        newest: dict[Place, ArchiveFile] = {}
        for found in kept:
            place = (found.file.topic, found.file.partition)
            newest[place] = max(newest.get(place, found.file), found.file)
        sizes = {found.file: found.bytes for found in kept}
        return {place: self._last_offset(file, sizes[file]) for place, file in newest.items()}

    def has(self, file: ArchiveFile) -> bool:
        """What is still in the staging directory is not settled."""
        return False

    def settle(self, extent: Extent) -> None:
        """Put the file, compare its size and remove it here."""
        local = self._staging_dir / extent.file.relative
        if not local.exists():
            return
        target = self._path(extent.file.relative)
        self._ask(lambda: self._put(local, target))
        size = self._ask(lambda: int(self._fs.info(target)["size"]))
        if size != extent.bytes:
            raise SourceUnavailable(f"{target}: {size} bytes arrived of {extent.bytes}")
        self._index_files()[extent.file.relative] = manifest_file(extent)
        self._indexed = False
        local.unlink()

    def kept(self) -> Sequence[KeptFile]:
        """All objects that are archive files in their place."""
        found = self._ask(self._listed)
        kept = []
        for path, info in found.items():
            file = file_of(path[len(self._root) :].lstrip("/"))
            if file is not None:
                kept.append(KeptFile(file, int(info["size"]), _modified_s(info)))
        return sorted(kept, key=lambda found: found.file)

    def remove(self, file: ArchiveFile) -> None:
        """Delete the object."""
        self._ask(lambda: self._remove(self._path(file.relative)))
        self._index_files().pop(file.relative, None)
        self._indexed = False

    def index(self) -> None:
        """Put the index where something changed since."""
        if not self._indexed:
            data = manifest_text(self._index_files().values())
            self._ask(lambda: self._fs.pipe_file(self._path(MANIFEST), data))
            self._indexed = True

    def _forget_copies(self, kept: Sequence[KeptFile]) -> None:
        """A kill between the put and the removal here leaves the file in both places."""
        sizes = {found.file: found.bytes for found in kept}
        for file in archive_files(self._staging_dir, None):
            local = self._staging_dir / file.relative
            if sizes.get(file) == local.stat().st_size:
                local.unlink()

    def _last_offset(self, file: ArchiveFile, size: int) -> int:
        known = self._index_files().get(file.relative)
        if known is not None and known.bytes == size and known.last_offset is not None:
            return known.last_offset
        fetched = self._staging_dir / ".fetched"
        local = fetched / file.relative
        local.parent.mkdir(parents=True, exist_ok=True)
        self._ask(lambda: self._fs.get_file(self._path(file.relative), str(local)))
        extent = examine(fetched, file)
        local.unlink()
        return file.first_offset - 1 if extent.last_offset is None else extent.last_offset

    def _index_files(self) -> dict[str, ManifestFile]:
        if self._manifest is None:
            try:
                data = self._ask(lambda: bytes(self._fs.cat_file(self._path(MANIFEST))))
            except FileNotFoundError:
                data = b""
            self._manifest = parse_manifest(data)
        return self._manifest

    def _listed(self) -> dict[str, dict[str, Any]]:
        self._fs.invalidate_cache()
        if not self._fs.exists(self._root):
            return {}
        return dict(self._fs.find(self._root, detail=True))

    def _put(self, local: Path, target: str) -> None:
        if self._protocol not in _LOCAL:
            self._fs.put_file(str(local), target)
            return
        self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._fs.put_file(str(local), f"{target}.part")
        os.replace(f"{target}.part", target)

    def _remove(self, target: str) -> None:
        if self._fs.exists(target):
            self._fs.rm_file(target)

    def _path(self, relative: str) -> str:
        return f"{self._root.rstrip('/')}/{relative}"

    def _ask(self, question: Callable[[], Result]) -> Result:
        try:
            return question()
        except FileNotFoundError:
            raise
        except self._failures as error:
            raise SourceUnavailable(f"{self._url}: {error}") from error


def _failures() -> tuple[type[Exception], ...]:
    """What fsspec and, where it is installed, Amazon's library raise over a store's answers."""
    found: tuple[type[Exception], ...] = (OSError, FSTimeoutError)
    try:
        library = importlib.import_module("botocore.exceptions")
    except ImportError:
        return found
    return (*found, library.BotoCoreError, library.ClientError)


def _modified_s(info: Mapping[str, Any]) -> float:
    """When the object was written: each file system has its own word for it."""
    for name in ("LastModified", "last_modified", "mtime", "created"):
        at = info.get(name)
        if at is not None:
            return float(at) if isinstance(at, int | float) else float(at.timestamp())
    return 0.0
