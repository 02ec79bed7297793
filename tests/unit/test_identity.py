"""One incident through boots and renames: machines by serial, ports by GUID, GPUs by UUID."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct

from detectors.base import Sighting
from streams.inventory import Inventory
from telemetry.findings import Kind
from telemetry.records import Allocation, Beat, Gpu, Hardware, NodeInfo, Port, Settings
from telemetry.settings import (
    CorrelationSettings,
    EngineSettings,
    SilenceSettings,
    settings_digest,
)
from tests.fakes import FakeView, cluster, event
from tests.folding import folded, numbered
from tests.unit.test_correlation import Desk, fault, suspects

RULES = CorrelationSettings(clear_s=60.0, reopen_s=600.0, join_s=300.0)
OLD, NEW = "nic:mlx5_3/1", "nic:mlx5_7/1"


def hardware(
    node: str = "n1", serial: str = "", started_at: float = 100.0, aliases: tuple[str, ...] = (),
    ports: tuple[Port, ...] = (), gpus: tuple[Gpu, ...] = (),
) -> Hardware:  # fmt: skip
    return Hardware(at=started_at, node=node, source="host", started_at=started_at, seq=0,
                    serial=serial, aliases=list(aliases), ports=list(ports),
                    gpus=list(gpus))  # fmt: skip


def inventory(*records: Hardware) -> Inventory:
    one = Inventory()
    for record in records:
        one.equip(record)
    return one


def alarm(entity: str, onset_s: float, kind: Kind = "nic_fault", node: str = "n03") -> Sighting:
    seen = fault(node, "nic_fault", onset_s, "nic_event", certain=False, cause="network")
    return replace(seen, entity=entity, kind=kind)


def view(**devices: str) -> FakeView:
    """n03's ports: name -> GUID."""
    one = cluster()
    one.devices = {("n03", f"nic:{name}/1"): f"guid:{guid}" for name, guid in devices.items()}
    return one


# What hardware records say


def test_a_port_is_known_by_its_guid_else_by_its_address_and_number() -> None:
    one = inventory(
        hardware(ports=(Port("mlx5_3/1", guid="b8:59"), Port("mlx5_4/2", pci="0000:c3:00"),
                        Port("mlx5_5/1")))
    )  # fmt: skip
    assert ["guid:b8:59", "port:0000:c3:00/2", "", ""] == [
        one.device("n1", f"nic:{name}") for name in ("mlx5_3/1", "mlx5_4/2", "mlx5_5/1", "mlx5_6/1")
    ]
    assert one.holds("n1", "guid:b8:59")
    assert not one.holds("n2", "guid:b8:59")


def test_an_address_and_a_uuid_are_one_gpu() -> None:
    one = inventory(hardware(gpus=(Gpu(0, "GPU-a", "0000:c3:00"), Gpu(1, "GPU-b"))))
    assert "gpu:GPU-a" == one.device("n1", "pci:0000:c3:00") == one.device("n1", "gpu:GPU-a")
    assert "gpu:GPU-b" == one.device("n1", "gpu:GPU-b")


def test_two_ports_with_one_guid_have_none() -> None:
    one = inventory(hardware(ports=(Port("a/1", guid="0"), Port("b/1", guid="0"))))
    assert ["", ""] == [one.device("n1", "nic:a/1"), one.device("n1", "nic:b/1")]


def test_an_alias_is_its_node_unless_two_claim_it_or_it_is_a_node() -> None:
    one = inventory(hardware(aliases=("n1.example.org", "gpu-a", "n2")),
                    hardware("n2", aliases=("gpu-a",)))  # fmt: skip
    assert ["n1", "gpu-a", "n2", "x"] == [
        one.named(name) for name in ("n1.example.org", "gpu-a", "n2", "x")
    ]
    one.equip(hardware(aliases=()))
    assert ["n1.example.org", "n2"] == [one.named("n1.example.org"), one.named("gpu-a")]


@pytest.mark.parametrize("serial", ["", "0", "To be filled by O.E.M.", "Not Specified", "00000000"])
def test_a_placeholder_is_no_serial_number(serial: str) -> None:
    assert "" == inventory(hardware(serial=serial)).device("n1", "")


def test_a_renamed_machine_keeps_its_serial_and_two_at_once_have_none() -> None:
    renamed = inventory(hardware("n1", "SN4711"), hardware("n9", "SN4711", 500.0))
    renamed.hear("n1", 400.0)
    assert "serial:SN4711" == renamed.device("n9", "") == renamed.device("n1", "")
    renamed.hear("n1", 600.0)
    assert "" == renamed.device("n9", "") == renamed.device("n1", "")


def test_a_restart_keeps_who_is_who() -> None:
    one = inventory(hardware(serial="SN4711", aliases=("a",), ports=(Port("p/1", guid="g"),)))
    other = Inventory()
    other.restore(one.snapshot())
    for said in (one, other):
        assert ("n1", "guid:g", "serial:SN4711") == (
            said.named("a"), said.device("n1", "nic:p/1"), said.device("n1", ""),
        )  # fmt: skip


# What correlation makes of it (C6)


def test_a_port_that_a_boot_renamed_is_one_incident_and_its_old_alarm_ends() -> None:
    desk = Desk(view(mlx5_3="g"), RULES)
    desk.see(110.0, alarm(OLD, 100.0))
    desk.view.devices = {("n03", NEW): "guid:g"}  # the boot
    desk.wait(400.0)
    desk.see(450.0, alarm(NEW, 440.0, "nic_flap"))

    said = desk.only()
    assert ["n03"] == suspects(said)
    assert NEW == said.suspects[0].entity
    desk.see(500.0, replace(alarm(NEW, 440.0, "nic_flap"), active=False))
    desk.wait(561.0)
    assert desk.only().closed_at is not None


def test_its_twin_another_port_of_the_node_long_after_is_another_incident() -> None:
    desk = Desk(view(mlx5_3="g", mlx5_7="h"), RULES)
    desk.see(110.0, alarm(OLD, 100.0))
    desk.see(450.0, alarm(NEW, 440.0, "nic_flap"))

    assert 2 == len(desk.newest)


def test_an_alarm_ends_where_its_part_was_replaced_and_not_where_it_is_gone() -> None:
    replaced, gone = Desk(view(mlx5_3="g"), RULES), Desk(view(mlx5_3="g"), RULES)
    for desk, now in ((replaced, view(mlx5_3="h")), (gone, view(mlx5_4="x"))):
        desk.see(110.0, alarm(OLD, 100.0))
        desk.view.devices = now.devices
        desk.wait(200.0)
        desk.wait(300.0)

    assert replaced.only().closed_at is not None
    assert gone.only().closed_at is None


def test_a_closed_incident_of_the_same_part_is_opened_again() -> None:
    desk = Desk(view(mlx5_3="g"), RULES)
    desk.see(110.0, alarm(OLD, 100.0))
    desk.see(120.0, replace(alarm(OLD, 100.0), active=False))
    desk.wait(200.0)
    assert desk.only().closed_at is not None
    desk.view.devices = {("n03", NEW): "guid:g"}
    desk.see(500.0, alarm(NEW, 490.0, "nic_flap"))

    assert desk.only().closed_at is None


def test_a_machine_that_was_renamed_is_one_incident_under_its_new_name() -> None:
    desk = Desk(rules=RULES)
    desk.view.devices = {("n03", ""): "serial:SN1", ("n99", ""): "serial:SN1"}
    desk.see(110.0, fault("n03"))
    desk.see(200.0, fault("n99", onset_s=190.0, metric="xid_48", kind="gpu_memory"))

    assert ["n99"] == suspects(desk.only())
    desk.see(210.0, replace(fault("n03"), active=False))
    assert ["n99"] == suspects(desk.only())


def test_a_node_under_its_alias_is_that_node() -> None:
    desk = Desk(rules=RULES)
    desk.view.aliases = {"n03.example.org": "n03"}
    desk.see(110.0, fault("n03"), fault("n03.example.org", metric="xid_45"))

    assert ["n03"] == suspects(desk.only())
    assert "node:n03" == desk.only().scope


def test_a_known_node_is_never_an_alias_of_another() -> None:
    one = inventory(hardware("n1", aliases=("n2",)))
    one.allocate(Allocation(at=0.0, node="", source="s", started_at=0.0, seq=0,
                            nodes=[NodeInfo("n2")]))  # fmt: skip
    assert "n2" == one.named("n2")


def test_through_the_fold_a_boot_that_renames_a_flapping_port_makes_one_incident() -> None:
    """mlx5_3 falls twice, the node boots, the same port is mlx5_7 and falls again; then quiet."""
    start_s = 1_700_000_000.0
    quiet = EngineSettings(silence=SilenceSettings(enabled=False))  # nobody sends frames here
    head: dict[str, Any] = {"at": start_s, "node": "", "started_at": start_s, "seq": 0}
    log: list[tuple[float, object]] = [
        (start_s, Settings(**head, source="engine", digest=settings_digest(quiet),
                           engine_version="test", settings=quiet)),
        (start_s, Allocation(**head, source="scheduler", nodes=[NodeInfo("n1"), NodeInfo("n2")])),
    ]  # fmt: skip
    lines = [(100.0, "mlx5_3/1", "boot1"), (180.0, "mlx5_3/1", "boot1"),
             (660.0, "", "boot2"),  # the first line of the boot
             (1_500.0, "mlx5_7/1", "boot2"), (1_600.0, "mlx5_7/1", "boot2")]  # fmt: skip
    for after_s, port in ((50.0, "mlx5_3/1"), (700.0, "mlx5_7/1")):
        at = start_s + after_s
        record = hardware("n1", "SN4711", start_s + after_s, ports=(Port(port, guid="b8:59"),))
        log.append((at, replace_struct(record, at=at)))
    for seq, (after_s, port, boot) in enumerate(lines):
        at = start_s + after_s
        down = event("nic", at, "n1", "link down", "warning", entity=f"nic:{port}",
                     class_="link_down")  # fmt: skip
        line = down if port else event("os", at, "n1", "Linux version", "info")
        log.append((at, replace_struct(line, boot_id=boot, seq=seq, kmsg_seq=seq)))
    log += [
        (start_s + 5.0 * beat, Beat(at=start_s + 5.0 * beat, node="", source="beat",
                                    started_at=start_s, seq=beat))
        for beat in range(1, 1_400)
    ]  # fmt: skip
    _, outcome = folded(numbered(sorted(log, key=lambda row: row[0])))
    (incident,) = outcome.sorted_incidents()
    assert ["n1"] == [suspect.node for suspect in incident.suspects]
    assert {"nic:mlx5_3/1", "nic:mlx5_7/1"} == {line.entity for line in incident.evidence}
    assert incident.closed_at is not None
