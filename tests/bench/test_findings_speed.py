"""From an archive's bytes to findings, with every detector; beside pandas. Printed only."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from actions.policy import verdict
from detectors.base import FloatArray, IntArray
from evaluation.simulator import Simulation
from evaluation.writers import write_archive
from nodewarden.logs import open_logs
from streams.fold import Fold
from telemetry.metrics import BY_NAME, CATALOGUE
from telemetry.records import Arrived, Frame, Settings, Steps
from telemetry.settings import Configuration
from tests.bench.pandas_rule import abnormal
from tests.bench.rates import cpu_s, show

NODES, MINUTES = 128, 30.0
PUBLISHED = ("zscore", "critical", "straggler", "training", "silence")
COLUMNS = (
    "step", "step_time_s", "compute_time_s", "loss", "grad_norm", "tokens", "mfu_ratio",
    "throughput",
)  # fmt: skip

pytestmark = pytest.mark.bench


def read(archive: Path) -> Iterator[Arrived]:
    (log,) = open_logs(archive, Configuration(), "UTC")
    return log.records


def fold(archive: Path, published: bool = False) -> Fold:
    """The whole archive; with `published` by the detectors of the published rules alone."""
    folding = Fold(verdict)
    for arrived in read(archive):
        folding.step(_with_published(arrived) if published else arrived)
    return folding


def _with_published(arrived: Arrived) -> Arrived:
    record = arrived.record
    if not isinstance(record, Settings):
        return arrived
    off = {
        name: msgspec.structs.replace(section, enabled=False)
        for name in record.settings.__struct_fields__
        if hasattr(section := getattr(record.settings, name), "enabled") and name not in PUBLISHED
    }
    settings = msgspec.structs.replace(record.settings, **off)
    return Arrived(
        arrived.offset, arrived.arrival, msgspec.structs.replace(record, settings=settings)
    )


def samples_in(archive: Path) -> tuple[int, int]:
    """Values in frames, values in columns of steps."""
    of_frames = of_steps = 0
    for arrived in read(archive):
        record = arrived.record
        if isinstance(record, Frame):
            of_frames += sum(map(len, record.metrics.values()))
        elif isinstance(record, Steps):
            of_steps += sum(len(getattr(record, name)) for name in COLUMNS)
    return of_frames, of_steps


def test_findings_speed(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    write_archive(Simulation(NODES, minutes=MINUTES, seed=1), archive)
    of_frames, of_steps = samples_in(archive)
    samples = of_frames + of_steps
    print(
        f"\n{NODES} nodes, {MINUTES:g} min: {of_frames:,} values in frames, {of_steps:,} in steps"
    )
    decode_s = cpu_s(lambda: sum(1 for _ in read(archive)))
    whole_s = cpu_s(lambda: fold(archive))
    judged, pandas_s = with_pandas(archive)
    show("archive to the rule in pandas", judged, pandas_s)
    show("archive to records", samples, decode_s)
    show("archive to findings", samples, whole_s, pandas_s * samples / judged)
    shares(archive)
    plain = tmp_path / "plain"
    write_archive(Simulation(NODES, minutes=MINUTES, seed=1, rank_steps=False), plain)
    samples = sum(samples_in(plain))
    print(f"the same without the nodes' rank rows: {samples:,} values")
    show("archive to findings", samples, cpu_s(lambda: fold(plain)))
    show("the published rules alone", samples, cpu_s(lambda: fold(plain, published=True)))


def shares(archive: Path) -> None:
    """Where the time of one run goes; the clocks themselves cost some of it."""
    spent: dict[str, float] = defaultdict(float)
    folding = Fold(verdict)
    began = time.perf_counter()
    records = read(archive)
    timed = False
    while True:
        at = time.perf_counter()
        arrived = next(records, None)
        spent["decode"] += time.perf_counter() - at
        if arrived is None:
            break
        folding.step(arrived)
        if folding.ready and not timed:  # the settings have made the detectors
            timed = True
            watch(folding, spent)
    whole = time.perf_counter() - began
    parts = sorted(spent.items(), key=lambda part: -part[1])
    for name, seconds in [*parts, ("the rest of the fold", whole - sum(spent.values()))]:
        print(f"  {name:<30} {100.0 * seconds / whole:>8.1f} %")


def watch(folding: Fold, spent: dict[str, float]) -> None:
    """Put a clock around every detector, the ticks and the correlation."""
    for detector in folding.detectors:
        for method in ("on_tick", "on_event", "on_steps", "advance"):
            clock(detector, method, detector.name, spent)
    clock(folding.correlator, "take", "correlation", spent)
    clock(folding.correlator, "advance", "correlation", spent)
    for name in ("gpu", "nic"):
        source = folding.sources.get(name) or folding._new_source(name)
        clock(source, "take", "frames into ticks", spent)
        clock(source, "close", "ticks closed", spent)


def clock(owner: Any, method: str, name: str, spent: dict[str, float]) -> None:
    inner: Callable[..., object] = getattr(owner, method)

    def timed(*given: object) -> object:
        began = time.perf_counter()
        result = inner(*given)
        spent[name] += time.perf_counter() - began
        return result

    setattr(owner, method, timed)


def with_pandas(archive: Path) -> tuple[int, float]:
    """(samples, CPU seconds): the one rule over the GPU frames, decoded as the engine does it."""
    settings = Simulation(NODES, minutes=MINUTES, seed=1).settings
    interval_s = settings.ticks.interval_s["gpu"]
    ticks = round(settings.zscore.window_s / interval_s)

    def work() -> int:
        arrays, group = metric_arrays(archive, interval_s)
        for name, raw in arrays.items():
            metric = BY_NAME[name]
            abnormal(
                raw, group, counter=metric.kind == "counter", high=metric.bad == "high",
                interval_s=interval_s, ticks=ticks, coverage=settings.zscore.coverage,
            )  # fmt: skip
        return sum(int(np.count_nonzero(~np.isnan(raw))) for raw in arrays.values())

    began = time.process_time()
    judged = work()
    return judged, time.process_time() - began


def metric_arrays(archive: Path, interval_s: float) -> tuple[dict[str, FloatArray], IntArray]:
    """Judged metrics of the GPUs, each of shape (ticks, nodes, GPUs), and the nodes' stages."""
    names = {row.name for row in CATALOGUE if row.source == "gpu" and row.judged}
    ticks = round(MINUTES * 60.0 / interval_s) + 1
    arrays = {name: np.full((ticks, NODES, 8), np.nan) for name in names}
    start_s = Simulation(1, minutes=1.0).start_s
    for arrived in read(archive):
        frame = arrived.record
        if isinstance(frame, Frame) and frame.source == "gpu":
            tick, node = int((frame.at - start_s) / interval_s), int(frame.node[1:])
            for name in names & frame.metrics.keys():
                arrays[name][tick, node] = np.array(frame.metrics[name], dtype=np.float64)
    job = Simulation(NODES, minutes=1.0, seed=1).cluster.job(start_s)
    stages = np.array([-1 if node.stage is None else node.stage for node in job.nodes])
    return arrays, stages
