"""A piece of history onto the live topics: into a history shard, one piece after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from nodewarden.importing import Imported
from nodewarden.logs import Log
from nodewarden.shards import Target
from telemetry.codec import encode
from telemetry.ports import Publisher
from telemetry.records import Arrived, Begin, End, Record, Rejected, Settings
from telemetry.settings import EngineSettings
from telemetry.topics import REJECTED, TELEMETRY

SOURCE = "import"


def publish_logs(
    logs: Iterable[Log], publisher: Publisher, target: Target,
    tick: Callable[[float], None] | None = None,
) -> Imported:  # fmt: skip
    """Publish each log as a piece of history; returns when all is acknowledged.

    What of it could not be read goes to the rejected topic. Raises PublishError.
    """
    done = Imported()
    for log in logs:
        for arrived in whole_piece(log.records, log.name):
            if isinstance(arrived.record, Rejected):
                publisher.publish(REJECTED, msgspec.json.encode(arrived.record), partition=0)
                done.rejected += 1
                continue
            _publish(publisher, target, arrived.record, arrived.arrival)
            done.records += 1
            if tick is not None:
                tick(arrived.arrival)
    publisher.flush()
    return done


def whole_piece(records: Iterable[Arrived], name: str) -> Iterator[Arrived]:
    """The records between a `Begin` and an `End`, which are added where the log has none."""
    offset, arrival = -1, 0.0
    last: Record | None = None
    engine = EngineSettings()
    for arrived in records:
        record = arrived.record
        if isinstance(record, Rejected):
            yield arrived
            continue
        if last is None and not isinstance(record, Begin):
            at_s = arrived.arrival
            begin = Begin(at=at_s, node="", source=SOURCE, started_at=0.0, seq=0, name=name)
            yield Arrived(offset, at_s, begin)
        last, arrival = record, arrived.arrival
        engine = record.settings if isinstance(record, Settings) else engine
        offset = arrived.offset
        yield arrived
    if last is not None and not isinstance(last, End):
        end_s = max(arrival, last.at) + _settled_s(engine)
        end = End(at=end_s, node="", source=SOURCE, started_at=0.0, seq=1)
        yield Arrived(offset + 1, end_s, end)


def _settled_s(engine: EngineSettings) -> float:
    """So long after the last record all ticks are closed, and what is over is cleared."""
    ticks = engine.ticks
    interval_s = max([ticks.interval_default_s, *ticks.interval_s.values()])
    wait_s: float = ticks.lateness_intervals * interval_s + engine.correlation.clear_s
    return wait_s


def _publish(publisher: Publisher, target: Target, record: Record, arrival: float) -> None:
    kind = str(record.__struct_config__.tag).encode()
    publisher.publish(
        TELEMETRY,
        encode(msgspec.structs.replace(record, replayed=arrival)),
        key=target.shard.encode(),
        partition=target.partition,
        headers=[("kind", kind)],
    )
