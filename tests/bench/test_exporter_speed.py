"""How fast a scrape's text is read, beside prometheus_client's parser. Printed, never asserted."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from collectors.exposition import ScrapeParser
from collectors.nic import nic_objects

pytestmark = pytest.mark.bench

METRICS = [
    "SM_CLOCK", "MEM_CLOCK", "GPU_TEMP", "MEMORY_TEMP", "POWER_USAGE", "TOTAL_ENERGY_CONSUMPTION",
    "PCIE_REPLAY_COUNTER", "GPU_UTIL", "MEM_COPY_UTIL", "ENC_UTIL", "DEC_UTIL", "XID_ERRORS",
    "FB_FREE", "FB_USED", "ECC_SBE_VOL_TOTAL", "NVLINK_BANDWIDTH_TOTAL",
]  # fmt: skip


def scrape(nodes: int, gpus: int = 8) -> bytes:
    """What dcgm-exporter 3 prints on `nodes` nodes, one text."""
    rows: list[str] = []
    for name in METRICS:
        rows += [f"# HELP DCGM_FI_DEV_{name} text.", f"# TYPE DCGM_FI_DEV_{name} gauge"]
        rows += [
            f'DCGM_FI_DEV_{name}{{gpu="{gpu}",UUID="GPU-{node:08x}-{gpu}",device="nvidia{gpu}",'
            f'pci_bus_id="00000000:{gpu:02x}:00.0",modelName="NVIDIA H100 80GB HBM3",'
            f'Hostname="node-{node}",DCGM_FI_DRIVER_VERSION="535.129.03",container="",'
            f'namespace="",pod=""}} {(node * 8 + gpu) % 97}.{node % 10}'
            for node in range(nodes)
            for gpu in range(gpus)
        ]
    return ("\n".join(rows) + "\n").encode()


def cpu_s(work: Callable[[], int]) -> float:
    began = time.process_time()
    assert work() > 0
    return time.process_time() - began


def test_a_scrape_s_text() -> None:
    data = scrape(nodes=64)
    size_mb = len(data) / 1e6
    parser = ScrapeParser("bench")
    first = cpu_s(lambda: sum(1 for _ in parser.read([data])))
    again = min(cpu_s(lambda: sum(1 for _ in parser.read([data]))) for _ in range(3))
    client = cpu_s(
        lambda: sum(len(f.samples) for f in text_string_to_metric_families(data.decode()))
    )
    print(
        f"\nexporter text: first scrape {size_mb / first:.1f} MB/s of CPU, the next"
        f" {size_mb / again:.1f}; {client / again:.1f} times prometheus_client"
        f" ({client / first:.1f} at first)"
    )


def test_a_sysfs_listing() -> None:
    rows = [
        f"sys/class/infiniband/mlx5_{card}/ports/1/hw_counters/{name}\t{card * 7}"
        for card in range(2_000)
        for name in ("np_cnp_sent", "packet_seq_err", "out_of_sequence", "lifespan")
    ]
    data = ("\n".join(rows) + "\n").encode()
    spent = cpu_s(lambda: sum(1 for _ in nic_objects("bench", [data])))
    print(f"\nsysfs listing: {len(data) / 1e6 / spent:.1f} MB/s, {len(rows) / spent:,.0f} lines/s")
