"""What a node agent costs: 8 GPUs with 40 metrics each, every 10 s."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.agent_fakes import FakeExporter, fake_exporter

pytestmark = pytest.mark.bench

ROOT = Path(__file__).parents[2]
RSS_MAX_MB = 60.0
INTERVAL_S = 10.0
FAST_S, SLOW_S = 0.25, 1_000.0
MEASURED_S = 10.0


@pytest.mark.parametrize("way", ["lines", "spool"])
def test_the_agent_s_memory_is_bounded_its_cpu_time_is_printed(tmp_path: Path, way: str) -> None:
    """Per scrape at a short interval, less what the agent costs when it does nothing."""
    with fake_exporter() as exporter:
        idle_s, _, rss_mb = measured(tmp_path / "idle", exporter, SLOW_S, way)
        busy_s, scrapes, busy_rss_mb = measured(tmp_path / "busy", exporter, FAST_S, way)
    scrape_s = max(0.0, busy_s - idle_s) / scrapes
    share = idle_s / MEASURED_S + scrape_s / INTERVAL_S
    rss_mb = max(rss_mb, busy_rss_mb)
    print(
        f"\nagent, {way:<6} {share:8.3%} of a core at {INTERVAL_S:g} s"
        f"  {scrape_s * 1e3:6.2f} ms a round  {idle_s / MEASURED_S * 1e3:6.2f} ms/s idle"
        f"  {rss_mb:6.1f} MB RSS (at most {RSS_MAX_MB:g})"
    )
    assert rss_mb <= RSS_MAX_MB


def measured(
    directory: Path, exporter: FakeExporter, interval_s: float, way: str
) -> tuple[float, int, float]:
    """CPU seconds and scrapes in `MEASURED_S`, and the highest resident memory in MB."""
    directory.mkdir()
    config = directory / "nodewarden.toml"
    config.write_text(
        f'engine.ticks.interval_default_s = {interval_s}\nkafka.brokers = ["127.0.0.1:1"]\n'
        f'[collect]\nnode = "n1"\nexporters = ["{exporter.url}"]\nkmsg = "{directory}/kmsg"\n'
        f'step_socket = "{directory}/s"\nstate_dir = "{directory}/state"\nnvidia_smi = ""\n'
        'metrics_address = "127.0.0.1:0"\n',
        "utf-8",
    )
    os.mkfifo(directory / "kmsg")  # wakes its reader, as the kernel's does
    words = [sys.executable, "-m", "nodewarden", "collect", "--config", str(config)]
    words += ["--stdout"] if way == "lines" else []
    with (directory / "out").open("wb") as out:
        process = subprocess.Popen(words, cwd=ROOT, stdout=out)
    try:
        time.sleep(4.0)
        before_s, asked = cpu_s(process.pid), exporter.asked
        time.sleep(MEASURED_S)
        used_s, scrapes = cpu_s(process.pid) - before_s, exporter.asked - asked
        return used_s, max(scrapes, 1), peak_mb(process.pid)
    finally:
        process.terminate()
        process.wait(30.0)


def cpu_s(pid: int) -> float:
    """All threads, from when it started; the tools that it ran too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    """The highest resident memory."""
    line = next(
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmHWM" in line
    )
    return float(line.split()[1]) / 1024.0
