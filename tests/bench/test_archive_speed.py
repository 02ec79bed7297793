"""How fast records come out of an archive. Printed, never asserted: machines differ."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from telemetry.archive import ArchiveWriter, read_archive
from telemetry.archive_records import read_records
from telemetry.codec import decode, encode
from telemetry.records import Frame

RECORDS = 20_000
GPUS, METRICS = 8, 48

pytestmark = pytest.mark.bench


def frames() -> list[bytes]:
    """200 frames of 384 noisy values, some 5 kB each; seed 1."""
    draw = random.Random(1)
    return [
        encode(
            Frame(
                at=1.7e9,
                node=f"n{node}",
                source="gpu",
                started_at=1.7e9,
                seq=node,
                sent_at=1.7e9,
                entities={"gpu": [f"GPU-{gpu}" for gpu in range(GPUS)]},
                metrics={
                    f"gpu_metric_number_{row}_celsius": [
                        round(draw.gauss(100.0, 10.0), 3) for _ in range(GPUS)
                    ]
                    for row in range(METRICS)
                },
            )
        )
        for node in range(200)
    ]


def per_cpu_second(name: str, work: Callable[[], Iterable[object]]) -> None:
    began, count = time.process_time(), 0
    for _ in work():
        count += 1
    rate = count / (time.process_time() - began)
    samples = rate * GPUS * METRICS / 1e6
    print(f"{name:<28} {rate:>10,.0f} records  {samples:>6.1f} M samples  per CPU second")


def test_archive_speed(tmp_path: Path) -> None:
    data = frames()

    def written() -> Iterable[object]:
        with ArchiveWriter(tmp_path) as writer:
            for offset in range(RECORDS):
                writer.append(offset, 1_700_000_000_000 + offset, data[offset % 200], b"main")
                yield None

    print(f"\nframes of {len(data[0])} bytes")
    per_cpu_second("write an archive", written)
    per_cpu_second("read an archive", lambda: read_archive(tmp_path))
    per_cpu_second("read and decode its records", lambda: read_records(tmp_path))
    per_cpu_second(
        "decode a record", lambda: (decode(data[n % 200], "here") for n in range(RECORDS))
    )
