"""A GPU's three names: exporters say the UUID, the kernel the address, people the index. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from collectors.kernel.events import read_pci
from telemetry.codec import NAME_MAX
from telemetry.records import Gpu

NODES_MAX = 100_000
GPUS_MAX = 64  # of one node
INDEX_MAX = 1_024
UUID_LABELS = ("UUID", "gpu_uuid", "GPU_UUID", "uuid")
PCI_LABELS = ("pci_bus_id", "pci_id", "PCI_BUS_ID")
INDEX_LABELS = ("gpu", "gpu_index", "index")


class GpuNames:
    """What the labels of a site's series say of its GPUs."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, Gpu]] = {}

    def add(self, node: str, labels: Mapping[str, str]) -> None:
        """Take one series' labels; only those that tell UUID and index count."""
        uuid = next((labels[name] for name in UUID_LABELS if labels.get(name)), "")
        index = next((labels[name] for name in INDEX_LABELS if labels.get(name)), "")
        if not uuid or len(uuid) > NAME_MAX or not (index.isascii() and index.isdecimal()):
            return
        if len(index) > 4 or int(index) >= INDEX_MAX:
            return
        said = next((labels[name] for name in PCI_LABELS if labels.get(name)), "")
        pci = (read_pci(said) or "") if len(said) < 40 else ""
        known = self._nodes.get(node)
        if known is None:
            if len(self._nodes) >= NODES_MAX:
                return
            known = self._nodes[node] = {}
        if uuid in known:
            pci = pci or known[uuid].pci
        elif len(known) >= GPUS_MAX:
            return
        known[uuid] = Gpu(index=int(index), uuid=uuid, pci=pci)

    def nodes(self) -> Iterator[tuple[str, list[Gpu]]]:
        """Each node that is known, sorted, with its GPUs by index."""
        for node in sorted(self._nodes):
            yield node, self.gpus(node)

    def gpus(self, node: str) -> list[Gpu]:
        """The node's GPUs by index."""
        return sorted(self._nodes.get(node, {}).values(), key=lambda gpu: (gpu.index, gpu.uuid))


def find(gpus: list[Gpu], said: str) -> Gpu | None:
    """The one GPU that goes by this name: "GPU-1a2b...", "gpu:GPU-1a2b...", "pci:0000:c3:00",
    "00000000:C3:00.0", "3" or "gpu3"; None where none does, or more than one."""
    bare = said.strip()
    for prefix in ("gpu:", "pci:"):
        bare = bare.removeprefix(prefix)
    pci = read_pci(bare) if len(bare) < 40 else None
    index = bare.removeprefix("gpu")
    found = [
        gpu
        for gpu in gpus
        if gpu.uuid.lower() == bare.lower()
        or (pci is not None and gpu.pci == pci)
        or (index.isdecimal() and gpu.index == int(index[:9]))
    ]
    return found[0] if len(found) == 1 else None
