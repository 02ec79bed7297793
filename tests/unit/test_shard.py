"""A shard as a live driver carries it: what it says, refuses, keeps, and how it comes back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import pytest

from actions.policy import verdict
from evaluation.faults import parse_fault
from evaluation.simulator import START_S, Simulation
from streams.shard import LogGap, Output, Shard
from telemetry.codec import encode
from telemetry.records import Frame, Hardware, Record
from telemetry.topics import FINDINGS, INCIDENTS

Line = tuple[int, int, bytes | None, bytes | None]  # offset, ms, key, value
FAULTS = ("ecn@n003+60", "xid94@n005+120", "nvme@n006+200")


@lru_cache(maxsize=2)
def log(minutes: float = 20.0) -> tuple[Line, ...]:
    """Eight nodes with three faults, as the live shard holds them."""
    run = Simulation(8, minutes=minutes, seed=3, faults=[parse_fault(text) for text in FAULTS])
    return lines(run.records())


def lines(records: Iterable[tuple[float, Record]], first: int = 0) -> tuple[Line, ...]:
    return tuple(
        (offset, round(at_s * 1000.0), b"main", encode(record))
        for offset, (at_s, record) in enumerate(records, first)
    )


def shard() -> Shard:
    return Shard("main", "live", verdict, 0)


def restored(store: dict[str, bytes], end: int, begin: int = 0) -> Shard:
    return Shard.restored("main", "live", verdict, 0, store, begin, end)


def fold(onto: Shard, log: Sequence[Line]) -> list[Output]:
    return [output for line in log for output in onto.take(*line)]


def save(of: Shard, store: dict[str, bytes], chunks: int | None = None) -> None:
    """Keep a snapshot, or only its first chunks, as of a worker that was killed in it."""
    for number, (key, value) in enumerate(of.save()):
        if chunks is not None and number >= chunks:
            return
        store[key.decode()] = value


def read_back(onto: Shard, said: Sequence[Output]) -> Shard:
    """What a restarted worker reads of the topics."""
    for topic in (FINDINGS, INCIDENTS):
        kept = [output for output in said if output.topic == topic]
        for output in kept[onto.snapshots.said.get(topic, 0) :]:
            onto.already.add(topic, output.value)
        onto.read_back(topic, len(kept))
    return onto


WHOLE = fold(shard(), log())


def test_a_repeat_is_dropped_and_a_gap_ends_the_fold_k8() -> None:
    first = shard()
    said = fold(first, log()[:500])
    assert [] == fold(first, log()[100:500])
    with pytest.raises(LogGap, match="501 follows 499"):
        first.take(*log()[501])
    assert said + fold(first, log()[500:]) == WHOLE


def test_what_was_said_after_the_snapshot_is_not_said_again() -> None:
    first, store = shard(), dict[str, bytes]()
    said = fold(first, log()[:600])
    save(first, store)
    said += fold(first, log()[600:1_000])

    second = read_back(restored(store, 1_000), said)
    assert second.offset == 600
    again = fold(second, log()[600:1_000])
    assert [] == again
    assert second.already.conflicts == 0
    assert second.caught_up
    assert said + fold(second, log()[1_000:]) == WHOLE


def test_another_content_of_one_revision_is_counted_and_said() -> None:
    changed = [
        msgspec.structs.replace(
            output, value=output.value.replace(b'"state":"open"', b'"state":"update"')
        )
        for output in WHOLE
    ]
    second = read_back(restored({}, len(log())), changed)
    fold(second, log())
    assert second.already.conflicts > 0


def zombie(store: dict[str, bytes]) -> tuple[Shard, Shard]:
    """Two that go on from one snapshot: the one that does not know, and who has the shard now."""
    old = shard()
    fold(old, log()[:200])
    save(old, store)
    fold(old, log()[200:400])
    save(old, store)
    new = restored(store, len(log()))
    fold(old, log()[400:500])
    return old, new


@pytest.mark.parametrize("later", range(1, 30, 4))
def test_a_worker_that_lost_its_shard_cannot_break_the_snapshots_of_the_next(later: int) -> None:
    """It wakes when the next one has kept `later` snapshots, and keeps two of its own."""
    store: dict[str, bytes] = {}
    old, new = zombie(store)
    for number in range(later):
        fold(new, log()[400 + number * 10 : 410 + number * 10])
        save(new, store)
    for _ in range(2):
        save(old, store)

    # Its slots stand where those of the next one stood: until that keeps another, its own count.
    assert restored(store, len(log())).offset in (500, new.offset)
    fold(new, log()[new.offset : new.offset + 10])
    save(new, store)
    third = restored(store, len(log()))
    assert third.offset == max(new.offset, 500)
    said = fold(third, log()[third.offset :])
    assert said == WHOLE[len(WHOLE) - len(said) :]


def test_a_zombies_snapshot_and_a_torn_one_of_the_owner_lose_nothing() -> None:
    store: dict[str, bytes] = {}
    old, new = zombie(store)
    fold(new, log()[400:800])
    save(new, store)
    save(new, store)
    save(old, store)
    save(new, store, chunks=2)
    third = restored(store, len(log()))
    assert third.offset in (500, 800)
    said = fold(third, log()[third.offset :])
    assert said == WHOLE[len(WHOLE) - len(said) :]


def test_a_node_deleted_and_added_again_survives_a_restart_k3() -> None:
    """The changelog (n1,a)(n2,b)(n2,null)(n2,c) of the state topic gives n2=c."""
    first, store = shard(), dict[str, bytes]()
    fold(first, log()[:200])
    save(first, store)
    stored = dict(store)
    for key in [key for key in stored if key.startswith("main/a/")]:
        del stored[key]  # tombstones
    assert restored(stored, 200).offset == 0
    stored.update(store)  # and written again
    assert restored(stored, 200).offset == 200


def visitors(count: int, first_s: float) -> list[tuple[float, Record]]:
    """Nodes that say what they are, send one frame, and are never heard again."""
    records: list[tuple[float, Record]] = []
    for number in range(count):
        at_s = first_s + number * 0.05
        said: dict[str, Any] = {
            "at": at_s, "node": f"v{number:05d}", "source": "gpu", "started_at": 1.0,
        }  # fmt: skip
        gpus: dict[str, Any] = {
            "entities": {"gpu": ["gpu:x"]}, "metrics": {"gpu_temperature_celsius": [50.0]},
        }  # fmt: skip
        records += [(at_s, Hardware(seq=0, **said)), (at_s, Frame(seq=1, **gpus, **said))]
    return records


def test_a_restart_adds_nothing_to_the_state_of_nodes_that_came_and_went_k2() -> None:
    run = Simulation(8, minutes=10.0, seed=3)
    mixed = sorted([*run.records(), *visitors(1_000, START_S + 60.0)], key=lambda one: one[0])
    first, sizes = shard(), list[int]()
    fold(first, lines(mixed))
    for _ in range(4):
        store: dict[str, bytes] = {}
        save(first, store)
        sizes.append(sum(len(value) for value in store.values()))
        first = restored(store, len(mixed))
    assert max(sizes) <= sizes[0] + 1_000


@pytest.mark.parametrize("restart", [False, True])
def test_nodes_that_came_and_went_leave_the_state_as_it_was_without_them_k2(restart: bool) -> None:
    run = Simulation(8, minutes=70.0, gpu_interval_s=60.0, nic_interval_s=60.0, seed=3)
    mixed = sorted([*run.records(), *visitors(500, START_S + 60.0)], key=lambda one: one[0])
    cut = len(mixed) // 2 if restart else 0
    first, store = shard(), dict[str, bytes]()
    said = fold(first, lines(mixed)[:cut])
    if restart:
        save(first, store)
        assert any(name.startswith("v") for name in first.fold.sources["gpu"].names)
        first = restored(store, len(mixed))
    said += fold(first, lines(mixed)[cut:])
    names = {name for source in first.fold.sources.values() for name in source.names}
    assert {name for name in names if name.startswith("v")} == set()
    assert len(names) == 8
    assert not any(stream[0].startswith("v") for stream in first.fold.speakers.streams)
    after: dict[str, bytes] = {}
    save(first, after)
    assert restored(after, len(mixed)).fold.sources["gpu"].names == sorted(names)
    plain = shard()
    fold(plain, lines(sorted(run.records(), key=lambda one: one[0])))
    alone: dict[str, bytes] = {}
    save(plain, alone)
    size, without = (sum(map(len, kept.values())) for kept in (after, alone))
    assert size < 1.3 * without + 20_000
    whole = shard()
    assert said == fold(whole, lines(mixed))


def test_the_newest_of_many_writes_of_a_key_is_what_a_restart_reads_k4() -> None:
    """Each snapshot overwrites the keys of the one before the last, hundreds of times."""
    first, store = shard(), dict[str, bytes]()
    for line in log()[:300]:
        fold(first, [line])
        save(first, store)
        assert restored(store, 300).offset == first.offset
    again = restored(store, 300)
    assert again.fold.counters == first.fold.counters
    said = fold(again, log()[300:])
    assert said == WHOLE[len(WHOLE) - len(said) :]
