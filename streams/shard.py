"""One shard as a live driver carries it: its fold, what it said before, what has to be kept.

No I/O here: records go in, what has to be published comes out. A driver that lost its process
loads the newest snapshot, folds what came after it once more, and what it said of that before is
not said again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import msgspec

from streams.fold import Fold, ShardKind
from streams.snapshot import Snapshots, load
from streams.verdicts import Decide
from telemetry.codec import decode, rejected
from telemetry.placement import Placement
from telemetry.records import Arrived, Record, Rejected
from telemetry.topics import FINDINGS, INCIDENTS, REJECTED, TELEMETRY

SAID_MAX = 1_000_000  # revisions remembered while a restart catches up
_DIGEST_BYTES = 8

SaidKey = tuple[str, str, int]  # topic, id, revision


class LogGap(Exception):
    """The log goes on behind records that were not read: nothing folded from here on is true."""


class Output(msgspec.Struct, frozen=True, gc=False):
    """One record that has to be published to the shard's partition of a topic."""

    topic: str
    key: bytes | None
    value: bytes


class _Said(msgspec.Struct):
    """The part of a finding or an incident that tells whether it was said."""

    id: str
    rev: int


_SAID = msgspec.json.Decoder(_Said)
_ENCODER = msgspec.json.Encoder()


class Already:
    """What was said before a restart; it holds until the fold has caught up with the log.

    muted      repeats that were not said again
    conflicts  repeats whose content was another: one id with two contents, which must not be
    """

    def __init__(self, until_offset: int = 0) -> None:
        self.until_offset = until_offset
        self.ends: dict[str, int] = {}  # topic -> where reading back ended
        self.muted = 0
        self.conflicts = 0
        self._said: dict[SaidKey, bytes] = {}

    def add(self, topic: str, value: bytes | None) -> None:
        """One record of the findings or of the incidents, as it was read back."""
        if value is None or len(self._said) >= SAID_MAX:
            return
        try:
            said = _SAID.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return  # somebody else's record: it can mute nothing
        self._said[topic, said.id, said.rev] = _digest(value)

    def knows(self, topic: str, id_: str, rev: int, value: bytes) -> bool:
        """Whether this was said; a conflict is counted, and said."""
        known = self._said.get((topic, id_, rev))
        if known is None:
            return False
        if known != _digest(value):
            self.conflicts += 1
            return False
        self.muted += 1
        return True

    def over(self, next_offset: int) -> bool:
        """Whether the fold has caught up with the log as it was when it was loaded."""
        if next_offset < self.until_offset:
            return False
        self._said.clear()
        return True


class Shard:
    """A fold with its place in the log.

    offset          of the next record
    settled_offset  what was said of all records before it is acknowledged
    cold            the log began before what could be read: what was before is not known
    stale           keys of snapshots that must be forgotten before the next one is kept
    """

    def __init__(
        self, name: str, kind: ShardKind, decide: Decide, partition: int, offset: int = 0
    ) -> None:
        self.name = name
        self.kind = kind
        self.partition = partition
        self.fold = Fold(decide, kind)
        self.snapshots = Snapshots(name)
        self.already = Already()
        self.offset = offset
        self.cold = False
        self.skipped = 0
        self.saved_offset = self.settled_offset = offset
        self.stale: list[bytes] = []
        self.caught_up = True
        self._placement = Placement(name)
        self._key = name.encode()

    @classmethod
    def restored(
        cls, name: str, kind: ShardKind, decide: Decide, partition: int,
        stored: Mapping[str, bytes], begin: int, end: int,
    ) -> Shard:  # fmt: skip
        """The shard as its newest whole snapshot left it; a cold one where there is none to use.

        stored      the latest value of each key of the state topic
        begin, end  first kept offset of the log and the offset its next record will get
        """
        shard = cls(name, kind, decide, partition, begin)
        found = load(name, stored, lambda: Fold(decide, kind))
        if found is None:
            shard.cold = begin > 0
        elif begin <= found[0].offset + 1 <= end:
            shard.fold, shard.snapshots = found
            shard.offset = shard.fold.offset + 1
            shard.saved_offset = shard.settled_offset = shard.offset
        else:  # the log was cut behind the snapshot, or made anew: it is another story
            shard.cold = True
            shard.skipped = max(begin - found[0].offset - 1, 0)
            shard.snapshots.number = found[1].number
            shard.snapshots.segment = found[1].segment
            shard.stale = [f"{name}/{slot}/marker".encode() for slot in "ab"]
        shard.already.until_offset = end
        shard.caught_up = False
        return shard

    def read_back(self, topic: str, end_offset: int) -> None:
        """What was said in `topic` was handed to `already` up to here; said once a topic."""
        self.already.ends[topic] = end_offset
        if self.already.over(self.offset):
            self._catch_up()

    def take(
        self, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None
    ) -> list[Output]:
        """Fold the next record; what must be published, in order.

        A record that was folded already is dropped. Raises LogGap where some are missing.
        """
        if offset < self.offset:
            return []
        if offset > self.offset:
            raise LogGap(f"{TELEMETRY}/{self.partition}: {offset} follows {self.offset - 1}")
        self.offset = offset + 1
        record = self._decoded(offset, key, value)
        arrival = timestamp_ms / 1000.0
        if self.kind == "history" and not isinstance(record, Rejected):
            arrival = arrival if record.replayed is None else record.replayed
        count = self.fold.counters.rejected
        said = self.fold.step(Arrived(offset, arrival, record))
        outputs: list[Output] = []
        if self.fold.counters.rejected != count:
            outputs.append(self._refused(offset, record, value))
        for finding in said.findings:
            text = _ENCODER.encode(finding)
            if not self.already.knows(FINDINGS, finding.id, finding.rev, text):
                outputs.append(Output(FINDINGS, self._key, text))
        for incident in said.incidents:
            text = _ENCODER.encode(incident)
            if not self.already.knows(INCIDENTS, incident.id, incident.rev, text):
                outputs.append(Output(INCIDENTS, incident.id.encode(), text))
        if not self.caught_up and self.already.over(self.offset):
            self._catch_up()
        return outputs

    def pass_hole(self, offset: int) -> None:
        """The log itself has nothing before `offset`: a transaction's marker leaves such a hole."""
        self.offset = max(self.offset, offset)

    def save(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values of one snapshot; each must be acknowledged before the last is sent."""
        for name, value in self.snapshots.take(self.fold):
            yield name.encode(), value
        self.saved_offset = self.offset

    def note_said(self, topic: str, next_offset: int) -> None:
        """What was said up to here is acknowledged; a restart reads back what follows."""
        if self.caught_up and next_offset > self.snapshots.said.get(topic, 0):
            self.snapshots.said[topic] = next_offset

    def _catch_up(self) -> None:
        """From here on nothing is said again, so what was read back need not be read again."""
        self.caught_up = True
        for topic, end in self.already.ends.items():
            self.note_said(topic, end)

    def _decoded(self, offset: int, key: bytes | None, value: bytes | None) -> Record | Rejected:
        data = b"null" if value is None else value
        place = f"{TELEMETRY}/{self.partition}@{offset}"
        record = decode(data, place)
        name = None if key is None else key.decode("utf-8", "replace")
        why = self._placement.fault(name, record)
        if why is None or isinstance(record, Rejected):
            return record
        return rejected(why, data, place, record.at)

    def _refused(self, offset: int, record: Record | Rejected, value: bytes | None) -> Output:
        """What could not be used, as it is kept."""
        if not isinstance(record, Rejected):
            place = f"{TELEMETRY}/{self.partition}@{offset}"
            reason = self.fold.counters.last_reason
            record = rejected(reason, b"" if value is None else value, place, record.at)
        return Output(REJECTED, None, _ENCODER.encode(record))


def _digest(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=_DIGEST_BYTES).digest()
