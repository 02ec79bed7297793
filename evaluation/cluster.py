"""The simulated cluster: names, topology, hardware and the one job that runs on it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from telemetry.errors import SettingsError
from telemetry.records import Gpu, Job, JobNode, NodeInfo, Parallel, Port

ExtraPort = Literal["", "aux", "management"]

JOB = "train-1"
LEAF_NODES = 8
RACK_NODES = 4
POD_NODES = 64
PORTS = tuple(f"mlx5_{index}/1" for index in range(8))
STAGED_NODES_MIN = 24
STAGES = 4
_PCI_FIRST, _PCI_STEP = 0x1B, 0x0D
_NIC_PCI_FIRST = 0x20


@dataclass(frozen=True)
class Cluster:
    """`nodes` equal machines of `gpus` GPUs and 8 NIC ports; ports 2k and 2k+1 are one bond.

    extra_port   a ninth port: "aux" is meant to be down, "management" is none of the fabric
    """

    nodes: int
    gpus: int
    seed: int
    extra_port: ExtraPort = ""

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= 20_000:
            raise SettingsError(f"--nodes must be 1 to 20000, not {self.nodes}")
        if not 1 <= self.gpus <= 16:
            raise SettingsError(f"--gpus must be 1 to 16, not {self.gpus}")
        if self.seed < 0:
            raise SettingsError(f"--seed must not be negative, but is {self.seed}")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Node names, sorted."""
        width = max(3, len(str(self.nodes - 1)))
        return tuple(f"n{index:0{width}}" for index in range(self.nodes))

    @cached_property
    def index(self) -> dict[str, int]:
        """Node name -> position."""
        return {name: place for place, name in enumerate(self.names)}

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """Leaf of each node."""
        return tuple(f"leaf-{place // LEAF_NODES:02}" for place in range(self.nodes))

    @cached_property
    def stages(self) -> tuple[int, ...]:
        """Pipeline stage of each node: contiguous blocks, one stage in small clusters."""
        count = STAGES if self.nodes >= STAGED_NODES_MIN else 1
        return tuple(place * count // self.nodes for place in range(self.nodes))

    def node_infos(self) -> list[NodeInfo]:
        """Every node as the scheduler and the topology file list it."""
        return [
            NodeInfo(
                name=name,
                state="allocated",
                rack=f"rack-{place // RACK_NODES:03}",
                leaf=self.leaves[place],
                pod=f"pod-{place // POD_NODES}",
            )
            for place, name in enumerate(self.names)
        ]

    def ranks(self, place: int) -> list[int]:
        """Global ranks of a node: one a GPU."""
        return list(range(place * self.gpus, (place + 1) * self.gpus))

    def job(self, start_s: float, attempt: int = 0) -> Job:
        """The synchronous training job on all nodes."""
        stages = self.stages[-1] + 1
        return Job(
            id=JOB,
            name="pretrain",
            attempt=attempt,
            start=start_s,
            gpus_per_node=self.gpus,
            parallel=Parallel(tp=self.gpus, pp=stages, dp=max(1, self.nodes // stages)),
            nodes=[
                JobNode(name=name, since=start_s, ranks=self.ranks(place), stage=stage)
                for place, (name, stage) in enumerate(zip(self.names, self.stages, strict=True))
            ],
        )

    def gpu_list(self, place: int) -> list[Gpu]:
        """The GPUs of a node under their three names."""
        return [
            Gpu(index=gpu, uuid=self._uuid(place, gpu), pci=pci_address(gpu))
            for gpu in range(self.gpus)
        ]

    @cached_property
    def ports(self) -> tuple[str, ...]:
        """The names of the NIC ports of any node."""
        return (*PORTS, f"mlx5_{len(PORTS)}/1") if self.extra_port else PORTS

    @property
    def extra_port_place(self) -> int:
        """Position of the ninth port."""
        return len(PORTS)

    def port_names(self, renamed: bool) -> list[str]:
        """The ports as a node calls them; after a boot that renames they are others."""
        return (
            [f"mlx5_{index + 10}/1" for index in range(len(self.ports))]
            if renamed
            else [*self.ports]
        )

    def port_list(self, renamed: bool = False) -> list[Port]:
        """The NIC ports of any node."""
        names = self.port_names(renamed)
        said = [Port(name=name, should_be_up=True) for name in names[: len(PORTS)]]
        for name in names[len(PORTS) :]:
            fabric = self.extra_port == "aux"
            said.append(Port(name=name, should_be_up=not fabric, fabric=fabric))
        return said

    def serial(self, place: int) -> str:
        """The machine's serial number."""
        return f"SN{self._digest(place, 'serial')[:10].upper()}"

    def boot_id(self, place: int, boots: int = 0) -> str:
        """The kernel's boot id, in the form of /proc/sys/kernel/random/boot_id."""
        return _grouped(self._digest(place, f"boot{boots or ''}"))

    def _uuid(self, place: int, gpu: int) -> str:
        return f"GPU-{_grouped(self._digest(place, f'gpu{gpu}'))}"

    def _digest(self, place: int, what: str) -> str:
        return hashlib.sha256(f"{self.seed}/{self.names[place]}/{what}".encode()).hexdigest()


def pci_address(gpu: int) -> str:
    """PCI address of a GPU by its index, the same in every node."""
    return f"0000:{_PCI_FIRST + gpu * _PCI_STEP:02x}:00"


def nic_pci_address(port: int) -> str:
    """PCI address of a NIC port by its position, the same in every node."""
    return f"0000:{_NIC_PCI_FIRST + port * _PCI_STEP:02x}:00"


def _grouped(digest: str) -> str:
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))
