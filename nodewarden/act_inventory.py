"""What the inventory topic says now: nodes, jobs, maintenance, boots, GPUs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from telemetry.archive_line import ArchiveLine
from telemetry.errors import SourceUnavailable
from telemetry.ports import LogReader
from telemetry.records import Hardware, Job, Maintenance, NodeInfo
from telemetry.topics import INVENTORY

KEYS_MAX = 200_000  # of each kind
POLL_S = 0.2
EMPTY_MAX = 50  # polls without a line: the end was compacted away
SAME_BOOT_S = 60.0  # two words on one boot differ by no more: clocks and delays

_TYPES: dict[str, Any] = {"sched": NodeInfo, "job": Job, "window": Maintenance, "hw": Hardware}

_log = logging.getLogger("nodewarden.act")


class InventoryTopic:
    """Keeps up with the topic. While it is read anew what was known before counts.

    reader  makes its reader
    """

    def __init__(self, reader: Callable[[], LogReader]) -> None:
        self._make = reader
        self._reader: LogReader | None = None
        self._known = _Known()

    @property
    def nodes(self) -> dict[str, NodeInfo]:
        """By name."""
        return self._known.of["sched"]

    @property
    def jobs(self) -> dict[str, Job]:
        """By id."""
        return self._known.of["job"]

    @property
    def maintenance(self) -> list[Maintenance]:
        """By name."""
        return [window for _, window in sorted(self._known.of["window"].items())]

    @property
    def booted_at(self) -> dict[str, float]:
        """Node -> its last boot, Unix seconds of others' clocks; a node of which nobody said it
        is not in it."""
        return dict(self._known.booted_at)

    @property
    def gpus(self) -> dict[str, int]:
        """Node -> how many GPUs its agent says it has."""
        return self._known.gpus

    @property
    def names(self) -> dict[str, list[str]]:
        """Listed node -> what its agent says it is called too, where no other is called so."""
        known = {node: self._known.aliases.get(node, []) for node in self.nodes}
        claimed = Counter(alias for aliases in known.values() for alias in set(aliases))
        return {
            node: [alias for alias in aliases if claimed[alias] == 1 and alias not in known]
            for node, aliases in known.items()
        }

    def read(self) -> None:
        """To the end of the topic. Raises SourceUnavailable."""
        try:
            if self._reader is None:
                self._reader = self._make()
                self._known = self._read_all(self._reader)
            while lines := self._reader.poll(POLL_S):
                for line in lines:
                    self._known.take(line)
        except SourceUnavailable:
            self.close()
            raise

    def close(self) -> None:
        """Leave; the next `read` begins anew."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _read_all(self, reader: LogReader) -> _Known:
        found = _Known(self._known.booted_at)
        places = [(INVENTORY, number) for number in reader.partitions(INVENTORY)]
        bounds = reader.bounds(places)
        reader.assign({place: begin for place, (begin, _) in bounds.items()})
        empty = 0
        while empty < EMPTY_MAX:
            positions = reader.positions()
            if all(positions.get(place, 0) >= end for place, (_, end) in bounds.items()):
                break
            lines = reader.poll(POLL_S)
            empty = 0 if lines else empty + 1
            for line in lines:
                found.take(line)
        return found


class _Known:
    """The newest value of each key."""

    def __init__(self, booted_at: dict[str, float] | None = None) -> None:
        self.of: dict[str, dict[str, Any]] = {kind: {} for kind in _TYPES if kind != "hw"}
        self.booted_at = dict(booted_at or {})
        self.gpus: dict[str, int] = {}
        self.aliases: dict[str, list[str]] = {}

    def take(self, line: ArchiveLine) -> None:
        kind, _, name = (line.key_text or "").partition("/")
        if kind not in _TYPES:
            return
        if kind in self.of:
            self.of[kind].pop(name, None)
        if line.value is None or len(self.of.get(kind, self.booted_at)) >= KEYS_MAX:
            return
        try:
            said = msgspec.json.decode(line.value, type=_TYPES[kind])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            _log.warning("inventory_unreadable key=%s", line.key_text)
            return
        if kind in self.of:
            self.of[kind][name] = said
        else:
            self.gpus[name], self.aliases[name] = len(said.gpus), said.aliases
        self._boot(name, kind, said, line.timestamp_ms / 1_000.0)

    def _boot(self, name: str, kind: str, said: Any, heard_s: float) -> None:
        """The scheduler's word, or how long the agent's node was up when the broker heard it."""
        boot_s: float | None = None
        if kind == "sched":
            boot_s = said.boot_at
        elif kind == "hw" and said.up_s is not None:
            boot_s = heard_s - said.up_s
        known = self.booted_at.get(name)
        if boot_s is not None and (known is None or boot_s > known + SAME_BOOT_S):
            self.booted_at[name] = boot_s
