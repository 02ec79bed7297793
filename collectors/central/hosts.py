"""Who is who, as the inventory topic says: nodes, their other names, jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from collectors.names import NodeNames
from telemetry.log_reading import read_to_end
from telemetry.ports import LogReader
from telemetry.topics import INVENTORY

_KEYS_MAX = 200_000


class _Hardware(msgspec.Struct):
    aliases: list[str] = []


@dataclass(frozen=True, slots=True)
class Hosts:
    """What is known; empty where there is no inventory yet.

    aliases   another name or address -> node
    """

    nodes: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)
    jobs: frozenset[str] = frozenset()

    def names(self) -> NodeNames:
        """How to spell them."""
        return NodeNames(self.nodes, (), self.aliases)


def read_hosts(reader: LogReader) -> Hosts:
    """What the inventory topic says now. Raises SourceUnavailable."""
    return hosts_of(read_inventory(reader))


def read_inventory(reader: LogReader) -> dict[str, bytes]:
    """The newest value of every key, of jobs only the keys. Raises SourceUnavailable."""
    values: dict[str, bytes] = {}
    for line in read_to_end(reader, INVENTORY):
        key = line.key_text or ""
        values.pop(key, None)
        if line.value is not None and len(values) < _KEYS_MAX:
            values[key] = b"" if key.startswith("job/") else line.value
    return values


def hosts_of(values: Mapping[str, bytes]) -> Hosts:
    """Who they are."""
    nodes = {key.removeprefix("sched/") for key in values if key.startswith("sched/")}
    aliases: dict[str, str] = {}
    for key, value in values.items():
        node = key.removeprefix("hw/")
        if node == key:
            continue
        try:
            said = msgspec.json.decode(value, type=_Hardware).aliases
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        aliases.update({alias: node for alias in said})
    jobs = {key.removeprefix("job/") for key in values if key.startswith("job/")}
    return Hosts(frozenset(nodes), aliases, frozenset(jobs))
