"""How fast a capture is read. Printed, never asserted: machines differ."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.capture import open_capture
from collectors.openmetrics import OpenMetricsParser, Run
from telemetry.records import Frame
from telemetry.settings import EngineSettings

METRICS = (
    "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_MEMORY_TEMP",
)  # fmt: skip
NODES, GPUS, HOURS = 4, 8, 8
START_S = 1_772_020_800.0

pytestmark = pytest.mark.bench


def dump() -> bytes:
    """Lines of about 170 bytes, ordered by series, 15 s apart; seed 1."""
    draw = random.Random(1)
    stamps = [f"{START_S + 15.0 * at:.3f}" for at in range(HOURS * 240)]
    rows = []
    for metric in METRICS:
        for node in range(NODES):
            for gpu in range(GPUS):
                labels = (
                    f'{{DCGM_FI_DRIVER_VERSION="570.158.01",Hostname="n{node}",'
                    f'UUID="GPU-{node}-{gpu}",device="nvidia{gpu}",gpu="{gpu}",'
                    f'instance="n{node}:9400",job="dcgm"}}'
                )
                rows += [f"{metric}{labels} {draw.gauss(60.0, 5.0):.2f} {at}" for at in stamps]
    return ("\n".join(rows) + "\n# EOF\n").encode()


def parsed(data: bytes) -> Iterator[int]:
    parser = OpenMetricsParser("gpu.om")
    for found in (*parser.feed(data), *parser.finish()):
        assert isinstance(found, Run)
        yield len(found.values)


def replayed(path: Path) -> Iterator[int]:
    with open_capture(path, EngineSettings(), "UTC") as capture:
        for record in capture.records():
            if isinstance(record, Frame):
                yield sum(map(len, record.metrics.values()))


def per_cpu_second(name: str, counts: Iterator[int]) -> int:
    began = time.process_time()
    samples = sum(counts)
    rate = samples / (time.process_time() - began) / 1e6
    print(f"{name:<28} {rate:>6.2f} M samples per CPU second")
    return samples


def test_capture_speed(tmp_path: Path) -> None:
    data = dump()
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "gpu.om").write_bytes(data)
    print(f"\n{len(data) / 1e6:.0f} MB, a line in {len(data) // data.count(10)} bytes")
    expected = len(METRICS) * NODES * GPUS * HOURS * 240
    assert expected == per_cpu_second("OpenMetrics text to runs", parsed(data))
    assert expected == per_cpu_second("capture to records", replayed(tmp_path))
