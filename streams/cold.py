"""A cold start: who runs where, from the compacted inventory topic, as records for the log.

They go through the log and not into the fold, so that a replay of the log tells the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

import msgspec

from telemetry.records import Allocation, Hardware, Job, NodeInfo, Record

PART_BYTES = 400_000
SOURCE = "cold start"
Item = TypeVar("Item", Job, NodeInfo)


def known_before(stored: Mapping[str, bytes], at_s: float, started_at: float) -> Iterator[Record]:
    """What the inventory topic holds as changes to what is known: nodes, jobs, hardware.

    stored   key -> value: sched/<node>, job/<id>, hw/<node>; what cannot be read is left out
    """
    seq = 0
    nodes = _parts(stored, "sched/", NodeInfo)
    jobs = _parts(stored, "job/", Job)
    for listed in nodes:
        yield Allocation(
            at=at_s, node="", source=SOURCE, started_at=started_at, seq=seq, sent_at=at_s,
            nodes=listed,
        )  # fmt: skip
        seq += 1
    for running in jobs:
        yield Allocation(
            at=at_s, node="", source=SOURCE, started_at=started_at, seq=seq, sent_at=at_s,
            jobs=running,
        )  # fmt: skip
        seq += 1
    for key in sorted(stored):
        if not key.startswith("hw/"):
            continue
        try:
            hardware = msgspec.json.decode(stored[key], type=Hardware)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            continue
        yield msgspec.structs.replace(
            hardware, at=at_s, source=SOURCE, started_at=started_at, seq=0, sent_at=at_s,
            spooled=False, replayed=None,
        )  # fmt: skip


def _parts(stored: Mapping[str, bytes], prefix: str, kind: type[Item]) -> Iterator[list[Item]]:
    """The items under a prefix, sorted by key, in lists that fit into one record."""
    part: list[Item] = []
    size = 0
    for key in sorted(stored):
        if not key.startswith(prefix):
            continue
        try:
            item = msgspec.json.decode(stored[key], type=kind)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            continue
        if part and size + len(stored[key]) > PART_BYTES:
            yield part
            part, size = [], 0
        part.append(item)
        size += len(stored[key])
    if part:
        yield part
