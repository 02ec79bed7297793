"""Time zones by their names."""

from __future__ import annotations

from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from telemetry.errors import InputError


def zone_named(name: str, where: str) -> tzinfo:
    """The zone; `InputError` that begins with `where` for a name that no zone has."""
    if name == "UTC":
        return UTC  # needs no time zone files
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputError(f"{where}: no time zone {name!r}; write one as Europe/Berlin") from error
