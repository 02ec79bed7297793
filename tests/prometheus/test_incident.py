"""What a real Prometheus scraped of a simulated fleet tells what its capture tells."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collectors.capture import open_capture
from evaluation.capture import write_capture
from evaluation.faults import parse_fault
from evaluation.simulator import Simulation
from telemetry.records import Event, Frame, Record, Rejected, Steps
from telemetry.settings import EngineSettings
from tests.folding import folded, numbered, printed
from tests.prometheus.collector import collected
from tests.prometheus.fleet import Replayed, capture_samples, serving, training_samples
from tests.prometheus.server import Prometheus

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]

MINUTES, INTERVAL_S = 30.0, 15.0
SCRAPE = "1s"
DEADLINE_S = 120.0


def told(record: Record) -> Any:
    """What a record says, without its place in its stream."""
    plain = msgspec.to_builtins(record)
    for key in ("seq", "sent_at", "started_at"):
        plain.pop(key, None)
    return plain


def differing(wanted: list[Frame], found: list[Frame]) -> dict[Any, Any]:
    """(node, source, time) -> the frame of each, where they differ; at most three."""
    sides = [{(r.node, r.source, r.at): told(r) for r in side} for side in (wanted, found)]
    keys = sorted(k for k in sides[0] | sides[1] if sides[0].get(k) != sides[1].get(k))
    return {key: (sides[0].get(key), sides[1].get(key), len(keys)) for key in keys[:3]}


def incidents(log: list[Record]) -> Any:
    fold, outcome = folded(numbered((record.at, record) for record in log), "capture")
    return json.loads(printed(fold, outcome))["incidents"]


def test_the_same_incident_and_the_same_frames_as_a_capture_of_the_same_samples(
    tmp_path: Path, prometheus: Prometheus
) -> None:
    start_s = float(int(time.time() - MINUTES * 60.0 - 600.0))
    run = Simulation(
        8, 2, minutes=MINUTES, seed=3, faults=[parse_fault("ecn@3+600")], start_s=start_s,
        gpu_interval_s=INTERVAL_S, nic_interval_s=30.0,
    )  # fmt: skip
    capture = tmp_path / "capture"
    write_capture(run, capture)
    shutil.rmtree(capture / "training")
    shutil.rmtree(capture / "kernel")
    training = training_samples(run)
    (capture / "metrics" / "training.om").write_text(
        "".join(
            f"{series} {value} {at:.3f}\n"
            for at, series, value in sorted(training, key=lambda s: (s[1], s[0]))
        )
    )
    exporters = {
        node: Replayed(samples, start_s)
        for node, samples in capture_samples(capture / "metrics").items()
        if node.startswith("n")
    }
    exporters["training"] = Replayed(training, start_s)
    with serving(exporters) as targets:
        prometheus.scrape(list(targets.values()), SCRAPE)
        deadline_s = time.monotonic() + DEADLINE_S
        while not all(exporter.is_over for exporter in exporters.values()):
            assert time.monotonic() < deadline_s
            time.sleep(0.2)

    records = collected(
        tmp_path, prometheus.url, first_s=MINUTES * 60.0 + 900.0, page_s=45.0, delay_s=0.0
    )
    with open_capture(capture, EngineSettings()) as opened:
        captured = [r for r in opened.records() if not isinstance(r, Rejected)]
    frames = [r for r in records if isinstance(r, Frame)]
    wanted = [r for r in captured if isinstance(r, Frame)]
    assert {} == differing(wanted, frames)
    assert len(wanted) == len(frames)

    kinds = (Frame, Steps, Event)
    head = [r for r in captured if not isinstance(r, kinds)]
    # They arrive when they happened, as a capture's do: what was sent long after tells no clock.
    unsent = [msgspec.structs.replace(r, sent_at=None) for r in records if isinstance(r, kinds)]
    log = [*head[:-1], *unsent, head[-1]]
    assert [told(r) for r in captured if isinstance(r, Steps)] == [
        told(r) for r in records if isinstance(r, Steps)
    ]
    assert [r.at for r in log] == sorted(r.at for r in log)
    found = incidents(log)
    assert incidents(captured) == found
    assert ["n003"] == [s["node"] for i in found for s in i["suspects"]][:1]
