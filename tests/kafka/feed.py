"""`import --kafka` in slow motion: a thread that publishes history in portions, as a test asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from collectors.broker.publisher import KafkaPublisher
from nodewarden.clock import SystemClock
from nodewarden.publishing import whole_piece
from nodewarden.shards import Target
from telemetry.codec import encode
from telemetry.records import Arrived, Record, Rejected
from telemetry.settings import KafkaSettings
from telemetry.topics import TELEMETRY
from tests.kafka.broker import Broker

SLICE = 150  # records of one shard, and then a pause, so that workers see many batches
PAUSE_S = 0.04
ALL = 1_000_000

Piece = Sequence[tuple[float, Record]]


class Feed:
    """Pieces of history for one or more shards, the shards in turns.

    pieces    for each shard, one after the other
    portions  into how many parts all of it is cut; `more` lets one go
    """

    def __init__(
        self, broker: Broker, pieces: Sequence[tuple[Target, Sequence[Piece]]], portions: int
    ) -> None:
        self._broker = broker
        self._pieces = pieces
        records = sum(len(piece) for _, of_shard in pieces for piece in of_shard)
        self._every = records // portions + 1
        self._allowed = threading.Semaphore(0)
        self._failed: Exception | None = None
        self.thread = threading.Thread(target=self._run)
        self.sent = 0

    def more(self, portions: int = 1) -> None:
        """Let so many portions go."""
        self._allowed.release(portions)

    def join(self) -> None:
        """All that is left; raises what went wrong."""
        self.more(ALL)
        self.thread.join()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        kafka = KafkaSettings(brokers=(self._broker.address,), request_timeout_s=30.0)
        try:
            publisher = KafkaPublisher(kafka, SystemClock())
            for target, arrived in self._in_turns():
                if self.sent % self._every == 0:
                    self._allowed.acquire()
                if self.sent % SLICE == 0:
                    time.sleep(PAUSE_S)
                publish(publisher, target, arrived)
                self.sent += 1
            publisher.flush()
            publisher.close()
        except Exception as error:  # noqa: BLE001 - raised where the thread is joined
            self._failed = error

    def _in_turns(self) -> Iterator[tuple[Target, Arrived]]:
        going = [(target, whole(of_shard)) for target, of_shard in self._pieces]
        while going:
            for turn in list(going):
                target, records = turn
                for _ in range(SLICE):
                    arrived = next(records, None)
                    if arrived is None:
                        going.remove(turn)
                        break
                    yield target, arrived


def publish(publisher: KafkaPublisher, target: Target, arrived: Arrived) -> None:
    """One record as `import --kafka` publishes it."""
    assert not isinstance(arrived.record, Rejected)
    publisher.publish(
        TELEMETRY,
        encode(msgspec.structs.replace(arrived.record, replayed=arrived.arrival)),
        key=target.shard.encode(),
        partition=target.partition,
    )


@contextmanager
def feeding(
    broker: Broker, pieces: Sequence[tuple[Target, Sequence[Piece]]], portions: int
) -> Iterator[Feed]:
    """A feed that runs while the block runs, and is emptied at its end."""
    feed = Feed(broker, pieces, portions)
    feed.thread.start()
    try:
        yield feed
    finally:
        feed.join()


def whole(pieces: Sequence[Iterable[tuple[float, Record]]]) -> Iterator[Arrived]:
    """The pieces as an import makes them, with their ends."""
    for number, piece in enumerate(pieces):
        arrived = (Arrived(i, at_s, record) for i, (at_s, record) in enumerate(piece))
        yield from whole_piece(arrived, f"piece {number}")
