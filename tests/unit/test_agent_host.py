"""The machine's own figures out of a /proc in a directory, whole, partial and broken."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from collectors.agent.cells import Cells
from collectors.agent.host_source import HOST, MOUNTS_MAX, HostSource
from telemetry.metrics import BY_NAME, recognise
from telemetry.records import Frame
from tests.agent_fakes import tree

STAT = "cpu  {busy} 0 0 {idle} {wait} 0 0 0 0 0\ncpu0 1 2 3 4 5 6 7 0 0 0\n"
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={some}\nfull avg10=0.00 total={full}\n"
SNMP = "Ip: Forwarding\nIp: 1\nTcp: RtoMin OutSegs RetransSegs InErrs\nTcp: -1 200 17 -1\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    root = tree(tmp_path / "proc", {
        "stat": STAT.format(busy=100, idle=900, wait=0),
        "pressure/cpu": PRESSURE.format(some=2_500_000, full=0),
        "pressure/memory": PRESSURE.format(some=7, full=1_000_000),
        "pressure/io": PRESSURE.format(some=7, full=500_000),
        "vmstat": "nr_free_pages 7\npswpin 12\npswpout 13\n",
        "net/snmp": SNMP,
        "1/mounts": "/dev/md0 /data xfs rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n",
    })  # fmt: skip
    (tmp_path / "host" / "data").mkdir(parents=True)
    (tmp_path / "host" / "dev" / "shm").mkdir(parents=True)
    (root / "1" / "root").symlink_to(tmp_path / "host")
    return root


def look(proc: Path, source: HostSource | None = None) -> tuple[Frame | None, list[str]]:
    cells = Cells()
    done = (source or HostSource(proc.parent / "sys", proc)).read(cells)
    return cells.frame(HOST, "n1", "", 1.0), done.failures


def values(proc: Path, source: HostSource | None = None) -> Mapping[str, list[float | None]]:
    frame, _ = look(proc, source)
    return frame.metrics if frame is not None else {}


def test_pressure_swap_and_tcp_are_read_as_counters(proc: Path) -> None:
    said = values(proc)
    assert {
        "host_cpu_pressure_seconds_total": [2.5], "host_memory_pressure_seconds_total": [1.0],
        "host_io_pressure_seconds_total": [0.5], "host_swap_in_pages_total": [12.0],
        "host_tcp_retransmitted_segments_total": [17.0],
    } == {name: said[name] for name in said if name.endswith("_total")}  # fmt: skip


def test_cpu_is_busy_between_two_rounds_and_waiting_for_disks_is_not(proc: Path) -> None:
    source = HostSource(Path("/nowhere"), proc)
    assert "host_cpu_busy_percent" not in values(proc, source)
    tree(proc, {"stat": STAT.format(busy=130, idle=960, wait=10)})
    assert [30.0] == values(proc, source)["host_cpu_busy_percent"]
    tree(proc, {"stat": STAT.format(busy=1, idle=1, wait=0)})  # after a suspend, or another machine
    assert "host_cpu_busy_percent" not in values(proc, source)


def test_free_space_is_what_a_user_may_still_fill(proc: Path, tmp_path: Path) -> None:
    frame, failures = look(proc)
    assert frame is not None
    assert (["/data", "/dev/shm"], []) == (frame.entities["disk"], failures)
    seen = os.statvfs(tmp_path / "host" / "data")
    free = seen.f_bavail / (seen.f_blocks - seen.f_bfree + seen.f_bavail)
    assert frame.metrics["disk_filesystem_free_ratio"][0] == pytest.approx(free, abs=0.01)


def test_only_real_file_systems_are_asked_each_once(proc: Path) -> None:
    tree(proc, {"1/mounts": (
        "/dev/md0 /data ext4 rw 0 0\n/dev/md0 /bind ext4 rw 0 0\nnfs:/home /home nfs4 rw 0 0\n"
        "lustre@tcp:/l /lustre lustre rw 0 0\ntmpfs /run tmpfs rw 0 0\noverlay / overlay rw 0 0\n"
        "/dev/sdb1 /with\\040space xfs rw 0 0\n/dev/sdc1 /a\\012b xfs rw 0 0\nbroken\n\n"
    )})  # fmt: skip
    assert ["/data", "/with space"] == [one.path for one in HostSource(Path("/"), proc).mounts()]


def test_a_place_that_does_not_answer_is_said_and_costs_only_itself(proc: Path) -> None:
    tree(proc, {"1/mounts": "/dev/sda1 /gone ext4 rw 0 0\n/dev/md0 /data xfs rw 0 0\n"})
    frame, failures = look(proc)
    assert frame is not None
    assert (["/data"], 1) == (frame.entities["disk"], len(failures))
    assert failures[0].startswith("/gone: ")


def test_errors_that_ext4_counted_are_told_by_mount(proc: Path) -> None:
    tree(proc, {"1/mounts": "/dev/md0 /data ext4 rw 0 0\n"})
    tree(proc.parent / "sys", {"fs/ext4/md0/errors_count": "3\n"})
    assert [3.0] == values(proc)["disk_filesystem_errors_total"]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x00" * 500, b"cpu\n", b"cpu x y z 1 2\n", b"\xff" * 20_000, b"Tcp: a\nTcp: \n",
        b"full total=\n", b"some avg10=0 total=-5\n", b"pswpin 99999999999999999999999\n",
        b"cpu  " + b"9" * 5_000,
    ],
)  # fmt: skip
def test_junk_is_missing_and_never_zero(proc: Path, content: bytes) -> None:
    for name in ("stat", "pressure/cpu", "pressure/memory", "pressure/io", "vmstat", "net/snmp",
                 "1/mounts"):  # fmt: skip
        (proc / name).write_bytes(content)
    source = HostSource(proc.parent / "sys", proc)
    assert [{}, {}] == [values(proc, source), values(proc, source)]


def test_a_machine_that_shows_nothing_sends_no_frame(tmp_path: Path) -> None:
    assert (None, []) == look(tmp_path / "proc")


def test_very_many_mounts_are_bounded(proc: Path) -> None:
    lines = "".join(f"/dev/d{n} /data/{n} xfs rw 0 0\n" for n in range(1_000))
    tree(proc, {"1/mounts": lines})
    assert MOUNTS_MAX == len(HostSource(Path("/"), proc).mounts())


def test_this_machine_can_be_read(tmp_path: Path) -> None:
    cells = Cells()
    HostSource(Path("/sys"), Path("/proc")).read(cells)
    frame = cells.frame(HOST, "n1", "", 1.0)
    assert frame is not None
    for name, column in frame.metrics.items():
        row = BY_NAME[name]
        assert all(v is None or row.valid_min <= v <= row.valid_max for v in column)


def test_node_exporter_s_names_are_the_same_metrics() -> None:
    for name in ("node_pressure_memory_stalled_seconds_total", "node_vmstat_pswpin",
                 "node_netstat_Tcp_RetransSegs"):  # fmt: skip
        row = recognise(name)
        assert row is not None
        assert HOST == row.source
