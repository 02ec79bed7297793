"""Revisions of incidents by their place in the log, out of an archive, kept on disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from actions.service import Place
from telemetry.archive import Torn, read_archive
from telemetry.findings import Incident
from telemetry.topics import INCIDENTS

KNOWN_MAX = 2_000  # decoded ones in memory


class Incidents:
    """Those that are wanted. Say which with `want`, then `read` the archive, then ask `at`."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.execute(
            "CREATE TABLE incident (partition INTEGER, place INTEGER, value BLOB,"
            " PRIMARY KEY (partition, place)) WITHOUT ROWID"
        )
        self.at = lru_cache(maxsize=KNOWN_MAX)(self._at)

    def want(self, place: Place) -> None:
        """Keep that one when it comes."""
        self._database.execute("INSERT OR IGNORE INTO incident VALUES (?, ?, NULL)", place)

    def read(self, path: Path) -> list[str]:
        """Read the archive; what of it was torn."""
        torn: list[str] = []
        for found in read_archive(path, INCIDENTS):
            if isinstance(found, Torn):
                torn.append(f"{found.path}: {found.reason}")
                continue
            self._database.execute(
                "UPDATE incident SET value = ? WHERE partition = ? AND place = ?",
                (found.value, found.partition, found.offset),
            )
        return torn

    def _at(self, place: Place) -> Incident | None:
        found = self._database.execute(
            "SELECT value FROM incident WHERE partition = ? AND place = ?", place
        ).fetchone()
        if found is None or found[0] is None:
            return None
        try:
            return msgspec.json.decode(found[0], type=Incident)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


@contextmanager
def incidents() -> Iterator[Incidents]:
    """Nothing of them stays behind."""
    with (
        TemporaryDirectory(prefix="nodewarden-audit-") as directory,
        closing(sqlite3.connect(Path(directory) / "incidents", isolation_level=None)) as database,
    ):
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        yield Incidents(database)
