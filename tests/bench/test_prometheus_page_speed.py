"""Samples a second from Prometheus' answer to frames."""

from __future__ import annotations

import json
import time

import pytest

from collectors.central.pages import Pages, Samples
from collectors.prometheus_runs import RunReader
from telemetry.metrics import CATALOGUE
from telemetry.records import Frame

pytestmark = pytest.mark.bench

NODES, GPUS, METRICS = 500, 8, 30
NOW_S = 1_772_028_000.0


def answers(at_s: float) -> list[bytes]:
    """One a metric, as the reader asks where a whole family is too large."""
    rows = [row for row in CATALOGUE if row.device == "gpu" and row.names][:METRICS]
    return [
        json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [
            {
                "metric": {
                    "__name__": row.names[0], "Hostname": f"n{node:05d}", "gpu": str(gpu),
                    "UUID": f"GPU-{node:05d}-{gpu}-0000-0000", "device": f"nvidia{gpu}",
                    "instance": f"n{node:05d}:9400", "job": "dcgm", "modelName": "NVIDIA H100 80GB",
                },
                "values": [[at_s + node * 0.01, str(gpu)]],
            }
            for node in range(NODES) for gpu in range(GPUS)
        ]}}).encode()
        for row in rows
    ]  # fmt: skip


def test_samples_a_second() -> None:
    reader, pages = RunReader("bench"), Pages()
    rates = []
    for number in range(3):
        read = answers(NOW_S + 15.0 * number)
        begun_s = time.perf_counter()
        samples = Samples()
        for answer in read:
            samples.take(reader.read(answer))
        assert 0 == samples.broken
        frames = pages.page(samples, NOW_S + 15.0 * number + 10.0)
        rates.append(samples.count / (time.perf_counter() - begun_s))
        assert NODES == sum(isinstance(one, Frame) for one in frames)
    print(
        f"\n{NODES} nodes, {samples.count:,} samples a page: {rates[-1]:,.0f} samples/s, the first"
        f" page {rates[0]:,.0f}"
    )
