"""The Kafka topics, what their keys are and how long they are kept; shards to partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

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

_DAY_MS = 86_400_000

Cleanup = Literal["delete", "compact", "compact,delete"]


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """One topic.

    key           what the record key says, in words
    retention_ms  how long records are kept, None where compaction alone decides
    by_shard      one partition a shard, at the shard's position in the settings
    """

    name: str
    key: str
    cleanup: Cleanup
    retention_ms: int | None
    by_shard: bool = False

    @property
    def config(self) -> dict[str, str]:
        """The topic's settings as Kafka names them."""
        config = {"cleanup.policy": self.cleanup, "message.timestamp.type": TIMESTAMP_TYPE}
        if self.retention_ms is not None:
            config["retention.ms"] = str(self.retention_ms)
        return config


TOPICS: tuple[Topic, ...] = (
    Topic(name=TELEMETRY, key="shard", cleanup="delete", retention_ms=3 * _DAY_MS, by_shard=True),
    Topic(
        name=INVENTORY,
        key="hw/<node>, sched/<node> or job/<id>",
        cleanup="compact",
        retention_ms=None,
    ),
    Topic(name=FINDINGS, key="shard", cleanup="delete", retention_ms=30 * _DAY_MS, by_shard=True),
    Topic(
        name=INCIDENTS,
        key="incident id",
        cleanup="compact,delete",
        retention_ms=365 * _DAY_MS,
        by_shard=True,  # a worker reads what it said of its shard, and nothing else
    ),
    Topic(name=ACTIONS, key="incident or command id", cleanup="delete", retention_ms=365 * _DAY_MS),
    Topic(
        name=STATE,
        key="<shard>/{a,b}/<chunk> or <shard>/segment/<n mod ring>",
        cleanup="compact",
        retention_ms=None,
        by_shard=True,
    ),
    Topic(name=REJECTED, key="none", cleanup="delete", retention_ms=7 * _DAY_MS),
)

BY_NAME: dict[str, Topic] = {topic.name: topic for topic in TOPICS}


def partition_of(shard: str, shards: Sequence[str]) -> int | None:
    """The partition of `shard`: its position in `shards`; None where it is not listed.

    Sent explicitly: hashing 8 names onto 8 partitions leaves some empty.
    """
    return shards.index(shard) if shard in shards else None
