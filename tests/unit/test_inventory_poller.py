"""The log is told who runs where: at once, whole now and then, and never an empty listing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.inventory.listings import change, parts
from collectors.inventory.metrics import InventoryMetrics
from collectors.inventory.poller import InventoryPoller, Target
from collectors.inventory.source import InventorySource, JobsFile
from collectors.inventory.state import WINDOW_NODES, InventoryState, stored_state
from streams.inventory import Inventory
from telemetry.codec import decode
from telemetry.errors import InputError, PublishError, SourceUnavailable
from telemetry.records import (
    Allocation,
    Job,
    JobNode,
    Maintenance,
    NodeInfo,
    Record,
    Rejected,
    Settings,
)
from telemetry.settings import EngineSettings, InventorySettings, settings_digest
from telemetry.testing import ManualClock, MemoryLog, MemoryPublisher
from telemetry.topics import INVENTORY, TELEMETRY

PLAIN = InventorySettings()


class Setting:
    """A poller over a file, with everything around it in memory."""

    def __init__(
        self, path: Path, chosen: InventorySettings = PLAIN, stored: dict[str, bytes] | None = None
    ) -> None:
        self.file = path / "jobs.json"
        self.clock = ManualClock()
        self.publisher = MemoryPublisher()
        self.metrics = InventoryMetrics()
        self.engine = EngineSettings()
        self._versions = 0
        self.chosen = chosen
        self._stored = stored or {}

    def write(self, said: object) -> None:
        self.write_text(json.dumps(said))

    def write_text(self, text: str) -> None:
        """A new file in the place of the old one, as `mv` does."""
        self._versions += 1
        fresh = self.file.with_name(f"new-{self._versions}")
        fresh.write_text(text)
        os.replace(fresh, self.file)

    def poller(self, source: InventorySource | None = None) -> InventoryPoller:
        state = InventoryState(self.publisher, self._stored, 900_000)
        return InventoryPoller(
            source or JobsFile(self.file, self.clock), self.publisher, state, Target("main", 0),
            lambda: self.engine, "1.2", self.chosen, self.clock, self.metrics,
        )  # fmt: skip

    def records(self) -> list[Record]:
        """What went to the telemetry, decoded, since the last call."""
        found = []
        for sent in self.publisher.of(TELEMETRY):
            assert (sent.key, sent.partition) == (b"main", 0)
            record = decode(sent.value or b"", "test")
            assert not isinstance(record, Rejected)
            assert sent.headers == (("kind", str(record.__struct_config__.tag).encode()),)
            found.append(record)
        self.publisher.records = [
            sent for sent in self.publisher.records if sent.topic != TELEMETRY
        ]
        return found

    def state(self) -> dict[str, bytes]:
        """What a compacted topic would hold."""
        held: dict[str, bytes] = {}
        for sent in self.publisher.of(INVENTORY):
            key = (sent.key or b"").decode()
            if sent.value is None:
                held.pop(key)
            else:
                held[key] = sent.value
        return held

    def failures(self) -> float | None:
        name = "nodewarden_inventory_source_failures_total"
        return self.metrics.registry.get_sample_value(name)


def jobs(*ids: str, nodes: int = 2) -> dict[str, object]:
    return {"jobs": [{"id": id, "nodes": [f"{id}-n{n}" for n in range(nodes)]} for id in ids]}


def kinds(records: list[Record]) -> list[str]:
    return [type(record).__name__ for record in records]


def folded(records: list[Record]) -> Inventory:
    inventory = Inventory()
    for record in records:
        if isinstance(record, Allocation):
            inventory.allocate(record)
    return inventory


def test_the_first_thing_said_is_the_settings_then_everything_then_a_beat(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.write(jobs("a"))
    setting.poller().start()
    records = setting.records()
    assert kinds(records) == ["Settings", "Allocation", "Beat"]
    said, listing, _ = records
    assert isinstance(said, Settings)
    assert said.digest == settings_digest(setting.engine)
    assert isinstance(listing, Allocation)
    assert (listing.last, listing.count, bool(listing.listing)) == (True, 1, True)
    assert [(r.node, r.source, r.seq, r.sent_at) for r in records] == [
        ("", "inventory", seq, setting.clock.time_s()) for seq in range(3)
    ]


def test_maintenance_is_kept_in_the_topic_and_is_not_in_the_log(tmp_path: Path) -> None:
    """No finding depends on it. A window of very many nodes is kept in pieces."""
    setting = Setting(tmp_path)
    setting.write(jobs("a"))
    source = JobsFile(setting.file, setting.clock)
    windows = [Maintenance("m1", 1.0, 2.0, [f"n{number}" for number in range(WINDOW_NODES + 1)])]

    class Reserved:
        def listing(self) -> Allocation:
            return msgspec.structs.replace(source.listing(), maintenance=windows)

    poller = setting.poller(Reserved())
    poller.start()
    setting.records()
    kept = [key for key in setting.state() if key.startswith("window/")]
    assert ["window/m1", "window/m1#2"] == kept
    pieces = [msgspec.json.decode(setting.state()[key], type=Maintenance) for key in kept]
    assert windows[0].nodes == [node for piece in pieces for node in piece.nodes]

    windows = [Maintenance("m2", 1.0, 2.0, ["n1"])]
    setting.clock.advance(setting.chosen.poll_s)
    poller.step()
    assert ["window/m2"] == [key for key in setting.state() if key.startswith("window/")]
    assert "Allocation" not in kinds(setting.records())


def test_a_beat_every_5_s_and_everything_again_every_10_min(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.write(jobs("a"))
    poller = setting.poller()
    poller.start()
    setting.records()
    for _ in range(120):
        setting.clock.advance(5.0)
        poller.step()
    assert kinds(setting.records()) == ["Beat"] * 119 + ["Settings", "Allocation", "Beat"]


def test_a_change_is_said_at_once_and_alone(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.write(jobs("a", "b"))
    poller = setting.poller()
    poller.start()
    first = setting.records()
    setting.write(jobs("a", "b", "c"))
    setting.clock.advance(5.0)
    poller.step()
    records = setting.records()
    assert kinds(records) == ["Allocation", "Beat"]
    told = records[0]
    assert isinstance(told, Allocation)
    assert (told.listing, [job.id for job in told.jobs]) == ("", ["c"])
    assert folded([*first, *records]).running_jobs(2e9) == [
        ("a", None, 0), ("b", None, 0), ("c", None, 0),
    ]  # fmt: skip


def test_a_job_that_is_gone_ends_now_and_nodes_that_are_gone_make_a_listing(
    tmp_path: Path,
) -> None:
    setting = Setting(tmp_path)
    topology: dict[str, object] = {"topology": {"a-n0": {}, "a-n1": {}, "b-n0": {}, "b-n1": {}}}
    setting.write(jobs("a", "b") | topology)
    poller = setting.poller()
    poller.start()
    first = setting.records()
    setting.write(jobs("a") | topology)
    setting.clock.advance(5.0)
    poller.step()
    ended = setting.records()
    assert kinds(ended) == ["Allocation", "Beat"]
    now_s = setting.clock.time_s()
    inventory = folded([*first, *ended])
    assert [job for job, _, _ in inventory.running_jobs(now_s - 1.0)] == ["a", "b"]
    assert [job for job, _, _ in inventory.running_jobs(now_s)] == ["a"]
    setting.write(jobs("a"))
    setting.clock.advance(5.0)
    poller.step()
    listed = setting.records()
    assert kinds(listed) == ["Settings", "Allocation", "Beat"]
    assert sorted(folded([*first, *ended, *listed])._nodes) == ["a-n0", "a-n1"]


@pytest.mark.parametrize("text", ["", "{", '{"jobs": [{"id": "", "nodes": []}]}', "null"])
def test_a_broken_file_is_said_once_and_changes_nothing(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    setting = Setting(tmp_path)
    setting.write(jobs("a"))
    poller = setting.poller()
    poller.start()
    before = setting.state()
    setting.records()
    setting.write_text(text)
    for _ in range(121):
        setting.clock.advance(5.0)
        poller.step()
    listings = [r for r in setting.records() if isinstance(r, Allocation)]
    assert [[job.id for job in listing.jobs] for listing in listings] == [["a"]]
    assert setting.state() == before
    assert setting.failures() == 121.0
    assert len([r for r in caplog.records if r.message.startswith("source_failed")]) == 1


def test_a_file_that_is_removed_and_comes_again_is_no_empty_listing(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.write(jobs("a"))
    poller = setting.poller()
    poller.start()
    setting.records()
    setting.file.unlink()
    setting.clock.advance(5.0)
    poller.step()
    assert kinds(setting.records()) == ["Beat"]
    setting.write(jobs("a", "b"))
    setting.clock.advance(5.0)
    poller.step()
    assert kinds(setting.records()) == ["Allocation", "Beat"]


def test_a_file_that_is_broken_at_the_start_is_the_operators_error(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    with pytest.raises(InputError, match=r"jobs\.json"):
        setting.poller().start()
    setting.write_text("{")
    with pytest.raises(InputError, match=r"jobs\.json"):
        setting.poller().start()


def test_a_file_rewritten_within_the_clock_tick_of_its_disk_is_read(tmp_path: Path) -> None:
    """Same size, same inode, same mtime: only a look into it tells."""
    setting = Setting(tmp_path)
    setting.write(jobs("a"))
    stamp = setting.file.stat().st_mtime
    setting.clock.set(stamp)
    source = JobsFile(setting.file, setting.clock)
    assert [job.id for job in source.listing().jobs] == ["a"]
    setting.file.write_text(json.dumps(jobs("b")))
    os.utime(setting.file, (stamp, stamp))
    assert [job.id for job in source.listing().jobs] == ["b"]


def test_settings_that_changed_go_with_the_next_listing(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.write(jobs("a"))
    poller = setting.poller()
    poller.start()
    setting.records()
    setting.engine = EngineSettings(cluster="other")
    setting.clock.advance(PLAIN.listing_s)
    poller.step()
    said = setting.records()[0]
    assert isinstance(said, Settings)
    assert (said.settings.cluster, said.digest) == ("other", settings_digest(setting.engine))


def test_what_kafka_did_not_take_is_said_again_whole(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.write(jobs("a"))
    poller = setting.poller()
    poller.start()
    setting.records()
    setting.write(jobs("a", "b"))
    setting.clock.advance(5.0)
    setting.publisher.refuse(1)
    with pytest.raises(PublishError):
        poller.step()
    poller.step()
    records = setting.records()
    assert kinds(records) == ["Settings", "Allocation", "Beat"]
    assert len({record.seq for record in records}) == 3
    assert sorted(setting.state()) == [
        "job/a", "job/b", "sched/a-n0", "sched/a-n1", "sched/b-n0", "sched/b-n1",
    ]  # fmt: skip


def test_the_state_topic_holds_what_is_and_tombstones_what_was(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.write(jobs("a", "b"))
    poller = setting.poller()
    poller.start()
    setting.write(jobs("b"))
    setting.clock.advance(5.0)
    poller.step()
    poller.step()
    state = setting.state()
    assert sorted(state) == ["job/b", "sched/b-n0", "sched/b-n1"]
    assert msgspec.json.decode(state["job/b"], type=Job).id == "b"
    assert msgspec.json.decode(state["sched/b-n0"], type=NodeInfo).name == "b-n0"


def test_a_restart_tombstones_what_went_meanwhile_and_repeats_nothing(tmp_path: Path) -> None:
    log = MemoryLog({INVENTORY: 1})
    first = Setting(tmp_path)
    first.write(jobs("a", "b"))
    first.poller().start()
    log.append(INVENTORY, b"{}", key=b"hw/a-n0")
    for sent in first.publisher.of(INVENTORY):
        log.append(INVENTORY, sent.value, key=sent.key)
    second = Setting(tmp_path, stored=stored_state(log.reader()))
    second.write(jobs("a"))
    second.poller().start()
    assert [(sent.key, sent.value) for sent in second.publisher.of(INVENTORY)] == [
        (b"sched/b-n0", None), (b"sched/b-n1", None), (b"job/b", None),
    ]  # fmt: skip


def test_without_its_topic_nothing_is_stored() -> None:
    assert stored_state(MemoryLog({}).reader()) == {}


class Mute:
    """A scheduler that does not answer, until it does."""

    def __init__(self) -> None:
        self.answer: Callable[[], Allocation] = self._refuse

    def listing(self) -> Allocation:
        return self.answer()

    def _refuse(self) -> Allocation:
        raise SourceUnavailable("no answer")


def test_a_scheduler_that_is_away_at_the_start_leaves_beats_and_settings(tmp_path: Path) -> None:
    setting, source = Setting(tmp_path), Mute()
    state = InventoryState(setting.publisher, {}, 900_000)
    poller = InventoryPoller(
        source, setting.publisher, state, Target("main", 0), EngineSettings, "1.2", PLAIN,
        setting.clock, setting.metrics,
    )  # fmt: skip
    poller.start()
    assert kinds(setting.records()) == ["Settings", "Beat"]
    setting.write(jobs("a"))
    source.answer = JobsFile(setting.file, setting.clock).listing
    setting.clock.advance(5.0)
    poller.step()
    assert kinds(setting.records()) == ["Settings", "Allocation", "Beat"]


def test_a_job_larger_than_a_record_goes_on_in_the_next_part(tmp_path: Path) -> None:
    """12,500 nodes with 8 ranks each: over 1 MB as one record."""
    setting = Setting(tmp_path)
    names = [f"node-{n:05d}" for n in range(12_500)]
    ranks = {name: list(range(8 * n, 8 * n + 8)) for n, name in enumerate(names)}
    setting.write({"jobs": [{"id": "big", "nodes": names, "ranks": ranks}]})
    setting.poller().start()
    sizes = [len(sent.value or b"") for sent in setting.publisher.of(TELEMETRY)]
    assert sum(sizes) > 1_000_000
    assert max(sizes) <= PLAIN.part_bytes
    inventory = folded(setting.records())
    assert list(inventory.job_nodes("big", 2e9)) == names
    assert inventory.rank_node("big", 99_999) == "node-12499"
    assert max(len(sent.value or b"") for sent in setting.publisher.of(INVENTORY)) <= 900_000


NAMES = st.integers(0, 12).map(lambda n: f"n{n}")
JOBS = st.builds(
    lambda id, nodes, name: Job(
        id=id, name=name, nodes=[JobNode(name=node) for node in dict.fromkeys(nodes)]
    ),
    id=st.sampled_from("abcdef"),
    nodes=st.lists(NAMES, max_size=6),
    name=st.text("xy", max_size=600),
)
LISTINGS = st.builds(
    lambda jobs, leaves: Allocation(
        at=1.7e9, node="", source="inventory", started_at=0.0, seq=0,
        jobs=list({job.id: job for job in jobs}.values()),
        nodes=[NodeInfo(name=name, leaf=leaf) for name, leaf in sorted(leaves.items())],
    ),
    jobs=st.lists(JOBS, max_size=6),
    leaves=st.dictionaries(NAMES, st.sampled_from(("", "l1", "l2")), max_size=8),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(listing=LISTINGS, part_bytes=st.integers(900, 3_000))
def test_the_parts_of_a_listing_add_up_to_it(listing: Allocation, part_bytes: int) -> None:
    inventory = Inventory()
    cut = parts(listing.jobs, listing.nodes, part_bytes)
    for number, part in enumerate(cut, start=1):
        record = msgspec.structs.replace(
            listing, jobs=part.jobs, nodes=part.nodes, listing="x", count=len(cut),
            last=number == len(cut),
        )  # fmt: skip
        assert len(msgspec.json.encode(record)) <= max(part_bytes, 1_300)
        inventory.allocate(record)
    assert inventory._jobs == {job.id: job for job in listing.jobs}
    assert inventory._nodes == {node.name: node for node in listing.nodes}


@settings(max_examples=200, deadline=None)
@given(before=LISTINGS, after=LISTINGS)
def test_a_change_brings_the_fold_to_what_a_listing_would(
    before: Allocation, after: Allocation
) -> None:
    now_s = 1.7e9 + 100.0
    differs = change(before, after, now_s, 500_000)
    if differs.whole:
        return
    inventory = Inventory()
    inventory.allocate(before)
    told = msgspec.structs.replace(after, jobs=differs.jobs, nodes=differs.nodes)
    inventory.allocate(told)
    want = Inventory()
    want.allocate(after)
    assert inventory.running_jobs(now_s) == want.running_jobs(now_s)
    assert inventory._nodes == want._nodes
    assert {name: inventory.place(name, now_s) for name in inventory._nodes} == {
        name: want.place(name, now_s) for name in want._nodes
    }


def test_equal_listings_are_no_change() -> None:
    listing = Allocation(at=1.0, node="", source="", started_at=0.0, seq=0, jobs=[Job(id="a")])
    assert change(listing, listing, 2.0, 500_000).is_empty
