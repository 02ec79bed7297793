"""Who is who, as the inventory topic says: nodes, their other names, jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from collectors.names import NodeNames
from telemetry.ports import LogReader
from telemetry.topics import INVENTORY

_READ_S = 1.0
_EMPTY_MAX = 10
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
    places = [(INVENTORY, number) for number in reader.partitions(INVENTORY)]
    bounds = reader.bounds(places)
    left = {place: end for place, (first, end) in bounds.items() if first < end}
    values: dict[str, bytes] = {}
    reader.assign({place: bounds[place][0] for place in left})
    empty = 0
    while left and empty < _EMPTY_MAX:  # the last offsets may be none that anybody gets to see
        lines = reader.poll(_READ_S)
        empty = 0 if lines else empty + 1
        for line in lines:
            key = (line.key or b"").decode("utf-8", "replace")
            values.pop(key, None)
            if line.value is not None and len(values) < _KEYS_MAX:
                values[key] = b"" if key.startswith("job/") else line.value
            if line.offset + 1 >= left.get((line.topic, line.partition), 0):
                left.pop((line.topic, line.partition), None)
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
