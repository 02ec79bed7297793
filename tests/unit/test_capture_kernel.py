"""Kernel logs of a capture, in whatever form they were saved."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from collectors.capture import open_capture
from telemetry.errors import InputError
from telemetry.records import Event, Rejected
from telemetry.settings import EngineSettings

AT_S = 1_772_020_820.5  # 2026-02-25 12:00:20.5 UTC
FELL = "NVRM: Xid (PCI:0000:c3:00): 79, GPU has fallen off the bus.\n"
METRICS = "".join(
    f'DCGM_FI_DEV_GPU_TEMP{{Hostname="n1",gpu="0"}} 60 {1_772_020_800 + 15 * at}\n'
    for at in range(5)
)
STEP = "[2026-02-25 12:00:30] iteration 5/ 9 | elapsed time per iteration (ms): 5000.0 |\n"
JOBS = '{"jobs": [{"id": "j", "nodes": ["n1"], "start": 1772020000}]}'
JOURNAL = {"__REALTIME_TIMESTAMP": "1772020820500000", "_TRANSPORT": "kernel", "MESSAGE": FELL}


def read(path: Path, files: Mapping[str, str | bytes]) -> tuple[list[Event], list[str], list[str]]:
    """Events, reasons of what was rejected, notes."""
    for name, content in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with open_capture(path, EngineSettings(), "UTC") as capture:
        records = list(capture.records())
        events = [record for record in records if isinstance(record, Event)]
        reasons = [record.reason for record in records if isinstance(record, Rejected)]
        return events, reasons, list(capture.notes)


@pytest.mark.parametrize(
    "files",
    [
        {"kernel/n1.log": f"[   20.500000] {FELL}", "kernel/n1.boot": "1772020800\n"},
        {"kernel/n1.log.gz": gzip.compress(f"[   20.500000] {FELL}".encode()),
         "kernel/n1.boot": "1772020800.0"},
        {"kernel/n1.log": f"3,9,20500000,-;{FELL} SUBSYSTEM=pci\n DEVICE=+pci:0000:c3:00.0\n",
         "kernel/n1.boot": "1772020800.0"},
        {"kernel/n1.log": f"Feb 25 12:00:20.5 n1 kernel: {FELL}", "metrics/a.om": METRICS},
        {"kernel/n1.log": f"Feb 25 12:00:20.5 n1 kernel: {FELL}",
         "capture.json": '{"year": 2026, "cluster": "c"}'},
        {"kernel/n1.log": f"Feb 25 12:00:20.5 n1 kernel: {FELL}", "training/j/a.log": STEP},
        {"kernel/n1.log": f"Feb 25 12:00:20.5 n1 kernel: {FELL}", "jobs.json": JOBS},
        {"kernel/n1.log": json.dumps(JOURNAL) + "\n"},
        {"kernel/n1.log": f"<3>1 2026-02-25T12:00:20.5Z n1 kernel - - - {FELL}"},
        {"kernel/n1.log": f"2026-02-25T12:00:20,500000+00:00 {FELL}"},
    ],
)  # fmt: skip
def test_one_line_in_any_form_is_one_event_at_one_time(
    tmp_path: Path, files: dict[str, str | bytes]
) -> None:
    events, reasons, _ = read(tmp_path, files)
    assert [("xid", 79, "n1", AT_S, "pci:0000:c3:00")] == [
        (event.type, event.code, event.node, event.at, event.entity) for event in events
    ]
    assert [] == reasons


def test_dmesg_t_prints_whole_seconds_in_the_capture_s_zone(tmp_path: Path) -> None:
    events, _, _ = read(tmp_path, {"kernel/n1.log": f"[Wed Feb 25 12:00:20 2026] {FELL}"})
    assert [AT_S - 0.5] == [event.at for event in events]


@pytest.mark.parametrize("before", ["[   20.500000] ", "Feb 25 12:00:20 n1 kernel: ", ""])
def test_a_line_that_cannot_be_dated_is_rejected_and_the_remedy_said(
    tmp_path: Path, before: str
) -> None:
    dated = f"2026-02-25T12:00:20,5+00:00 {FELL}"
    events, reasons, notes = read(
        tmp_path, {"kernel/n1.log": before + FELL, "kernel/n2.log": dated}
    )
    assert (["n2"], ["no date"]) == ([event.node for event in events], reasons)
    assert any("kernel/n1.log" in note and ".boot" in note and "year" in note for note in notes)


def test_what_else_a_line_says_reaches_the_record(tmp_path: Path) -> None:
    line = "NVRM: Xid (PCI:0000:55:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (x)"
    events, _, _ = read(tmp_path, {"kernel/n1.log": f"2026-02-25T12:00:20,5 {line}\n"})
    assert [{"action": "reset_gpu", "before": "none"}] == [event.details for event in events]


@pytest.mark.parametrize("boot", ["", "yesterday", "nan", "12", b"\xff\xfe"])
def test_a_boot_time_that_is_none_is_refused_in_one_line(tmp_path: Path, boot: str) -> None:
    with pytest.raises(InputError, match=r"n1\.boot.*Unix seconds"):
        read(tmp_path, {"kernel/n1.log": f"[   20.5] {FELL}", "kernel/n1.boot": boot})
