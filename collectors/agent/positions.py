"""How far each source was read: small files that outlive the agent.

A position is written when every record that came before it is settled. After a kill the agent
reads a little again, and never leaves anything out.
"""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from telemetry.errors import SettingsError, SourceUnavailable

FILE_BYTES_MAX = 4_000_000
WAITING_MAX = 10_000

T = TypeVar("T", bound=msgspec.Struct)


class PositionFile(Generic[T]):
    """One file that holds one position."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self.path = path
        self._decoder = msgspec.json.Decoder(kind)
        self._saved: bytes | None = None

    def load(self) -> T | None:
        """What was saved; None where nothing was, or it cannot be read any more."""
        try:
            with self.path.open("rb") as file:
                return self._decoder.decode(file.read(FILE_BYTES_MAX))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self.path, error) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def save(self, position: T) -> None:
        """Whole or not at all, also when the power fails. Raises SourceUnavailable."""
        data = msgspec.json.encode(position)
        if data == self._saved:
            return
        beside = self.path.with_name(self.path.name + ".new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        except OSError as error:
            raise SourceUnavailable(f"{self.path}: {error.strerror}; not saved") from error
        self._saved = data


class Settling(Generic[T]):
    """Positions that wait for the records before them; `settled` tickets come from the sink."""

    def __init__(self, file: PositionFile[T]) -> None:
        self.file = file
        self._waiting: deque[tuple[int, T]] = deque()

    def reached(self, ticket: int, position: T) -> None:
        """All records up to `ticket` lie before `position`."""
        # Of positions behind one ticket only the newest matters; of too many every one but it can
        # go, for that only more is read again.
        if (self._waiting and self._waiting[-1][0] == ticket) or len(self._waiting) >= WAITING_MAX:
            self._waiting.pop()
        self._waiting.append((ticket, position))

    def settle(self, settled: int) -> None:
        """Write the newest position whose records are settled."""
        newest: T | None = None
        while self._waiting and self._waiting[0][0] <= settled:
            newest = self._waiting.popleft()[1]
        if newest is not None:
            self.file.save(newest)


def usable_directory(path: Path) -> Path:
    """`path`, made where it is not there. Raises SettingsError where we may not write to it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".writable"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise _unusable(path, error) from error
    return path


def _unusable(path: Path, error: OSError) -> SettingsError:
    return SettingsError(
        f"{path}: {error.strerror}; collect.state_dir must be a directory that we may write to"
    )
