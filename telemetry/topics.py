"""The Kafka topics, what their keys are and how long they are kept; shards to partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

PREFIX = "nodewarden."
TELEMETRY = "nodewarden.telemetry"
INVENTORY = "nodewarden.inventory"
FINDINGS = "nodewarden.findings"
INCIDENTS = "nodewarden.incidents"
ACTIONS = "nodewarden.actions"
STATE = "nodewarden.state"
REJECTED = "nodewarden.rejected"

# Kafka refuses records an hour in the future under CreateTime, and an idempotent producer then
# fails for good: one wrong clock would mute its node. So the broker's clock stamps everything.
TIMESTAMP_TYPE = "LogAppendTime"

# Of a simulated node of 8 GPUs and 8 NICs whose job tells its steps, GPUs every 15 s, NICs every
# 60; tests/unit/test_topics_page.py measures it.
TELEMETRY_NODE_DAY_BYTES = 25_000_000

_DAY_MS = 86_400_000
_MIB = 1024 * 1024

Cleanup = Literal["delete", "compact", "compact,delete"]


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """One topic.

    holds          what its records are, in words
    key            what the record key says, in words
    retention_ms   how long records are kept, None where compaction alone decides
    segment_bytes  of one file: only whole ones are deleted, and the newest is never compacted
    node_bytes     about what a node of 8 GPUs takes in it, uncompressed, on one replica, when the
                   topic is full; docs/topics.md says how each was found
    by_shard       one partition a shard, at the shard's position in the settings
    """

    name: str
    holds: str
    key: str
    cleanup: Cleanup
    retention_ms: int | None
    segment_bytes: int
    node_bytes: int
    by_shard: bool = False

    @property
    def short_name(self) -> str:
        """As the settings call it."""
        return self.name.removeprefix(PREFIX)

    @property
    def config(self) -> dict[str, str]:
        """The topic's settings as Kafka names them."""
        config = {
            "cleanup.policy": self.cleanup,
            "message.timestamp.type": TIMESTAMP_TYPE,
            "segment.bytes": str(self.segment_bytes),
        }
        if self.retention_ms is not None:
            config["retention.ms"] = str(self.retention_ms)
        return config


TOPICS: tuple[Topic, ...] = (
    Topic(
        name=TELEMETRY,
        holds="everything that was observed",
        key="shard",
        cleanup="delete",
        retention_ms=3 * _DAY_MS,
        segment_bytes=256 * _MIB,
        node_bytes=3 * TELEMETRY_NODE_DAY_BYTES,
        by_shard=True,
    ),
    Topic(
        name=INVENTORY,
        holds="the newest state of nodes and jobs",
        key="hw/<node>, sched/<node>, job/<id> or window/<name>",
        cleanup="compact",
        retention_ms=None,
        segment_bytes=16 * _MIB,
        node_bytes=10_000,
    ),
    Topic(
        name=FINDINGS,
        holds="what the detectors found",
        key="shard",
        cleanup="delete",
        retention_ms=30 * _DAY_MS,
        segment_bytes=64 * _MIB,
        node_bytes=50_000,
        by_shard=True,
    ),
    Topic(
        name=INCIDENTS,
        holds="incidents with verdict and reason, each revision",
        key="incident id",
        cleanup="compact,delete",
        retention_ms=365 * _DAY_MS,
        segment_bytes=64 * _MIB,
        node_bytes=50_000,
        by_shard=True,  # a worker reads what it said of its shard, and nothing else
    ),
    Topic(
        name=ACTIONS,
        holds="commands and what became of them",
        key="incident or command id",
        cleanup="delete",
        retention_ms=365 * _DAY_MS,
        segment_bytes=64 * _MIB,
        node_bytes=10_000,
    ),
    Topic(
        name=STATE,
        holds="snapshots of the detectors' state",
        key="<shard>/{a,b}/<chunk> or <shard>/segment/<n mod ring>",
        cleanup="compact",
        retention_ms=None,
        segment_bytes=64 * _MIB,
        node_bytes=300_000,
        by_shard=True,
    ),
    Topic(
        name=REJECTED,
        holds="input that could not be used, with the reason",
        key="none",
        cleanup="delete",
        retention_ms=7 * _DAY_MS,
        segment_bytes=64 * _MIB,
        node_bytes=10_000,
    ),
)

BY_NAME: dict[str, Topic] = {topic.name: topic for topic in TOPICS}


def partition_of(shard: str, shards: Sequence[str]) -> int | None:
    """The partition of `shard`: its position in `shards`; None where it is not listed.

    Sent explicitly: hashing 8 names onto 8 partitions leaves some empty.
    """
    return shards.index(shard) if shard in shards else None
