"""The fixtures of the kafka tests, for benchmarks; and what a process has used."""

from __future__ import annotations

import os
from pathlib import Path

from tests.kafka.conftest import clean_topics, kafka

__all__ = ["clean_topics", "kafka", "process_cpu_s"]


def process_cpu_s(pid: int) -> float:
    """CPU seconds of a process, all its threads, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
