"""`nodewarden.inventory`: the current state of jobs, nodes and maintenance, a key each."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from telemetry.log_reading import read_to_end
from telemetry.ports import LogReader, Publisher
from telemetry.records import Allocation, Job, Maintenance
from telemetry.topics import INVENTORY

OURS = ("sched/", "job/", "window/")  # hw/<node> is the agents'
WINDOW_NODES = 3_000  # names of at most 253 characters in one record
_UNKNOWN = b""

_log = logging.getLogger("nodewarden.inventory")


class InventoryState:
    """What the topic holds, and how it becomes what a listing says.

    stored     key -> hash of its value, of our keys (`stored_state`)
    value_max  larger values are not sent, bytes
    """

    def __init__(self, publisher: Publisher, stored: dict[str, bytes], value_max: int) -> None:
        self._publisher = publisher
        self._stored = dict(stored)
        self._value_max = value_max

    def become(self, listing: Allocation) -> int:
        """Publish what differs, tombstones for what is gone; how many. Raises PublishError."""
        sent = 0
        wanted = dict(self._values(listing))
        for key, value in wanted.items():
            digest = _digest(value)
            if self._stored.get(key) != digest:
                self._send(key, value)
                self._stored[key] = digest
                sent += 1
        for key in [key for key in self._stored if key not in wanted]:
            self._send(key, None)
            del self._stored[key]
            sent += 1
        return sent

    def doubt(self) -> None:
        """Nobody knows what of it arrived: all of it is sent again."""
        self._stored = dict.fromkeys(self._stored, _UNKNOWN)

    def _values(self, listing: Allocation) -> Iterator[tuple[str, bytes]]:
        for node in listing.nodes:
            yield f"sched/{node.name}", msgspec.json.encode(node)
        for job in listing.jobs:
            value = self._job(job)
            if value is not None:
                yield f"job/{job.id}", value
        yield from _windows(listing.maintenance)

    def _job(self, job: Job) -> bytes | None:
        """A job too large for one record goes without its ranks; the log has them in parts."""
        value = msgspec.json.encode(job)
        if len(value) <= self._value_max:
            return value
        bare = msgspec.json.encode(
            replace(job, nodes=[replace(node, ranks=[]) for node in job.nodes])
        )
        _log.warning("job_without_ranks job=%s bytes=%d", job.id, len(value))
        if len(bare) <= self._value_max:
            return bare
        _log.error("job_too_large job=%s bytes=%d", job.id, len(bare))
        return None

    def _send(self, key: str, value: bytes | None) -> None:
        self._publisher.publish(INVENTORY, value, key=key.encode(), partition=0)


def _windows(windows: Iterable[Maintenance]) -> Iterator[tuple[str, bytes]]:
    """A window of very many nodes in several pieces of the same name."""
    for window in windows:
        for start in range(0, len(window.nodes), WINDOW_NODES):
            piece = replace(window, nodes=window.nodes[start : start + WINDOW_NODES])
            number = f"#{start // WINDOW_NODES + 1}" if start else ""
            yield f"window/{window.name}{number}", msgspec.json.encode(piece)


def stored_state(reader: LogReader) -> dict[str, bytes]:
    """What the topic holds of our keys: key -> hash of its value. Raises SourceUnavailable."""
    stored: dict[str, bytes] = {}
    for line in read_to_end(reader, INVENTORY):
        key = line.key_text or ""
        if key.startswith(OURS):
            _keep(stored, key, line.value)
    return stored


def _keep(stored: dict[str, bytes], key: str, value: bytes | None) -> None:
    if value is None:
        stored.pop(key, None)
    else:
        stored[key] = _digest(value)


def _digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()
