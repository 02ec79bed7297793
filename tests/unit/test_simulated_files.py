"""Simulated runs on disk: archives that read back, captures in the tools' own words."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import msgspec
import pytest

from evaluation.faults import FaultSpec
from evaluation.simulator import Simulation
from evaluation.writers import write_archive, write_capture
from telemetry.archive import Torn
from telemetry.archive_records import read_records
from telemetry.errors import InputError
from telemetry.metrics import recognise
from telemetry.records import Frame, Steps

SAMPLE = re.compile(r'([A-Za-z_0-9]+)(\{(?:[a-zA-Z_]+="[^"]*",?)+\}) (\S+) (\d+\.\d{3})')


def run(*kinds: str, minutes: float = 8.0) -> Simulation:
    faults = [FaultSpec(kind, "n001", 300.0 + 30.0 * count) for count, kind in enumerate(kinds)]
    return Simulation(4, minutes=minutes, seed=5, faults=faults)


def test_an_archive_reads_back_as_the_same_records(tmp_path: Path) -> None:
    simulation = run("xid79")
    count = write_archive(simulation, tmp_path / "out")
    expected = list(simulation.records())
    found = list(read_records(tmp_path / "out"))

    assert count == len(expected) == len(found)
    for place, (arrived, (arrival_s, record)) in enumerate(zip(found, expected, strict=True)):
        assert not isinstance(arrived, Torn)
        assert (arrived.offset, arrived.record) == (place, record)
        assert arrived.arrival == pytest.approx(arrival_s, abs=0.001)
    truth = msgspec.json.decode((tmp_path / "out" / "truth.json").read_bytes())
    assert truth == simulation.truth()


def test_a_capture_holds_every_value_once_ordered_by_series_and_time(tmp_path: Path) -> None:
    simulation = run("ecn")
    write_capture(simulation, tmp_path / "out")
    for source in ("gpu", "nic"):
        lines = (tmp_path / "out/metrics" / f"{source}.om").read_text().splitlines()
        assert lines.pop() == "# EOF"
        samples = [SAMPLE.fullmatch(line) for line in lines]
        assert None not in samples
        keys = [(m[1] + m[2], float(m[4])) for m in samples if m is not None]
        series = list(dict.fromkeys(name for name, _ in keys))
        order = {name: place for place, name in enumerate(series)}
        places = [(order[name], at_s) for name, at_s in keys]
        assert places == sorted(set(places))
        assert all(recognise(m[1]) for m in samples if m is not None)
        values = sum(
            len(row) - row.count(None)
            for _, record in simulation.records()
            if isinstance(record, Frame) and record.source == source
            for row in record.metrics.values()
        )
        assert len(lines) == values


def test_a_captured_value_is_the_value_of_the_frame(tmp_path: Path) -> None:
    simulation = run()
    write_capture(simulation, tmp_path / "out")
    frame = next(
        record
        for _, record in simulation.records()
        if isinstance(record, Frame) and record.source == "gpu" and record.node == "n002"
    )
    text = (tmp_path / "out/metrics/gpu.om").read_text()
    for name, printed in (
        ("gpu_power_watts", "DCGM_FI_DEV_POWER_USAGE"),
        ("gpu_tensor_active_ratio", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
        ("gpu_nvlink_bandwidth_total", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"),
    ):
        pattern = rf'{printed}{{Hostname="n002",[^}}]*gpu="3"[^}}]*}} (\S+) {frame.at:.3f}\n'
        match = re.search(pattern, text)
        assert match is not None
        assert float(match[1]) == frame.metrics[name][3]


def test_the_training_log_and_the_kernel_log_tell_the_faults(tmp_path: Path) -> None:
    write_capture(run("nan", "xid79"), tmp_path / "out")
    log = (tmp_path / "out/training/train-1/train.log").read_text()
    kernel = (tmp_path / "out/kernel/n001.log").read_text()

    assert " | lm loss: nan | " in log
    assert " | lm loss: 1." in log
    assert re.search(r"^ \[2026-09-21 14:\d\d:\d\d\] iteration +1/ +50000 \|", log, re.MULTILINE)
    assert re.search(
        r"^2026-09-21T14:18:50,000000\+00:00 NVRM: Xid \(PCI:0000:..:00\): 79,",
        kernel,
        re.MULTILINE,
    )
    assert "Xid" not in (tmp_path / "out/kernel/n000.log").read_text()


def test_user_code_leaves_its_traceback_at_the_end_of_the_log(tmp_path: Path) -> None:
    write_capture(run("usercode"), tmp_path / "out")
    log = (tmp_path / "out/training/train-1/train.log").read_text()
    assert re.fullmatch(r"\[rank\d+\]: TypeError: .*", log.splitlines()[-1])


def test_every_job_wide_step_is_one_line(tmp_path: Path) -> None:
    simulation = run()
    write_capture(simulation, tmp_path / "out")
    log = (tmp_path / "out/training/train-1/train.log").read_text()
    steps = [r for _, r in simulation.records() if isinstance(r, Steps) and r.node == ""]
    assert log.count("] iteration ") == len(steps)


def test_jobs_json_names_nodes_ranks_stages_and_topology(tmp_path: Path) -> None:
    write_capture(run(), tmp_path / "out")
    listing = msgspec.json.decode((tmp_path / "out/jobs.json").read_bytes())
    (job,) = listing["jobs"]
    assert job["nodes"] == ["n000", "n001", "n002", "n003"]
    assert job["ranks"]["n001"] == list(range(8, 16))
    assert listing["topology"]["n001"]["leaf"] == "leaf-00"


def test_a_compressed_capture_holds_the_same_text_and_a_choice_of_metrics_only_those(
    tmp_path: Path,
) -> None:
    write_capture(run(), tmp_path / "plain", metrics=["gpu_power_watts"])
    write_capture(run(), tmp_path / "packed", metrics=["gpu_power_watts"], compress=True)
    plain = (tmp_path / "plain/metrics/gpu.om").read_bytes()
    packed = (tmp_path / "packed/metrics/gpu.om.gz").read_bytes()
    assert gzip.decompress(packed) == plain
    assert plain.startswith(b"DCGM_FI_DEV_POWER_USAGE{")
    assert b"DCGM_FI_DEV_GPU_TEMP" not in plain


def test_the_same_run_gives_the_same_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_capture(run("leaf"), tmp_path / name, compress=True)
    first = sorted(p for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert first
    for path in first:
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()
    assert not list((tmp_path / "a").glob(".spill*"))


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    (tmp_path / "empty").mkdir()
    for write in (write_archive, write_capture):
        with pytest.raises(InputError, match="empty"):
            write(run(minutes=1.0), tmp_path / "full")
    with pytest.raises(InputError, match="choose"):
        write_archive(run(minutes=1.0), tmp_path / "full" / "file")
    write_capture(run(minutes=6.0), tmp_path / "empty")
