"""Which shard a command speaks to, and its partition."""

from __future__ import annotations

import msgspec

from telemetry.errors import SettingsError
from telemetry.settings import Configuration
from telemetry.topics import partition_of


class Target(msgspec.Struct, frozen=True):
    """One shard: its name is the key of its records, `partition` their place in the topics."""

    shard: str
    partition: int


def live_target(configuration: Configuration, whose: str) -> Target:
    """The shard of `engine.shard`. Raises SettingsError where it is no live one.

    whose   what needs it, for the line that says so: "the inventory is told one"
    """
    shard = configuration.engine.shard
    partition = partition_of(shard, configuration.shards)
    if partition is None or shard in configuration.history_shards:
        raise SettingsError(f"engine.shard: {shard!r} is no live shard; {whose}")
    return Target(shard, partition)


def history_target(configuration: Configuration, shard: str | None = None) -> Target:
    """The shard that imports go to, the first where none is named. Raises SettingsError."""
    if not configuration.history_shards:
        raise SettingsError("history_shards is empty: an import needs a history shard")
    named = shard or configuration.history_shards[0]
    if named not in configuration.history_shards:
        known = ", ".join(configuration.history_shards)
        raise SettingsError(f"--shard {named}: takes no history; those that do: {known}")
    partition = partition_of(named, configuration.shards)
    if partition is None:
        raise SettingsError(f"history shard {named!r} is not among shards")
    return Target(named, partition)
