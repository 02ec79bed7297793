"""How much log one archiver keeps up with. Printed, never asserted."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from nodewarden.archiving import archive
from nodewarden.cli import run
from nodewarden.clock import SystemClock
from streams.archive_metrics import ArchiveMetrics
from streams.archive_store import DirectoryStore
from telemetry.archive import Torn, archive_files, read_archive
from telemetry.archive_line import ArchiveLine
from telemetry.ports import Place
from telemetry.settings import Configuration
from telemetry.topics import TELEMETRY

pytestmark = pytest.mark.bench

RECORDS = 60_000
POLL_MAX = 2_000


class _Ready:
    """A log that costs nothing to read; ends the archiver behind its last record."""

    def __init__(self, lines: list[ArchiveLine], stop: threading.Event) -> None:
        self._lines = lines
        self._stop = stop
        self._at = 0

    def partitions(self, topic: str) -> Sequence[int]:
        return [0] if topic == TELEMETRY else []

    def bounds(self, places: Sequence[Place]) -> Mapping[Place, tuple[int, int]]:
        return {place: (0, len(self._lines)) for place in places}

    def assign(self, positions: Mapping[Place, int]) -> None:
        self._at = positions[TELEMETRY, 0]

    def poll(self, timeout_s: float) -> Sequence[ArchiveLine]:
        found = self._lines[self._at : self._at + POLL_MAX]
        self._at += len(found)
        if not found:
            self._stop.set()
        return found

    def positions(self) -> Mapping[Place, int]:
        return {(TELEMETRY, 0): self._at}

    def close(self) -> None:
        pass


def test_records_a_cpu_second(tmp_path: Path) -> None:
    simulated = tmp_path / "simulated"
    assert run(["simulate", "--nodes", "16", "--minutes", "10", "--out", str(simulated)], {}) == 0
    seen = [line for line in read_archive(simulated) if not isinstance(line, Torn)]
    lines = [
        ArchiveLine(
            TELEMETRY, 0, offset, 1_790_000_000_000 + offset, "LogAppendTime",
            seen[offset % len(seen)].headers, b"main", seen[offset % len(seen)].value,
        )
        for offset in range(RECORDS)
    ]  # fmt: skip
    size_mb = sum(len(line.value or b"") for line in lines) / 1e6
    stop = threading.Event()
    begin_s = time.process_time()
    archive(
        Configuration(), DirectoryStore(tmp_path / "out"), SystemClock(), ArchiveMetrics(), stop,
        reader=lambda: _Ready(lines, stop),
    )  # fmt: skip
    cpu_s = time.process_time() - begin_s
    out = tmp_path / "out"
    written_mb = sum((out / file.relative).stat().st_size for file in archive_files(out)) / 1e6
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"\narchiver: {RECORDS / cpu_s:,.0f} records a CPU second, {size_mb / cpu_s:.0f} MB of JSON"
        f" a CPU second, {written_mb / size_mb:.0%} of it on disk; peak {rss_mb:.0f} MB"
        " with the log in memory"
    )
