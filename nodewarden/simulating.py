"""A simulated cluster as it goes by: what its nodes' agents would send, when they would send it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from evaluation.simulator import Simulation
from nodewarden.shards import Target
from telemetry.codec import encode
from telemetry.ports import Clock, Publisher
from telemetry.records import Allocation, Beat, Record, Settings
from telemetry.topics import TELEMETRY

LEAD_S = 2.0  # the run begins so long after the command
_OF_OTHERS = (Settings, Allocation, Beat)  # the worker and the inventory say them


def publish_as_it_goes_by(
    run: Simulation, publisher: Publisher, target: Target, clock: Clock,
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
