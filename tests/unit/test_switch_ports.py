"""Which node a switch's port leads to, and what becomes of drops that both ends tell."""

from __future__ import annotations

import json

import msgspec
import pytest

from collectors.jobs import read_ports, unknown_keys
from detectors.base import Sighting
from detectors.critical import Critical
from detectors.flap import Flap
from telemetry.errors import InputError
from telemetry.records import SWITCH, Event
from telemetry.settings import EngineSettings
from tests.fakes import FakeView, cluster, event

PORT = "nic:mlx5_3/1"


def jobs(**ports: dict[str, str]) -> bytes:
    topology = {node: {"ports": said} for node, said in ports.items()}
    return json.dumps({"jobs": [], "topology": topology}).encode()


def line(
    at: float, source: str = SWITCH, node: str = "n00", entity: str = PORT,
    class_: str = "link_down", severity: str = "warning", **details: str,
) -> Event:  # fmt: skip
    found = event("nic", at, class_=class_, entity=entity, node=node)
    return msgspec.structs.replace(found, source=source, severity=severity, details=details)


def counts(*lines: Event, view: FakeView | None = None) -> list[int]:
    detector = Flap(EngineSettings())
    return [
        seen.events
        for one in lines
        for seen in detector.on_event(one, view or cluster(), one.at)
    ]  # fmt: skip


def test_an_rdma_device_has_port_one_and_other_names_stay() -> None:
    wiring = read_ports(jobs(n1={"leaf1:Et12": "mlx5_0", "leaf2:swp3": "ens1f0"}), "jobs.json")

    assert {"leaf1": {"Ethernet12": ("n1", "mlx5_0/1")}, "leaf2": {"swp3": ("n1", "ens1f0")}} == (
        wiring
    )


@pytest.mark.parametrize("plug", ["leaf1", ":Ethernet1", "leaf1:", "leaf1:\x07"])
def test_what_is_no_port_stops_the_start(plug: str) -> None:
    with pytest.raises(InputError, match="topology: n1"):
        read_ports(jobs(n1={plug: "mlx5_0"}), "jobs.json")


def test_a_port_leads_to_one_node() -> None:
    with pytest.raises(InputError, match="a port leads to one node"):
        read_ports(jobs(n1={"l:Ethernet1": "a"}, n2={"l:Et1": "a"}), "jobs.json")


def test_keys_that_nobody_reads_are_named() -> None:
    said = {
        "jobs": [{"id": 1, "nodes": ["a"], "gpus": 8, "parallel": {"tp": 1, "cp": 2}}],
        "topology": {"a": {"leaf": "l", "switch": "x"}}, "cluster": "c",
    }  # fmt: skip

    assert ["cluster", "jobs.gpus", "jobs.parallel.cp", "topology.<node>.switch"] == (
        unknown_keys(json.dumps(said).encode())
    )
    assert [] == unknown_keys(jobs(a={"l:e1": "mlx5_0"}))


def test_a_drop_that_node_and_switch_tell_is_one() -> None:
    assert [1, 1] == counts(line(100.0, "kernel"), line(101.0))
    assert [1, 1] == counts(line(100.0), line(101.0, "kernel"))
    assert [1, 1, 2, 2] == counts(
        line(100.0), line(100.4, "kernel"), line(150.0), line(150.2, "kernel")
    )


def test_two_quick_drops_that_both_tell_are_two() -> None:
    both = counts(line(100.0, "kernel"), line(100.1), line(103.0, "kernel"), line(103.1))

    assert [1, 1, 2, 2] == both


def test_two_drops_that_only_the_switch_tells_are_two() -> None:
    assert [1, 2] == counts(line(100.0), line(130.0))


def test_what_a_switch_says_of_a_node_that_is_quiet_is_no_drop() -> None:
    view = cluster()
    view.heard["n00"] = 100.0

    assert [1] == counts(line(110.0), line(200.0), view=view)  # it boots


def test_many_nodes_of_one_switch_at_once_are_the_switch_and_count_against_none() -> None:
    """A rail: no leaf is shared, only the switch's lines tell that the ports are neighbours."""
    detector, seen = Flap(EngineSettings()), list[Sighting]()
    for wave in (100.0, 200.0, 300.0):
        for node in ("n00", "n01", "n02", "n03"):
            seen += detector.on_event(line(wave, node=node, switch="rail3"), cluster(), wave)
            seen += detector.on_event(line(wave + 0.2, "kernel", node=node), cluster(), wave)

    assert {("fabric", "", "switch:rail3")} == {
        (one.kind, one.node, one.entity) for one in seen if one.severity == "critical"
    }
    assert 1 == max(one.events for one in seen)
    assert [] == [one for one in seen if one.certain]


def test_a_restart_forgets_neither_plugs_nor_a_switch_that_fell() -> None:
    before, after = Flap(EngineSettings()), Flap(EngineSettings())
    for node in ("n00", "n01", "n02"):
        before.on_event(line(100.0, node=node, switch="rail3"), cluster(), 100.0)
    after.restore(json.loads(json.dumps(before.snapshot())))

    assert [] == list(after.on_event(line(150.0, "kernel"), cluster(), 150.0))
    assert before.snapshot() == after.snapshot()


def test_an_unmapped_port_is_evidence_and_of_no_node() -> None:
    detector = Flap(EngineSettings())
    seen: list[Sighting] = []
    for at in (100.0, 130.0, 160.0):
        seen += detector.on_event(line(at, node="", entity="switch:l1/Ethernet4"), cluster(), at)

    assert {("evidence", "", "info", False)} == {
        (one.role, one.node, one.severity, one.certain) for one in seen
    }


def test_a_power_supply_of_a_switch_is_a_fault_of_the_fabric_until_it_is_back() -> None:
    detector = Critical(EngineSettings())
    bad = line(100.0, node="", entity="switch:l1", class_="psu", part="PSU 1")
    good = line(200.0, node="", entity="switch:l1", class_="psu_normal", severity="info")
    (seen,) = detector.on_event(bad, cluster(), 100.0)
    (over,) = detector.on_event(good, cluster(), 200.0)

    assert ("fabric", "fault", "", True) == (seen.kind, seen.role, seen.node, seen.active)
    assert not over.active


def test_optics_of_a_mapped_port_are_evidence_on_its_node() -> None:
    detector = Critical(EngineSettings())
    (seen,) = detector.on_event(line(1.0, class_="optics", port="Ethernet4"), cluster(), 1.0)

    assert ("nic_fault", "evidence", "n00", PORT) == (seen.kind, seen.role, seen.node, seen.entity)
    assert [] == list(
        detector.on_event(line(2.0, class_="link_up", severity="info"), cluster(), 2.0)
    )
