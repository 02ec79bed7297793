"""A simulated cluster as it goes by: what its nodes' agents would send, when they would send it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from evaluation.simulator import Simulation
from telemetry.codec import encode
from telemetry.errors import SettingsError
from telemetry.ports import Clock, Publisher
from telemetry.records import Allocation, Beat, Record, Settings
from telemetry.settings import Configuration
from telemetry.topics import TELEMETRY, partition_of

LEAD_S = 2.0  # the run begins so long after the command
_OF_OTHERS = (Settings, Allocation, Beat)  # the worker and the inventory say them


class LiveTarget(msgspec.Struct, frozen=True):
    """The live shard that takes it."""

    shard: str
    partition: int


def live_target(configuration: Configuration) -> LiveTarget:
    """The shard that `engine.shard` names. Raises SettingsError where it takes history."""
    name = configuration.engine.shard
    partition = partition_of(name, configuration.shards)
    if partition is None or name in configuration.history_shards:
        raise SettingsError(f"engine.shard {name!r} is no live shard of {configuration.shards}")
    return LiveTarget(name, partition)


def publish_as_it_goes_by(
    run: Simulation, publisher: Publisher, target: LiveTarget, clock: Clock,
    stopped: Callable[[float], bool],
) -> int:  # fmt: skip
    """Publish each record when it is due; how many.

    stopped   waits so many seconds at most, and says whether to end at once
    Raises PublishError.
    """
    count = 0
    for due_s, record in _agents(run):
        wait_s = due_s - clock.time_s()
        if wait_s > 0.0:
            publisher.flush()
            if stopped(wait_s):
                break
        kind = str(record.__struct_config__.tag).encode()
        publisher.publish(
            TELEMETRY, encode(record), key=target.shard.encode(), partition=target.partition,
            headers=[("kind", kind)],
        )  # fmt: skip
        count += 1
    publisher.flush()
    return count


def _agents(run: Simulation) -> Iterator[tuple[float, Record]]:
    return (item for item in run.records() if not isinstance(item[1], _OF_OTHERS))
