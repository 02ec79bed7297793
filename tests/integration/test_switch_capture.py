"""A capture with the syslog of switches, replayed: a mapped port names its node, others nobody."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nodewarden.cli import run

START_S = 1_750_000_000
NODES = tuple(f"n{number}" for number in range(1, 9))
FLAPS_S = (600, 660, 720)


def capture(path: Path, lines: dict[str, list[tuple[int, str]]], ports: dict[str, Any]) -> None:
    """Eight nodes with metrics of 30 min, and what switches said, in seconds from its start."""
    (path / "metrics").mkdir(parents=True)
    (path / "switch").mkdir()
    rows = ["# TYPE DCGM_FI_DEV_GPU_TEMP gauge"]
    for node in NODES:
        rows += [
            f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="GPU-{node}",Hostname="{node}"}} 50 {START_S + at}'
            for at in range(0, 1_800, 15)
        ]
    (path / "metrics" / "gpu.om").write_text("\n".join([*rows, "# EOF", ""]))
    for switch, said in lines.items():
        text = "".join(f"{stamp(at)} {switch} {words}\n" for at, words in said)
        (path / "switch" / f"{switch}.log").write_text(text)
    job = {"id": "1", "nodes": list(NODES), "start": START_S - 3_600}
    topology = {node: {"leaf": "leaf1", **ports.get(node, {})} for node in NODES}
    (path / "jobs.json").write_text(json.dumps({"jobs": [job], "topology": topology}))


def stamp(at: int) -> str:
    """As Cisco writes it."""
    return datetime.fromtimestamp(START_S + at, UTC).strftime("%Y %b %d %H:%M:%S")


def flaps(port: str) -> list[tuple[int, str]]:
    down = f"%ETHPORT-5-IF_DOWN_LINK_FAILURE: Interface {port} is down (Link failure)"
    up = f"%ETHPORT-5-IF_UP: Interface {port} is up in Layer3"
    return [line for at in FLAPS_S for line in ((at, down), (at + 4, up))]


def replayed(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["replay", str(path), "--json"], {}) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_mapped_port_that_flaps_names_its_node_and_its_nic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ports = {"n3": {"ports": {"leaf1:Eth1/4": "mlx5_2"}}, "n4": {"ports": {"leaf1:Eth1/5": "eth0"}}}
    capture(tmp_path / "c", {"leaf1": flaps("Ethernet1/4")}, ports)
    (incident,) = replayed(tmp_path / "c", capsys)["incidents"]

    assert ("nic_flap", "network") == (incident["kind"], incident["cause"])
    assert [("n3", "nic:mlx5_2/1")] == [(s["node"], s["entity"]) for s in incident["suspects"]]
    assert ["n3"] == incident["verdict"]["targets"]
    assert incident["verdict"]["at"] == START_S + FLAPS_S[1]  # at the second one


def test_an_interface_that_the_topology_puts_behind_a_switch_is_of_the_fabric(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture(tmp_path / "c", {"l": flaps("Ethernet1/5")}, {"n4": {"ports": {"l:Eth1/5": "ens1f0"}}})
    (incident,) = replayed(tmp_path / "c", capsys)["incidents"]

    assert [("n4", "nic:ens1f0")] == [(s["node"], s["entity"]) for s in incident["suspects"]]


def test_a_port_that_nobody_maps_isolates_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture(tmp_path / "c", {"leaf1": flaps("Ethernet1/4")}, {})
    assert [] == replayed(tmp_path / "c", capsys)["incidents"]

    run(["replay", str(tmp_path / "c")], {})
    assert "switch leaf1: 1 ports that it speaks of lead to no node" in capsys.readouterr().out


def test_a_switch_that_boots_drops_all_its_ports_and_isolates_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugs = {node: f"Ethernet1/{at}" for at, node in enumerate(NODES, 1)}
    lines = sorted(line for port in plugs.values() for line in flaps(port))
    ports = {node: {"ports": {f"leaf1:{port}": "mlx5_0"}} for node, port in plugs.items()}
    capture(tmp_path / "c", {"leaf1": lines}, ports)
    found = replayed(tmp_path / "c", capsys)["incidents"]

    assert {("fabric", "page"), ("nic_flap", "none")} == {
        (one["kind"], one["verdict"]["action"]) for one in found
    }
    assert [] == [verdict for one in found for verdict in one["verdicts"] if verdict["targets"]]


def test_links_of_a_whole_leaf_that_keep_falling_accuse_the_leaf(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three drops prove that a link is ill, not which end of it is."""
    capture(tmp_path / "c", {}, {})
    (tmp_path / "c" / "kernel").mkdir()
    times = [datetime.fromtimestamp(START_S + at, UTC).isoformat() for at in FLAPS_S]
    for node in NODES:
        says = f"{node} kernel: mlx5_core 0000:ab:00.0 mlx5_2: Port: 1 Link DOWN"
        text = "".join(f"{time} {says}\n" for time in times)
        (tmp_path / "c" / "kernel" / f"{node}.log").write_text(text)
    (incident,) = [o for o in replayed(tmp_path / "c", capsys)["incidents"] if o["suspects"]]

    assert ("fabric", "page") == (incident["kind"], incident["verdict"]["action"])
    assert [] == [verdict for verdict in incident["verdicts"] if verdict["targets"]]


def test_a_drop_in_the_node_s_kernel_log_too_is_one_network_event(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ports = {"n3": {"ports": {"leaf1:Eth1/4": "mlx5_2"}}}
    capture(tmp_path / "c", {"leaf1": flaps("Ethernet1/4")[:2]}, ports)
    at = datetime.fromtimestamp(START_S + FLAPS_S[0] + 0.4, UTC).isoformat()
    (tmp_path / "c" / "kernel").mkdir()
    line = "kernel: mlx5_core 0000:ab:00.0 mlx5_2: Port: 1 Link DOWN"
    (tmp_path / "c" / "kernel" / "n3.log").write_text(f"{at} n3 {line}\n")
    (incident,) = replayed(tmp_path / "c", capsys)["incidents"]

    assert ("none", 1) == (incident["verdict"]["action"], len(incident["evidence"]))
    assert "1 of 2" in incident["verdict"]["reason"]


def test_a_switch_without_a_power_supply_is_paged_and_isolates_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = "%PLATFORM-2-PS_FAIL: Power supply 2 failed or shutdown (Serial number ABC12345)"
    capture(tmp_path / "c", {"leaf1": [(600, failed)]}, {})
    (incident,) = replayed(tmp_path / "c", capsys)["incidents"]

    assert ("fabric", "page", []) == (
        incident["kind"], incident["verdict"]["action"], incident["verdict"]["targets"],
    )  # fmt: skip
    assert "Power supply 2 failed" in incident["verdict"]["reason"]


def test_a_key_of_jobs_json_that_nobody_reads_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture(tmp_path / "c", {}, {"n1": {"room": "b2"}})
    run(["replay", str(tmp_path / "c")], {})

    said = " ".join(capsys.readouterr().out.split())
    assert "jobs.json has keys that nobody reads: topology.<node>.room" in said
