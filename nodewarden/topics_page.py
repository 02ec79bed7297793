"""docs/topics.md, written from the topics' table: `python -m nodewarden.topics_page`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from collectors.broker.admin import config_of, min_insync_of, partitions_of
from telemetry.settings import KafkaSettings
from telemetry.topics import TELEMETRY_NODE_DAY_BYTES, TOPICS, Topic

NODES = 1_250
GZIP_SHARE = 0.47  # of the telemetry's bytes, each record packed alone, as agents send them
SITE = KafkaSettings(replication=3)
HEAD = """# Topics

This page is written from `telemetry/topics.py`
(`python -m nodewarden.topics_page > docs/topics.md`). `nodewarden topics create` makes the topics
that are missing and changes none that exists; `nodewarden topics check` says what differs, a line
each with its remedy.

A topic "by shard" has one partition a shard, at the shard's position in the settings' `shards`; the
others have one. All are stamped by the broker's clock (`message.timestamp.type=LogAppendTime`):
under the producers' clocks one node an hour ahead would be refused for good. Small segments let old
data go, and snapshots be compacted, soon: both only touch whole files.
"""
KEYS = (
    ("replication", "1", "replicas of each partition; 3 on a cluster of brokers"),
    (
        "min_insync_replicas", "0",
        "so many must have a record before it counts as kept; 0: `replication` - 1, at least 1. "
        "With 3 and 2 one broker may be away",
    ),
    (
        "compression", '"producer"',
        "`compression.type`: `\"producer\"` leaves records as they come, which is not packed. With "
        "`\"gzip\"` the broker packs what it keeps to about half; workers then unpack, about 25 us "
        "a frame, and no reader of ours needs a further library",
    ),
    (
        "retention_days", "{}",
        "by topic, `retention_days = { telemetry = 7.0 }`: longer than workers and archiver may be "
        "away",
    ),
    (
        "record_max_bytes", "1000000",
        "a larger record is never sent; `max.message.bytes` of telemetry and state leaves room",
    ),
)  # fmt: skip
SIZES = """Telemetry was measured in the simulator: {day} a node and day (8 GPUs every 15 s, 8 NICs
every 60 s, the steps of one job), four fifths of it samples; it grows with the GPUs, with the
metrics, and as intervals shrink. gzip left {share:.0%} of it, each record packed alone as agents
send them. State is two whole snapshots and what comes between (68 kB a node,
[benchmarks](benchmarks.md)), twice while it waits to be compacted. The others follow what happens
and are guessed generously. Add a segment for each partition, and leave a fifth of the disk free.
"""

Row = tuple[str, ...]


def page() -> str:
    """The page, ending with a line break."""
    parts = [HEAD, *_topics(), *_settings(), *_sizes()]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _topics() -> Iterator[str]:
    rows: list[Row] = [
        (
            f"`{topic.name}`", topic.holds, f"`{topic.key}`" if "<" in topic.key else topic.key,
            "by shard" if topic.by_shard else str(partitions_of(topic, ("one",))),
            topic.cleanup.replace(",", ", "), _kept(topic), f"{topic.segment_bytes // 2**20} MiB",
        )
        for topic in TOPICS
    ]  # fmt: skip
    yield "## The topics"
    yield _table(("topic", "holds", "key", "partitions", "cleanup", "kept", "segment"), rows)
    rows = [(f"`{name}`", f"`{value}`") for name, value in _common().items()]
    yield "Beside these each has, with `replication = 3` and the other settings as they are:"
    yield _table(("setting", "value"), rows)


def _settings() -> Iterator[str]:
    yield "## What a site sets"
    yield _table(
        ("key of `[kafka]`", "default", "what"),
        [(f"`{key}`", f"`{default}`", what) for key, default, what in KEYS],
    )


def _sizes() -> Iterator[str]:
    disk = sum(topic.node_bytes for topic in TOPICS)
    packed = disk * GZIP_SHARE
    yield "## How much room it takes"
    yield (
        f"About, for one node of 8 GPUs, and for {NODES:,} nodes on all brokers together with "
        f"`replication = {SITE.replication}`, before compression:"
    )
    rows: list[Row] = [
        (f"`{topic.name}`", _size(topic.node_bytes), _size(topic.node_bytes * NODES * 3))
        for topic in TOPICS
    ]
    rows.append(("all", _size(disk), _size(disk * NODES * 3)))
    rows.append(("all, with gzip", _size(packed), _size(packed * NODES * 3)))
    yield _table(("topic", "a node", f"{NODES:,} nodes, 3 replicas"), rows)
    yield SIZES.format(day=_size(TELEMETRY_NODE_DAY_BYTES), share=GZIP_SHARE)


def _common() -> dict[str, str]:
    """What is the same for every topic."""
    configs = [config_of(topic, SITE) for topic in TOPICS]
    same = {
        name: value
        for name, value in configs[0].items()
        if all(config.get(name) == value for config in configs)
    }
    assert same["min.insync.replicas"] == str(min_insync_of(SITE))
    return {"replication": str(SITE.replication), **same}


def _kept(topic: Topic) -> str:
    if topic.retention_ms is None:
        return "the newest of each key"
    days = f"{topic.retention_ms // 86_400_000} days"
    return f"the newest of each key, {days}" if "compact" in topic.cleanup else days


def _size(size_bytes: float) -> str:
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def _table(head: Row, rows: list[Row]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


if __name__ == "__main__":
    sys.stdout.write(page())
