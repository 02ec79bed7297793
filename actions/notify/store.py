"""What is told and what is still to be told, on disk: SQLite, one transaction a batch.

After kill -9 it is as it was at the last `save`. The file holds routing keys of open pages, since
PagerDuty takes a resolve only with the key of its trigger: nobody else may read it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from actions.notify.calls import Change
from actions.notify.groups import Group
from telemetry.errors import SettingsError, SourceUnavailable

FILE = "notify.db"
BUSY_S = 5.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS groups (receiver TEXT, key TEXT, body BLOB, PRIMARY KEY (receiver, key));
CREATE TABLE IF NOT EXISTS incidents (id TEXT PRIMARY KEY, body BLOB);
CREATE TABLE IF NOT EXISTS changes (id TEXT, receiver TEXT, body BLOB, PRIMARY KEY (id, receiver));
"""
_log = logging.getLogger("nodewarden.notify")

Place = tuple[str, str]  # receiver, key


class Known(msgspec.Struct, kw_only=True):
    """The newest revision that was taken of an incident, and its labels while it is open."""

    rev: int
    open: bool
    labels: dict[str, str] = {}


class State(msgspec.Struct, kw_only=True):
    """All that is kept."""

    groups: dict[Place, Group] = {}
    incidents: dict[str, Known] = {}
    changes: dict[Place, Change | None] = {}  # by receiver and id; None: it was told


class Store:
    """One file. A damaged one is put aside: paging anew is better than not paging."""

    def __init__(self, directory: Path) -> None:
        """Raises SettingsError where the directory cannot be used."""
        self.path = directory / FILE
        try:
            directory.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            os.chmod(self.path, 0o600)
        except OSError as error:
            raise SettingsError(
                f"notify.state_dir: {directory}: {error.strerror}; name a place to write to"
            ) from error
        self._db = self._opened()

    def load(self) -> State:
        """What was saved."""
        try:
            return self._loaded()
        except (sqlite3.DatabaseError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._put_aside(error)
            return self._loaded()

    def save(
        self,
        groups: Mapping[Place, Group | None],
        incidents: Mapping[str, Known | None],
        changes: Mapping[Place, Change | None],
        forgotten_changes: Iterable[Place] = (),
    ) -> None:
        """All of it or nothing; None removes. Raises SourceUnavailable."""
        encode = msgspec.json.encode
        try:
            with contextlib.closing(self._db.cursor()) as cursor:
                cursor.execute("BEGIN IMMEDIATE")
                for (receiver, key), group in groups.items():
                    if group is None:
                        cursor.execute("DELETE FROM groups WHERE receiver=? AND key=?",
                                       (receiver, key))  # fmt: skip
                    else:
                        cursor.execute("INSERT OR REPLACE INTO groups VALUES (?, ?, ?)",
                                       (receiver, key, encode(group)))  # fmt: skip
                for incident, known in incidents.items():
                    if known is None:
                        cursor.execute("DELETE FROM incidents WHERE id=?", (incident,))
                    else:
                        cursor.execute("INSERT OR REPLACE INTO incidents VALUES (?, ?)",
                                       (incident, encode(known)))  # fmt: skip
                for (receiver, change_id), change in changes.items():
                    cursor.execute("INSERT OR REPLACE INTO changes VALUES (?, ?, ?)",
                                   (change_id, receiver, encode(change)))  # fmt: skip
                for receiver, change_id in forgotten_changes:
                    cursor.execute("DELETE FROM changes WHERE id=? AND receiver=?",
                                   (change_id, receiver))  # fmt: skip
                cursor.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise SourceUnavailable(f"{self.path}: {error}; pages go on from memory") from error

    def close(self) -> None:
        """Leave."""
        self._db.close()

    def _loaded(self) -> State:
        state = State()
        for receiver, key, body in self._db.execute("SELECT * FROM groups"):
            state.groups[receiver, key] = msgspec.json.decode(body, type=Group)
        for incident, body in self._db.execute("SELECT * FROM incidents ORDER BY rowid"):
            state.incidents[incident] = msgspec.json.decode(body, type=Known)
        for change_id, receiver, body in self._db.execute("SELECT * FROM changes ORDER BY rowid"):
            state.changes[receiver, change_id] = msgspec.json.decode(body, type=Change | None)
        return state

    def _opened(self) -> sqlite3.Connection:
        try:
            return self._connection()
        except sqlite3.DatabaseError as error:
            self._put_aside(error)
            return self._db

    def _connection(self) -> sqlite3.Connection:
        db = sqlite3.connect(
            self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")  # also a power cut loses nothing that was saved
            db.executescript(_SCHEMA)
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _put_aside(self, error: Exception) -> None:
        aside = self.path.with_suffix(".damaged")
        _log.error("notify_state_damaged file=%s error=%s kept=%s", self.path, error, aside)
        if hasattr(self, "_db"):
            self._db.close()
        os.replace(self.path, aside)
        for suffix in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self.path}{suffix}")
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        self._db = self._connection()
