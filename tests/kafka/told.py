"""What the live engine told, against a plain fold of the same log read back from the broker."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from streams.fold import Fold, ShardKind
from streams.replay import Outcome, drive
from telemetry.archive_line import ArchiveLine
from telemetry.codec import decode, rejected
from telemetry.placement import Placement
from telemetry.records import Arrived, Record, Rejected
from telemetry.topics import FINDINGS, INCIDENTS, TELEMETRY
from tests.folding import fresh
from tests.kafka.broker import Broker
from tests.kafka.reading import read_all

Revision = tuple[str, str, int]  # topic, id, revision


@dataclass
class Told:
    """Every revision of every finding and incident.

    repeats    equal ones that stand in the topics more than once
    conflicts  revisions with two contents
    """

    said: dict[Revision, bytes] = field(default_factory=dict)
    repeats: int = 0
    conflicts: list[Revision] = field(default_factory=list)

    def take(self, topic: str, value: bytes) -> None:
        """One more record of a topic."""
        entry = msgspec.json.decode(value)
        revision = topic, entry["id"], entry["rev"]
        known = self.said.setdefault(revision, value)
        if known is value:
            return
        self.repeats += known == value
        if known != value:
            self.conflicts.append(revision)

    def incidents(self) -> int:
        """How many there are."""
        return len({id_ for topic, id_, _ in self.said if topic == INCIDENTS})


def told_live(broker: Broker, partition: int) -> Told:
    """What stands in the topics."""
    told = Told()
    for topic in (FINDINGS, INCIDENTS):
        for line in read_all(broker, topic, partition):
            assert line.value is not None
            told.take(topic, line.value)
    return told


def plain_fold(
    broker: Broker, partition: int, shard: str, kind: ShardKind, begin: int = 0
) -> tuple[Fold, Told]:
    """The partition's log through one fold that is never interrupted, and what that says."""
    lines = read_all(broker, TELEMETRY, partition)
    offsets = [line.offset for line in lines]
    assert offsets == list(range(begin, begin + len(lines))), "the log has no holes"
    placement = Placement(shard)
    fold, told = fresh(kind), Told()

    def keep(_arrived: Arrived, said: object, _fold: Fold) -> None:
        for finding in getattr(said, "findings", ()):
            told.take(FINDINGS, msgspec.json.encode(finding))
        for incident in getattr(said, "incidents", ()):
            told.take(INCIDENTS, msgspec.json.encode(incident))

    drive((_arrived(line, kind, placement) for line in lines), fold, Outcome(), (keep,))
    assert fold.counters.conserved(), fold.counters
    return fold, told


def assert_as_plain(
    broker: Broker, partition: int, shard: str, kind: ShardKind = "history", begin: int = 0
) -> tuple[Fold, Told, Told]:
    """None lost, none beyond, none with two contents; the fold, what it says, what was told."""
    fold, plain = plain_fold(broker, partition, shard, kind, begin)
    live = told_live(broker, partition)
    assert live.conflicts == [], "two contents of one revision"
    assert plain.conflicts == [], "the log itself tells one revision twice, differently"
    assert sorted(live.said.keys() - plain.said.keys()) == [], "told and not in the plain fold"
    assert sorted(plain.said.keys() - live.said.keys()) == [], "lost"
    assert live.said == plain.said
    return fold, plain, live


def _arrived(line: ArchiveLine, kind: ShardKind, placement: Placement) -> Arrived:
    data = b"null" if line.value is None else line.value
    record: Record | Rejected = decode(data, "")
    key = None if line.key is None else line.key.decode()
    why = placement.fault(key, record)
    if why is not None:
        record = rejected(why, data, "")
    arrival_s = line.timestamp_ms / 1000.0
    if kind == "history" and not isinstance(record, Rejected) and record.replayed is not None:
        arrival_s = record.replayed
    return Arrived(line.offset, arrival_s, record)
