"""Hardware and NIC counters of a node: sysfs trees, tools that fail or hang, facts that change."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from collectors.agent.cells import Cells
from collectors.agent.hardware import SMI_EVERY_S, HardwarePaths, HardwareSource
from collectors.agent.nic_source import LOOK_AGAIN_S, NicPaths, NicRead, NicSource
from nodewarden.clock import SystemClock
from telemetry.errors import SourceUnavailable
from telemetry.records import Frame, Gpu, Hardware, Port
from telemetry.testing import ManualClock
from telemetry.tools import Tools
from tests.agent_fakes import tree

CARD = "class/infiniband/mlx5_0"
SYS = {
    "class/dmi/id/product_serial": "ABC1234\n",
    "module/nvidia/version": "570.86.15\n",
    f"{CARD}/fw_ver": "28.41.1000\n",
    f"{CARD}/board_id": "MT_0000000838\n",
    f"{CARD}/node_guid": "0c42:a103:0073:1e2c\n",
    f"{CARD}/ports/1/state": "4: ACTIVE\n",
    f"{CARD}/ports/1/phys_state": "5: LinkUp\n",
    f"{CARD}/ports/1/rate": "400 Gb/sec (4X NDR)\n",
    f"{CARD}/ports/1/counters/link_downed": "2\n",
    f"{CARD}/ports/1/counters/port_rcv_data": "1000\n",
    f"{CARD}/ports/1/counters/nobody_knows_this": "7\n",
    f"{CARD}/ports/1/hw_counters/out_of_sequence": "5\n",
    f"{CARD}/ports/1/hw_counters/lifespan": "10\n",
    f"{CARD}/device/net/eth0/mtu": "9000\n",
    "class/net/eth0/device/vendor": "0x15b3\n",
    "class/net/lo/statistics/rx_bytes": "1\n",
}
PROC = {"loadavg": "1.50 2.00 3.00 1/100 42\n",
        "meminfo": "MemTotal: 4 kB\nMemFree: 1 kB\nMemAvailable:   2048 kB\n"}  # fmt: skip
GPUS = [Gpu(0, "GPU-a", "0000:01:00"), Gpu(1, "GPU-b", "0000:02:00")]
UP_S = 10_000.0


def up() -> ManualClock:
    clock = ManualClock()
    clock.advance(UP_S)
    return clock


def tool(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n", "ascii")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def hardware(sys: Path, clock: ManualClock, smi: str = "", *, wanted: tuple[str, ...] = (),
             unwanted: tuple[str, ...] = ()) -> HardwareSource:  # fmt: skip
    paths = HardwarePaths(sys, sys / "proc", smi)
    return HardwareSource(paths, "n1", "boot", wanted, unwanted, Tools(SystemClock()), clock, 600.0)


# -- hardware


def test_hardware_says_what_the_node_is_made_of(tmp_path: Path) -> None:
    said = hardware(tree(tmp_path, SYS), up(), wanted=("mlx5_0",)).read(GPUS)
    assert said is not None
    assert ("ABC1234", "570.86.15", "MT_0000000838 28.41.1000", GPUS, "boot") == (
        said.serial, said.driver, said.firmware, said.gpus, said.boot_id,
    )  # fmt: skip
    assert [Port("mlx5_0/1", True, guid="0c42:a103:0073:1e2c")] == said.ports
    assert "n1" not in said.aliases


def test_l4_a_driver_that_changes_under_the_running_agent_is_said_again(tmp_path: Path) -> None:
    source, said = hardware(tree(tmp_path, SYS), up()), []
    for version in ("570.86.15", "570.86.15", "580.10.01"):
        tree(tmp_path, {"module/nvidia/version": version})
        said.append(source.read(GPUS))
    assert ["570.86.15", None, "580.10.01"] == [one.driver if one else None for one in said]


def test_hardware_is_said_again_after_ten_minutes_and_when_a_gpu_is_replaced(
    tmp_path: Path,
) -> None:
    clock = up()
    source = hardware(tree(tmp_path, SYS), clock)
    assert source.read(GPUS) is not None
    clock.advance(599.0)
    assert source.read(GPUS) is None
    clock.advance(1.0)
    assert source.read(GPUS) is not None
    said = source.read([GPUS[0], Gpu(1, "GPU-c", "0000:02:00")])
    assert said is not None
    assert ["GPU-a", "GPU-c"] == [gpu.uuid for gpu in said.gpus]


def test_an_exporter_that_is_away_takes_no_gpu_with_it(tmp_path: Path) -> None:
    source = hardware(tree(tmp_path, SYS), up())
    source.read(GPUS)
    assert source.read([]) is None


def test_of_a_port_that_nobody_speaks_of_nothing_is_expected(tmp_path: Path) -> None:
    tree(tmp_path, {**SYS, f"{CARD}/ports/2/state": "1: DOWN\n"})
    said = hardware(tmp_path, up(), unwanted=("mlx5_0/2",)).read(GPUS)
    assert said is not None
    assert [None, False] == [port.should_be_up for port in said.ports]


@pytest.mark.parametrize("serial", ["To be filled by O.E.M.", "", "\x01\x02", "None", "x" * 300])
def test_a_serial_that_is_none_is_empty(tmp_path: Path, serial: str) -> None:
    said = hardware(tree(tmp_path, {"class/dmi/id/product_serial": serial}), up()).read([])
    assert said is not None
    assert "" == said.serial


def test_a_machine_that_shows_nothing_still_has_a_name(tmp_path: Path) -> None:
    said = hardware(tmp_path / "none", up()).read([])
    assert isinstance(said, Hardware)
    assert ("n1", "", [], []) == (said.node, said.driver, said.gpus, said.ports)


def test_a18_nvidia_smi_is_asked_seldom_and_not_while_the_machine_boots(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    smi = tool(
        tmp_path / "smi",
        f"""echo x >> {asked}
echo 'index, uuid, pci.bus_id'
echo '0, GPU-a, 00000000:01:00.0'
echo '1, [Unknown Error], 00000000:02:00.0'""",
    )
    clock = ManualClock()
    source = hardware(tree(tmp_path, SYS), clock, smi)
    first = source.read([])
    assert first is not None
    assert (first.gpus, asked.exists()) == ([], False)
    clock.advance(UP_S)
    said = source.read([])
    assert said is not None
    assert [GPUS[0]] == said.gpus
    for _ in range(10):
        source.read([])
    clock.advance(SMI_EVERY_S)
    source.read(GPUS)  # an exporter names them: nobody else is asked
    assert "x\n" == asked.read_text()


# -- NICs


def read(source: NicSource) -> tuple[Frame, NicRead]:
    cells = Cells()
    done = source.read(cells)
    frame = cells.frame("nic", "n1", "boot", 1.7e9)
    assert frame is not None
    return frame, done


def nics(root: Path, clock: ManualClock | None = None, ethtool: str = "", rdma: str = ""
         ) -> NicSource:  # fmt: skip
    tree(root / "proc", PROC)
    paths = NicPaths(root / "sys", root / "proc", ethtool, rdma)
    return NicSource(paths, Tools(SystemClock()), clock or up())


def test_counters_of_sysfs_are_one_frame(tmp_path: Path) -> None:
    tree(tmp_path / "sys", SYS)
    frame, done = read(nics(tmp_path))
    assert {"nic": ["mlx5_0/1"], "node": ["node"]} == frame.entities
    said = {name: values[0] for name, values in frame.metrics.items()}
    assert (2.0, 4_000.0, 5.0) == (
        said["nic_link_downed_total"], said["nic_receive_bytes_total"],
        said["nic_out_of_sequence_packets_total"],
    )  # fmt: skip
    assert (1.5, 2_097_152.0) == (said["host_load1"], said["host_memory_available_bytes"])
    assert ([], 0) == (done.failures, done.broken)


def test_ethtool_counters_join_them_and_a_counter_that_is_not_printed_is_absent(
    tmp_path: Path,
) -> None:
    tree(tmp_path / "sys", SYS)
    ethtool = tool(
        tmp_path / "ethtool",
        """test "$1 $2" = "-S eth0" || exit 1
echo 'NIC statistics:'
echo '     rx_ecn_mark: 7'
echo '     rx_prio3_pause: 9'""",
    )
    frame, _ = read(nics(tmp_path, ethtool=ethtool))
    assert ["eth0", "eth0/prio3", "mlx5_0/1"] == sorted(frame.entities["nic"])
    at = frame.entities["nic"].index("eth0")
    assert 7.0 == frame.metrics["nic_ecn_marked_packets_total"][at]
    assert "nic_cnp_sent_packets_total" not in frame.metrics
    assert frame.metrics["nic_link_downed_total"][at] is None


def test_rdma_statistic_where_sysfs_has_none(tmp_path: Path) -> None:
    rdma = tool(
        tmp_path / "rdma",
        """test "$1" = -j || exit 1
echo '[{"ifindex":0,"ifname":"mlx5_0","port":1,"np_cnp_sent":3}]'""",
    )
    frame, _ = read(nics(tmp_path, rdma=rdma))
    assert [3.0] == frame.metrics["nic_cnp_sent_packets_total"]


@pytest.mark.parametrize(
    ("script", "why"),
    [("exit 71", "ends with status 71"), ("sleep 30", "not done in time"),
     ("exec cat /dev/zero", "prints more than")],
)  # fmt: skip
def test_a_tool_that_misbehaves_costs_only_its_own_counters(
    tmp_path: Path, script: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collectors.agent.nic_source.TOOL_TIMEOUT_S", 1.0)
    tree(tmp_path / "sys", SYS)
    clock = up()
    source = nics(tmp_path, clock, ethtool=tool(tmp_path / "ethtool", script))
    frame, done = read(source)
    assert [2.0] == frame.metrics["nic_link_downed_total"]
    assert why in done.failures[0]
    assert [] == read(source)[1].failures  # it is left alone for a while


def test_a_tool_that_is_not_there_is_said(tmp_path: Path) -> None:
    tree(tmp_path / "sys", SYS)
    _, done = read(nics(tmp_path, ethtool="/nowhere/ethtool"))
    assert ["/nowhere/ethtool: No such file or directory"] == done.failures


def test_what_a_tool_prints_is_believed_line_by_line(tmp_path: Path) -> None:
    tree(tmp_path / "sys", SYS)
    ethtool = tool(
        tmp_path / "ethtool",
        "printf '\\377\\376 x: y\\n\\0: 1\\n rx_ecn_mark: -3\\n rx_ecn_mark: 7\\n'",
    )
    frame, _ = read(nics(tmp_path, ethtool=ethtool))
    assert 7.0 in frame.metrics["nic_ecn_marked_packets_total"]


def test_a_port_that_comes_is_seen_within_a_minute_and_one_that_goes_at_once(
    tmp_path: Path,
) -> None:
    tree(tmp_path / "sys", SYS)
    clock = up()
    source = nics(tmp_path, clock)
    read(source)
    tree(tmp_path / "sys", {"class/infiniband/mlx5_1/ports/1/counters/link_downed": "1\n"})
    assert ["mlx5_0/1"] == read(source)[0].entities["nic"]
    clock.advance(LOOK_AGAIN_S)
    assert ["mlx5_0/1", "mlx5_1/1"] == read(source)[0].entities["nic"]
    os.rename(tmp_path / "sys/class/infiniband/mlx5_1", tmp_path / "gone")
    assert ["mlx5_0/1"] == read(source)[0].entities["nic"]


@pytest.mark.parametrize("content", ["", "junk\n", "-1\n", "1" * 300, "\x00\x01\n", "0x10\n"])
def test_a_counter_that_holds_no_number_is_absent(tmp_path: Path, content: str) -> None:
    tree(tmp_path / "sys", {**SYS, f"{CARD}/ports/1/counters/link_downed": content})
    frame, _ = read(nics(tmp_path))
    assert "nic_link_downed_total" not in frame.metrics
    assert [5.0] == frame.metrics["nic_out_of_sequence_packets_total"]


# -- tools


def test_a18_a_tool_that_cannot_be_ended_is_not_started_beside_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that hangs leaves its tools in a sleep that no signal ends."""
    monkeypatch.setattr("subprocess.Popen.kill", lambda self: None)
    slow = tool(tmp_path / "slow", "exec sleep 1")
    tools = Tools(SystemClock())
    with pytest.raises(SourceUnavailable, match="not done in time"):
        tools.run((slow,), 0.1)
    with pytest.raises(SourceUnavailable, match="still hangs"):
        tools.run((slow,), 0.1)
    time.sleep(1.0)
    with pytest.raises(SourceUnavailable, match="not done in time"):
        tools.run((slow,), 0.1)
    time.sleep(1.2)
    assert b"" == tools.run((slow,), 10.0)


def test_a_tool_gets_no_shell_and_no_environment_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODEWARDEN_SECRET", "x")
    printed = Tools(SystemClock()).run(("/usr/bin/env",), 5.0)
    assert b"NODEWARDEN_SECRET" not in printed
    assert b"$(id) ; x\n" == Tools(SystemClock()).run(("/bin/echo", "$(id) ; x"), 5.0)
