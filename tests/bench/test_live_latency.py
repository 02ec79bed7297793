"""From a kernel line to the incident record: node agent, Kafka, Faust worker. Printed."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from telemetry.archive_line import ArchiveLine
from telemetry.topics import FINDINGS, INCIDENTS
from tests.bench.brokers import clean_topics, kafka
from tests.kafka.broker import Broker, free_port
from tests.kafka.live import LiveWorker
from tests.kafka.reading import read_all
from tests.kafka.service import Service

__all__ = ["clean_topics", "kafka"]
pytestmark = [pytest.mark.bench, pytest.mark.kafka, pytest.mark.slow]

EVENTS = 250
GAP_S = (0.2, 0.5)  # between two lines
SETTLE_S = 2.0
LINE = "NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


class LiveAgent(Service):
    """One node agent whose kernel ring is a pipe that the test writes to."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.ring = directory / "kmsg"
        os.mkfifo(self.ring)
        port = free_port()
        tables: dict[str, Any] = {
            "kafka": {"brokers": [broker.address]},
            "collect": {
                "node": "n001", "exporters": [], "nic": False, "kmsg": str(self.ring),
                "journalctl": "", "nvidia_smi": "", "step_socket": "", "ethtool": "",
                "state_dir": str(directory / "state"), "metrics_address": f"127.0.0.1:{port}",
            },
        }  # fmt: skip
        super().__init__(
            directory, "agent", ("-m", "nodewarden", "collect"), tables, port,
            prefix="nodewarden_", label="source",
        )  # fmt: skip
        self.change_settings({})


def pci(number: int) -> str:
    """A place of its own for each event, so that each is news."""
    return f"{number // 200:04x}:{number % 200 + 1:02x}:00"


def speak(ring: int, number: int) -> float:
    """One kernel line; when it was printed."""
    at_s = time.time()
    head = f"4,{number},{int(time.monotonic() * 1e6)},-;"
    os.write(ring, (head + LINE.format(pci=pci(number)) + "\n").encode())
    return at_s


def test_kernel_line_to_incident(clean_topics: Broker, tmp_path: Path) -> None:
    chosen = random.Random(1)
    wide = {"engine": {"correlation": {"evidence_max": 2 * EVENTS}}}  # all of one story are told
    with (
        LiveWorker(clean_topics, tmp_path, settings=wide) as worker,
        LiveAgent(clean_topics, tmp_path) as agent,
    ):
        worker.wait_until(lambda found: found.get(("control_total", "main"), 0) > 0, "settings")
        ring = os.open(agent.ring, os.O_WRONLY)
        time.sleep(SETTLE_S)  # the first start is over: what is printed now is news
        printed: list[float] = []
        for number in range(EVENTS):
            printed.append(speak(ring, number))
            time.sleep(chosen.uniform(*GAP_S))
        time.sleep(SETTLE_S)
        os.close(ring)
    findings = read_all(clean_topics, FINDINGS)
    incidents = read_all(clean_topics, INCIDENTS)
    show("finding", [told_s(findings, number) for number in range(EVENTS)], printed)
    show("incident", [incident_s(findings, incidents, number) for number in range(EVENTS)], printed)


def told_s(findings: Sequence[ArchiveLine], number: int) -> float | None:
    """When the event's finding was appended."""
    found = _finding(findings, number)
    return None if found is None else found.timestamp_ms / 1000.0


def incident_s(
    findings: Sequence[ArchiveLine], incidents: Sequence[ArchiveLine], number: int
) -> float | None:
    """When the first incident that holds the event's finding was appended."""
    finding = _finding(findings, number)
    if finding is None or finding.value is None:
        return None
    id_ = msgspec.json.decode(finding.value)["id"].encode()
    return next(
        (line.timestamp_ms / 1000.0 for line in incidents if id_ in (line.value or b"")), None
    )


def _finding(findings: Sequence[ArchiveLine], number: int) -> ArchiveLine | None:
    entity = f'"entity":"pci:{pci(number)}"'.encode()
    return next((line for line in findings if entity in (line.value or b"")), None)


def show(what: str, told: Sequence[float | None], printed: Sequence[float]) -> None:
    took = [end - began for end, began in zip(told, printed, strict=True) if end is not None]
    assert took, f"no event became a {what}"
    p50, p99 = np.percentile(took, [50, 99])
    print(
        f"\nkernel line to {what}: {len(took)} of {len(told)} events, p50 {p50 * 1e3:.0f} ms, "
        f"p99 {p99 * 1e3:.0f} ms, longest {max(took) * 1e3:.0f} ms"
    )
