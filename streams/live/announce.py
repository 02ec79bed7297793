"""A worker's own settings on their way into the log, where alone they take force."""

from __future__ import annotations

import msgspec

from streams.fold import ShardKind
from streams.shard import Shard
from telemetry.records import Settings
from telemetry.settings import Configuration, settings_digest


class Announcer:
    """Makes `Settings` records of one worker; each shard is told each digest once.

    A shard that runs with other settings because another worker said so later is left alone, else
    two workers with two files would contradict each other for ever.
    """

    def __init__(
        self, configuration: Configuration, instance: str, engine_version: str, started_at: float
    ) -> None:
        self._configuration = configuration
        self._source = f"stream {instance}"
        self._engine_version = engine_version
        self._started_at = started_at
        self._seq = 0
        self._told: dict[str, str] = {}

    def adopt(self, configuration: Configuration) -> None:
        """From here on these are ours."""
        self._configuration = configuration

    def shard(self, partition: int) -> tuple[str, ShardKind]:
        """Name and kind of the shard in a partition."""
        shards = self._configuration.shards
        name = shards[partition] if partition < len(shards) else f"partition-{partition}"
        return name, "history" if name in self._configuration.history_shards else "live"

    def live_shards(self) -> int:
        """How many shards are live."""
        history = self._configuration.history_shards
        return sum(name not in history for name in self._configuration.shards)

    def record(self, shard: Shard, at_s: float) -> Settings | None:
        """The record to write into the shard's log now; None where nothing has to be said."""
        engine = msgspec.structs.replace(self._configuration.engine, shard=shard.name)
        if shard.kind != "live":
            return None
        digest = settings_digest(engine)
        told = self._told.get(shard.name)
        if told == digest:
            return None
        self._told[shard.name] = digest
        # What the fold runs with tells only as long as nothing of ours is on its way to it.
        if told is None and shard.fold.ready and shard.fold.digest == digest:
            return None
        self._seq += 1
        return Settings(
            at=at_s, node="", source=self._source, started_at=self._started_at,
            seq=self._seq - 1, sent_at=at_s, digest=digest,
            engine_version=self._engine_version, settings=engine,
        )  # fmt: skip
