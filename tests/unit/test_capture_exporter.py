"""Captures whose only witness of an Xid is an exporter, and what their exporters do not show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from collectors.capture import open_capture
from nodewarden.cli import run
from telemetry.records import Event, Frame, Record, Rejected
from telemetry.settings import EngineSettings

START_S = 1_772_020_800.0
LABELS = 'Hostname="{node}",gpu="0",UUID="GPU-{node}",pci_bus_id="00000000:C3:00.0"'


def gauge(name: str, node: str, values: Sequence[float], more: str = "") -> str:
    labels = LABELS.format(node=node) + more
    return "".join(
        f"{name}{{{labels}}} {value:g} {START_S + 10 * at}\n" for at, value in enumerate(values)
    )


def capture(path: Path, text: str, kernel: str = "") -> Path:
    (path / "metrics").mkdir()
    (path / "metrics" / "gpu.om").write_text(text + "# EOF\n")
    if kernel:
        (path / "kernel").mkdir()
        (path / "kernel" / "n1.log").write_text(kernel)
    return path


def records(path: Path) -> tuple[list[Record | Rejected], list[str]]:
    with open_capture(path, EngineSettings(), "UTC") as opened:
        return list(opened.records()), list(opened.notes)


def events(path: Path) -> list[Event]:
    return [record for record in records(path)[0] if isinstance(record, Event)]


def eight_nodes(values: Sequence[float]) -> str:
    quiet = "".join(
        gauge("DCGM_FI_DEV_XID_ERRORS", f"n{at}", [0.0] * len(values)) for at in range(2, 9)
    )
    return gauge("DCGM_FI_DEV_XID_ERRORS", "n1", values) + quiet


def test_a3_a_capture_with_only_the_gauge_of_the_last_xid_has_one_event(tmp_path: Path) -> None:
    path = capture(tmp_path, eight_nodes([0.0] * 30 + [31.0] * 360 + [0.0] * 30))
    (event,) = events(path)
    assert ("n1", "exporter", "xid", 31, "gpu:GPU-n1", START_S + 300.0) == (
        event.node, event.source, event.type, event.code, event.entity, event.at,
    )  # fmt: skip


def test_a5_a_windowed_count_is_events_and_no_column_of_a_frame(tmp_path: Path) -> None:
    values = [0, 1, 1, 2, 2, 1, 0]
    path = capture(tmp_path, gauge("DCGM_EXP_XID_ERRORS_COUNT", "n1", values, ',xid="43"')
                   + gauge("DCGM_FI_DEV_GPU_TEMP", "n1", [60] * 7))  # fmt: skip
    said, _ = records(path)
    assert [43, 43] == [record.code for record in said if isinstance(record, Event)]
    frames = [record for record in said if isinstance(record, Frame)]
    assert {"gpu_temperature_celsius"} == {name for frame in frames for name in frame.metrics}


def test_an_xid_of_no_named_gpu_is_an_event_of_the_node(tmp_path: Path) -> None:
    lines = "".join(
        f'DCGM_FI_DEV_XID_ERRORS{{Hostname="n1"}} {code} {START_S + 10 * at}\n'
        for at, code in enumerate([0, 0, 79])
    )
    path = capture(tmp_path, lines + gauge("DCGM_FI_DEV_GPU_TEMP", "n1", [60] * 3))
    assert [("n1", 79, "")] == [(e.node, e.code, e.entity) for e in events(path)]


@pytest.mark.parametrize(("witness", "isolated"), [("exporter", False), ("kernel", True)])
def test_a9_a_fatal_xid_isolates_only_where_the_kernel_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], witness: str, isolated: bool
) -> None:
    line = "2026-02-25T12:01:40,5 NVRM: Xid (PCI:0000:c3:00): 79, GPU has fallen off the bus.\n"
    path = capture(
        tmp_path, eight_nodes([0.0] * 10 + [79.0] * 50), line if witness == "kernel" else ""
    )
    assert 0 == run(["replay", str(path), "--json"], {})
    incidents = json.loads(capsys.readouterr().out)["incidents"]
    acted = [one for one in incidents if one["verdict"]["action"].startswith("isolate")]
    assert isolated is bool(acted)


def test_a19_a_capture_says_what_its_exporters_do_not_show(tmp_path: Path) -> None:
    text = gauge("DCGM_FI_DEV_GPU_TEMP", "n1", [60] * 5)
    note = next(note for note in records(capture(tmp_path, text))[1] if "nobody sends" in note)
    assert "thermal slowdown" in note
    assert "congestion marks" not in note  # nobody measures NICs here at all
