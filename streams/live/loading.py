"""Takes a shard over: its newest snapshot, and what was said since, which is not said again."""

from __future__ import annotations

from collections.abc import Callable

from aiokafka.structs import ConsumerRecord

from streams.fold import ShardKind
from streams.live.topics import TopicReader
from streams.shard import Shard
from streams.verdicts import Decide
from telemetry.topics import FINDINGS, INCIDENTS, STATE, TELEMETRY


async def read_shard(
    reader: TopicReader, name: str, kind: ShardKind, decide: Decide, partition: int,
    probe: Callable[[str], None],
) -> tuple[Shard, int, int]:  # fmt: skip
    """The shard as it was left; first kept offset of its log, and that of its next record."""
    stored: dict[str, bytes] = {}
    await reader.read(STATE, partition, 0, lambda record: keep(stored, record))
    begin, end = await reader.bounds(TELEMETRY, partition)
    shard = Shard.restored(name, kind, decide, partition, stored, begin, end)
    probe("recovery")
    for topic in (FINDINGS, INCIDENTS):
        await _read_back(reader, shard, topic)
    return shard, begin, end


def keep(stored: dict[str, bytes], record: ConsumerRecord) -> None:
    """One record of a compacted topic."""
    key = (record.key or b"").decode("utf-8", "replace")
    if record.value is None:
        stored.pop(key, None)
    else:
        stored[key] = record.value


async def _read_back(reader: TopicReader, shard: Shard, topic: str) -> None:
    """What the shard's worker said since the snapshot, so that it is not said again."""

    def remember(record: ConsumerRecord) -> None:
        shard.already.add(topic, record.value)

    since = shard.snapshots.said.get(topic, 0)
    shard.read_back(topic, await reader.read(topic, shard.partition, since, remember))
