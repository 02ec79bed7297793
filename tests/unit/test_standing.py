"""`nodewarden status`: what it makes of the tail of a log, the inventory and the worker."""

from __future__ import annotations

import msgspec
import pytest
from rich.console import Console

from collectors.central.hosts import read_hosts, read_inventory
from console.standing import ShardStanding, Standing, shown
from nodewarden.standing import read_tail, read_worker, standing
from telemetry.codec import encode
from telemetry.errors import SourceUnavailable
from telemetry.records import Allocation, Beat, Frame, Record
from telemetry.settings import Configuration
from telemetry.testing import ManualClock, MemoryLog
from telemetry.topics import INVENTORY, TELEMETRY

NOW_S = 1_700_000_000.0
METRICS: dict[str, list[float | None]] = {
    "gpu_temperature_celsius": [50.0], "gpu_power_watts": [600.0],
}  # fmt: skip
CONFIGURATION = Configuration()


def frame(node: str, source: str = "gpu", **metrics: list[float | None]) -> Frame:
    return Frame(
        at=NOW_S, node=node, source=source, started_at=0.0, seq=0,
        entities={"gpu": ["gpu0"]}, metrics={**METRICS, **metrics},
    )  # fmt: skip


def beat() -> Beat:
    return Beat(at=NOW_S, node="", source="inventory", started_at=0.0, seq=0)


def listing() -> Allocation:
    return Allocation(
        at=NOW_S, node="", source="inventory", started_at=0.0, seq=0, listing="a", last=True,
        count=1,
    )  # fmt: skip


class Site:
    """A log and an inventory in memory; `age_s` is how old what is told is."""

    def __init__(self) -> None:
        self.log = MemoryLog({TELEMETRY: 1, INVENTORY: 1})

    def told(self, age_s: float, *records: Record) -> Site:
        self.log.now_ms = int((NOW_S - age_s) * 1e3)
        for record in records:
            self.log.append(TELEMETRY, encode(record))
        return self

    def listed(self, **states: str) -> Site:
        for node, state in states.items():
            value = msgspec.json.encode({"name": node, "state": state})
            self.log.append(INVENTORY, value, key=f"sched/{node}".encode())
        return self

    def stands(self, *shards: ShardStanding) -> Standing:
        reader = self.log.reader()
        tail = read_tail(reader, (TELEMETRY, 0), 60.0, ManualClock(NOW_S))
        inventory = read_inventory(reader)
        return standing(tail, inventory, shards, (), CONFIGURATION, NOW_S, 60.0)


def well() -> Site:
    nodes = [frame(f"n{i}", source) for i in range(10) for source in ("gpu", "nic")]
    site = Site().told(300.0, listing()).told(5.0, beat(), *nodes)
    return site.listed(**{f"n{i}": "allocated" for i in range(10)})


def test_all_is_well_and_every_pair_is_covered() -> None:
    found = well().stands(ShardStanding("main", 3.0, 1.0, 0.0))
    assert ([], 1.0, 10, 10) == (found.problems, found.coverage, found.reporting, found.expected)
    assert ([], []) == (found.silent, found.nodes)
    assert 5.0 == found.beat_age_s


def test_a_silent_node_is_named_unless_the_scheduler_took_it_out() -> None:
    found = well().listed(n10="idle", n11="idle*+drain").stands()
    assert ["n10"] == found.silent
    assert ["1 of 11 nodes are silent"] == found.problems
    assert [("n10", ["gpu", "nic"], None)] == [(n.node, n.missing, n.age_s) for n in found.nodes]
    assert pytest.approx(20 / 22) == found.coverage


def test_a_node_that_spoke_before_the_window_is_silent() -> None:
    found = Site().told(90.0, frame("n0"), listing()).told(5.0, beat(), frame("n1")).stands()
    assert ["n0"] == found.silent


def test_a_source_that_most_nodes_send_is_missing_at_one_and_what_few_send_at_nobody() -> None:
    site = well().told(4.0, frame("n0", "host"), frame("n10")).listed(n10="idle")
    found = site.stands()
    assert [("n10", ["nic"])] == [(node.node, node.missing) for node in found.nodes]
    assert [("gpu", 0), ("nic", 1)] == [(one.source, one.missing) for one in found.sources]
    assert ["1 nodes that report send no nic"] == found.problems


def test_a_node_is_blind_where_its_values_are_null_or_a_metric_of_all_others_is_not_there() -> None:
    site = well()
    site.told(3.0, frame("n3", gpu_power_watts=[None]))
    site.told(2.0, frame("n4", gpu_power_watts=[None], gpu_temperature_celsius=[None]))
    found = site.stands()
    assert [("n3", ["gpu_power_watts"]), ("n4", ["gpu"])] == [
        (node.node, node.blind) for node in found.nodes
    ]
    assert ["2 nodes lack metrics that the others send"] == found.problems
    assert "Xids" in found.off


def test_without_beats_and_listing_the_log_cannot_tell_who_runs_where() -> None:
    found = Site().told(1.0, frame("n0")).stands()
    assert 2 == len(found.problems)
    assert "no beat of late" in found.problems[0]
    assert "no whole listing" in found.problems[1]


def test_an_empty_log_is_said() -> None:
    assert "nothing in the log: nobody sends" in Site().stands().problems


def test_broken_records_are_passed_over() -> None:
    site = well()
    site.log.append(TELEMETRY, b"\xff{")
    site.log.append(TELEMETRY, b'{"kind":"frame","node":5}')
    assert [] == site.stands().problems


def test_a_worker_that_is_behind_is_a_problem() -> None:
    found = well().stands(ShardStanding("main", 9e6, 120.0, 0.9))
    assert 2 == len(found.problems)


def test_a_worker_that_does_not_answer_is_one_line() -> None:
    with pytest.raises(SourceUnavailable, match=r"the worker at 127\.0\.0\.1:9 tells nothing"):
        read_worker("127.0.0.1:9", ManualClock())


def test_no_topic_is_said_with_the_remedy() -> None:
    with pytest.raises(SourceUnavailable, match="topics create"):
        read_tail(MemoryLog({}).reader(), (TELEMETRY, 0), 60.0, ManualClock(NOW_S))


def test_names_from_outside_cannot_colour_the_tables_and_the_worst_are_bounded() -> None:
    site = well()
    for i in range(200):
        site.listed(**{f"[red]x{i}\x1b": "idle"})
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(shown(site.stands(), 20))
    text = console.export_text()
    console.file.close()
    assert "Nodes, the worst; 180 more" in text
    assert "[red]x1" in text
    assert "\x1b" not in text
    assert len(text.splitlines()) < 80


def test_the_inventory_tells_nodes_jobs_and_other_names() -> None:
    log = MemoryLog({INVENTORY: 1})
    log.append(INVENTORY, b'{"aliases":["10.0.0.7"]}', key=b"hw/n1")
    log.append(INVENTORY, b'{"id":"j"}', key=b"job/j")
    log.append(INVENTORY, b"{}", key=b"sched/n1")
    log.append(INVENTORY, b"{}", key=b"sched/n2")
    log.append(INVENTORY, None, key=b"sched/n2")
    hosts = read_hosts(log.reader())
    assert (frozenset({"n1"}), {"10.0.0.7": "n1"}, frozenset({"j"})) == (
        hosts.nodes, hosts.aliases, hosts.jobs,
    )  # fmt: skip
