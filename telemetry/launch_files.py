"""The files between launcher and action service: whole or not at all, bounded, through no link.

The directory of a job belongs to its user, and the service may be root: whatever stands there is
somebody else's word. Each file is opened by its name below the open directory, without following
links; what is read is bounded and checked; what is written is a new file that takes the old one's
name.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path
from typing import TypeVar

import msgspec

from telemetry.errors import InputError, SourceUnavailable
from telemetry.launching import JOB_PATTERN

READ_MAX_BYTES = 8_000_000  # a status of 16,384 nodes with 8 ranks each has 3 MB
Kind = TypeVar("Kind")
_JOB = re.compile(JOB_PATTERN)


def write_file(directory: Path, name: str, value: object) -> None:
    """`value` as JSON under `name`, in one step. Raises SourceUnavailable."""
    part = f".{name}.{os.getpid()}"
    try:
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part, dir_fd=folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with open(os.open(part, flags, 0o644, dir_fd=folder), "wb") as file:
                file.write(msgspec.json.encode(value))
            os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise SourceUnavailable(f"{directory / name}: {error.strerror}") from error


def read_file(
    directory: Path, name: str, kind: type[Kind], owners: frozenset[int] | None = None
) -> Kind | None:
    """What stands under `name`; None where nothing does.

    owners  user ids whose file, in whose directory, it may be; None: anybody's
    raises  SourceUnavailable where it cannot be read, InputError where it is no `kind`
    """
    try:
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceUnavailable(f"{directory}: {error.strerror}") from error
    try:
        raw = _read(folder, name, owners)
        _check(os.fstat(folder), owners, "in a directory of")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceUnavailable(f"{directory / name}: {error.strerror}") from error
    except InputError as error:
        raise InputError(f"{directory / name}: {error}") from error
    finally:
        os.close(folder)
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{directory / name}: {error}") from error


def remove_file(directory: Path, name: str) -> bool:
    """Take `name` away; False where it was gone already. Raises SourceUnavailable."""
    try:
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise SourceUnavailable(f"{directory / name}: {error.strerror}") from error
    return True


def job_directory(root: Path, job: str) -> Path:
    """Where the files of a job are. Raises InputError where `job` is no job's name."""
    if _JOB.fullmatch(job) is None:
        raise InputError(f"{job[:40]!r} is no job's number")
    return root / job


def _read(folder: int, name: str, owners: frozenset[int] | None) -> bytes:
    # Without waiting: a pipe under this name must hold nobody up.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(name, flags, dir_fd=folder), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise InputError("no plain file")
        _check(about, owners, "written by")
        raw = file.read(READ_MAX_BYTES + 1)
    if len(raw) > READ_MAX_BYTES:
        raise InputError(f"more than {READ_MAX_BYTES} bytes")
    return raw


def _check(about: os.stat_result, owners: frozenset[int] | None, what: str) -> None:
    if owners is not None and about.st_uid not in owners:
        raise InputError(f"{what} user {about.st_uid}")
