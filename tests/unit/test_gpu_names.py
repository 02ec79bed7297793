"""A GPU by its UUID, its PCI address and its index."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.capture import open_capture
from collectors.gpu_names import GpuNames, find
from telemetry.records import Gpu, Hardware
from telemetry.settings import EngineSettings

LABELS = {"UUID": "GPU-1A", "gpu": "0", "pci_bus_id": "00000000:C3:00.0"}


def names(*rows: dict[str, str]) -> list[Gpu]:
    found = GpuNames()
    for row in rows:
        found.add("n1", row)
    return found.gpus("n1")


@pytest.mark.parametrize(
    "said",
    ["GPU-1A", "gpu:gpu-1a", "pci:0000:c3:00", "0000:C3:00.0", "PCI:0000:c3:00", "0", "gpu0"],
)
def test_any_of_its_names_finds_it(said: str) -> None:
    gpus = names(LABELS, {"UUID": "GPU-2B", "gpu": "1", "pci_bus_id": "00000000:C4:00.0"})
    assert Gpu(index=0, uuid="GPU-1A", pci="0000:c3:00") == find(gpus, said)


@pytest.mark.parametrize("said", ["", "7", "GPU-9", "pci:0000:c9:00", "x" * 1_000, "\u00b2"])
def test_an_unknown_name_finds_none(said: str) -> None:
    assert None is find(names(LABELS), said)


def test_two_gpus_that_claim_one_name_are_found_by_neither() -> None:
    gpus = names(LABELS, {**LABELS, "UUID": "GPU-2B"})
    assert None is find(gpus, "0")
    assert "GPU-2B" == getattr(find(gpus, "GPU-2B"), "uuid", None)


def test_a_series_without_the_address_takes_nothing_away() -> None:
    assert names(LABELS) == names(LABELS, {"UUID": "GPU-1A", "gpu": "0"})


def test_labels_that_name_no_gpu_are_left_out() -> None:
    assert [] == names({"gpu": "0"}, {"UUID": "GPU-1"}, {"UUID": "GPU-1", "gpu": "\u00b2"})


def test_a_capture_says_what_its_nodes_are_made_of(tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "gpu.om").write_text(
        'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1A",pci_bus_id="00000000:C3:00.0",Hostname="n1"}'
        " 60 1772020800\n"
    )
    with open_capture(tmp_path, EngineSettings(), "UTC") as capture:
        (said,) = [one for one in capture.records() if isinstance(one, Hardware)]
    assert ("n1", [Gpu(index=0, uuid="GPU-1A", pci="0000:c3:00")]) == (said.node, said.gpus)
