"""A TOML file that an operator wrote: read whole, bounded, each fault one line."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from telemetry.errors import SettingsError

FILE_MAX_BYTES = 1024 * 1024


def read_toml(file: Path, what: str, remedy: str) -> dict[str, Any]:
    """Its tables. Raises SettingsError, one line with the file.

    what, remedy   "settings file"; what to do where it cannot be opened
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(FILE_MAX_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}; {remedy}") from error
    if len(data) > FILE_MAX_BYTES:
        raise SettingsError(f"{file}: over 1 MB, this is no {what}")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: no UTF-8 text at byte {error.start}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(f"{file}: no TOML: {error}") from error
