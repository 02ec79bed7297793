"""Writes tests/data/capture-xid79: run it by hand when the capture has to change."""

from __future__ import annotations

import json
import random
from pathlib import Path

START_S = 1_772_020_800  # 2026-02-25T12:00:00Z
MINUTES = 10
INTERVAL_S = 15
NODES = [f"n{index}" for index in range(1, 9)]
GPUS = 2
LOST_NODE, LOST_GPU, LOST_AFTER_S = "n3", 1, 345  # the device is gone from the next scrape on
BASE = {
    "DCGM_FI_DEV_GPU_TEMP": 61.0,
    "DCGM_FI_DEV_POWER_USAGE": 655.0,
    "DCGM_FI_DEV_SM_CLOCK": 1965.0,
}
SPREAD = {
    "DCGM_FI_DEV_GPU_TEMP": 1.0,
    "DCGM_FI_DEV_POWER_USAGE": 9.0,
    "DCGM_FI_DEV_SM_CLOCK": 15.0,
}


def metric_lines(rng: random.Random) -> list[str]:
    """One line a sample, ordered by series as `promtool tsdb dump-openmetrics` writes them."""
    lines = []
    for name, base in BASE.items():
        for position, node in enumerate(NODES):
            phase = 0.125 * position
            for gpu in range(GPUS):
                labels = (
                    f'DCGM_FI_DRIVER_VERSION="570.158.01",Hostname="{node}",'
                    f'UUID="GPU-{position:04d}-{gpu}",device="nvidia{gpu}",gpu="{gpu}",'
                    f'instance="{node}.example.org:9400",job="dcgm"'
                )
                for offset in range(0, MINUTES * 60 + 1, INTERVAL_S):
                    if (node, gpu) == (LOST_NODE, LOST_GPU) and offset > LOST_AFTER_S:
                        break
                    value = round(base + rng.gauss(0.0, SPREAD[name]), 1)
                    lines.append(f"{name}{{{labels}}} {value} {START_S + offset + phase}")
    return [*lines, "# EOF"]


def kernel_lines() -> list[str]:
    """A GPU that falls off the bus among ordinary lines, as `dmesg --time-format iso` prints."""
    return [
        "2026-02-25T11:58:02,000113+00:00 NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64"
        "  570.158.01  Release Build",
        "2026-02-25T12:05:50,123456+00:00 pcieport 0000:c0:01.1: pciehp: Slot(4): Link Down",
        "2026-02-25T12:05:50,204417+00:00 NVRM: Xid (PCI:0000:c3:00): 79, pid='<unknown>',"
        " name=<unknown>, GPU has fallen off the bus.",
        "2026-02-25T12:05:50,204900+00:00 NVRM: Xid (PCI:0000:c3:00): 45, pid=4711, name=python3,"
        " Ch 00000008",
    ]


def main() -> None:
    """Write the three kinds of files."""
    root = Path(__file__).parent / "capture-xid79"
    (root / "metrics").mkdir(parents=True, exist_ok=True)
    (root / "kernel").mkdir(exist_ok=True)
    lines = metric_lines(random.Random(79))
    (root / "metrics" / "gpu.om").write_text("\n".join(lines) + "\n", "utf-8")
    (root / "kernel" / "n3.log").write_text("\n".join(kernel_lines()) + "\n", "utf-8")
    jobs = {
        "jobs": [
            {"id": "4711", "name": "pretrain", "nodes": NODES, "start": START_S - 3600,
             "gpus_per_node": GPUS, "parallel": {"tp": 2, "pp": 1, "dp": 8},
             "ranks": {node: [2 * at, 2 * at + 1] for at, node in enumerate(NODES)}},
        ],
        "topology": {
            node: {"rack": f"r{at // 4}", "leaf": f"leaf{at // 4}", "pod": "p0"}
            for at, node in enumerate(NODES)
        },
    }  # fmt: skip
    (root / "jobs.json").write_text(json.dumps(jobs, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
