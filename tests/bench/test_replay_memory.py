"""The memory of a replay does not grow with the hours in the capture."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evaluation.faults import parse_fault
from evaluation.simulator import Simulation
from evaluation.writers import write_capture

NODES = 128
INTERVAL_S = 60.0
BYTES_MAX = 2e9
# Of each of the 8 GPUs and the 8 ports: 96 series a node.
METRICS = (
    "gpu_temperature_celsius", "gpu_power_watts", "gpu_sm_clock_mhz", "gpu_utilization_percent",
    "gpu_sm_active_ratio", "gpu_tensor_active_ratio", "gpu_thermal_violation_us_total",
    "nic_ecn_marked_packets_total", "nic_cnp_sent_packets_total", "nic_link_downed_total",
    "nic_transmit_discarded_packets_total", "nic_out_of_sequence_packets_total",
)  # fmt: skip

pytestmark = pytest.mark.bench


@pytest.mark.parametrize("hours", [2, pytest.param(24, marks=pytest.mark.slow)])
def test_a_capture_replays_in_bounded_memory(hours: int, tmp_path: Path) -> None:
    fault = parse_fault(f"ecn@n003+{hours * 60 - 40}m")
    run = Simulation(
        NODES, minutes=60.0 * hours, seed=1, faults=[fault],
        gpu_interval_s=INTERVAL_S, nic_interval_s=INTERVAL_S, rank_steps=False,
    )  # fmt: skip
    began = time.process_time()
    capture = tmp_path / "capture"
    write_capture(run, capture, compress=True, metrics=METRICS)
    size = sum(file.stat().st_size for file in (capture / "metrics").iterdir())
    wrote_s = time.process_time() - began
    print(
        f"\n{hours} h x {NODES} nodes, {size / 1e6:,.0f} MB of .om.gz, written in {wrote_s:.0f} s"
    )
    said = tmp_path / "said.json"
    peak_bytes, cpu_s, wall_s = replayed(capture, said)
    samples = hours * 3_600 / INTERVAL_S * NODES * 8 * len(METRICS)
    print(
        f"replay: {peak_bytes / 1e6:,.0f} MB peak, {cpu_s:.0f} s of CPU, {wall_s:.0f} s,"
        f" {samples / cpu_s / 1e6:.2f} M samples per CPU second"
    )
    assert peak_bytes < BYTES_MAX
    incidents = json.loads(said.read_bytes())["incidents"]
    assert [s["node"] for i in incidents for s in i["suspects"]] == ["n003"]


def replayed(capture: Path, said: Path) -> tuple[int, float, float]:
    """(peak resident bytes, CPU seconds, seconds) of a replay in a process of its own."""
    began = time.monotonic()
    with said.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "nodewarden", "replay", "--json", str(capture)], stdout=out
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime, time.monotonic() - began
