"""What the node is made of: said at start, on change and every ten minutes.

Cheap facts are read anew each time, so a driver that changes under the running agent shows at the
next look. `nvidia-smi` costs a driver's initialisation: it is asked only where no exporter names
the GPUs, seldom, and not while the machine boots.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collectors.kernel.events import read_pci
from collectors.missing import missing_reason
from telemetry.codec import name_fault
from telemetry.errors import SourceUnavailable
from telemetry.ports import Clock
from telemetry.records import Gpu, Hardware, Port
from telemetry.tools import Tools

SOURCE = "host"
FACT_BYTES = 4_096
PORTS_MAX = 64
SMI_TIMEOUT_S = 20.0
SMI_EVERY_S = 600.0
BOOTING_S = 120.0
_DRIVERS = ("module/nvidia/version", "module/amdgpu/version")
_NO_SERIALS = frozenset({"", "none", "to be filled by o.e.m.", "not specified", "default string",
                         "system serial number", "0"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class HardwarePaths:
    """Where facts are found; `smi` "" asks no nvidia-smi."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    smi: str = "nvidia-smi"


class HardwareSource:
    """One node's facts.

    up, down   ports that the operator says are meant to be up, or not; of others nobody says
    """

    def __init__(
        self, paths: HardwarePaths, node: str, boot_id: str, up: Sequence[str],
        down: Sequence[str], tools: Tools, clock: Clock, every_s: float,
    ) -> None:  # fmt: skip
        self._paths, self._node, self._boot_id = paths, node, boot_id
        self._up, self._down = frozenset(up), frozenset(down)
        self._tools, self._clock, self._every_s = tools, clock, every_s
        self._aliases: list[str] | None = None  # a look-up may take a resolver's time-out: once
        self._said: Hardware | None = None
        self._said_s = 0.0
        self._smi_gpus: list[Gpu] = []
        self._smi_s: float | None = None
        self.failures: list[str] = []

    def read(self, exporter_gpus: Sequence[Gpu]) -> Hardware | None:
        """The record where it is news or was not said for long, else None."""
        now_s = self._clock.monotonic_s()
        gpus = list(exporter_gpus) or self._gpus(now_s)
        if not gpus and self._said is not None:
            gpus = self._said.gpus  # an exporter that is away takes no GPU with it
        found = self._facts(gpus)
        news = self._said is None or _without_time(found) != _without_time(self._said)
        if not news and now_s - self._said_s < self._every_s:
            return None
        self._said, self._said_s = found, now_s
        return found

    def _facts(self, gpus: list[Gpu]) -> Hardware:
        sys = self._paths.sys
        if self._aliases is None:
            self._aliases = _aliases(self._node)
        serial = _fact(sys / "class/dmi/id/product_serial")
        ports, firmware = self._ports()
        return Hardware(
            at=self._clock.time_s(), node=self._node, source=SOURCE, started_at=0.0, seq=0,
            boot_id=self._boot_id,
            serial="" if serial.lower() in _NO_SERIALS else serial,
            aliases=self._aliases, gpus=gpus, ports=ports,
            driver=next((said for name in _DRIVERS if (said := _fact(sys / name))), ""),
            firmware=", ".join(sorted(firmware)), up_s=self._clock.monotonic_s(),
        )  # fmt: skip

    def _ports(self) -> tuple[list[Port], set[str]]:
        cards = self._paths.sys / "class/infiniband"
        ports: list[Port] = []
        firmware: set[str] = set()
        for card in _names(cards):
            said = _fact(cards / card / "fw_ver")
            firmware |= {f"{_fact(cards / card / 'board_id')} {said}".strip()} if said else set()
            for number in _names(cards / card / "ports"):
                name = f"{card}/{number}"
                if len(ports) < PORTS_MAX:
                    ports.append(
                        Port(
                            name=name,
                            should_be_up=self._wanted(name, card),
                            guid=_fact(cards / card / "node_guid"),
                            pci=read_pci((cards / card / "device").resolve().name) or "",
                        )
                    )
        return ports, firmware

    def _wanted(self, name: str, card: str) -> bool | None:
        if name in self._down or card in self._down:
            return False
        return True if name in self._up or card in self._up else None

    def _gpus(self, now_s: float) -> list[Gpu]:
        """As nvidia-smi lists them."""
        driver = (self._paths.sys / _DRIVERS[0]).exists()
        asked = self._smi_s is not None and now_s - self._smi_s < SMI_EVERY_S
        if not self._paths.smi or not driver or asked or now_s < BOOTING_S:
            return self._smi_gpus
        self._smi_s = now_s
        words = (self._paths.smi, "--query-gpu=index,uuid,pci.bus_id", "--format=csv")
        try:
            printed = self._tools.run(words, SMI_TIMEOUT_S)
        except SourceUnavailable as error:
            self.failures.append(str(error))
            return self._smi_gpus
        self._smi_gpus = _listed(printed)
        return self._smi_gpus


def _listed(printed: bytes) -> list[Gpu]:
    from collectors.smi import SmiGpu, read_csv  # noqa: PLC0415 - seldom needed, and not small

    return [
        Gpu(index=int(one.index), uuid=one.uuid, pci=one.pci)
        for one in read_csv(printed.splitlines(), "nvidia-smi")
        if isinstance(one, SmiGpu)
        and missing_reason(one.uuid) is None
        and one.index.isdecimal()
        and len(one.index) < 5
    ]


def _without_time(hardware: Hardware) -> tuple[object, ...]:
    return (hardware.serial, hardware.aliases, hardware.gpus, hardware.ports, hardware.driver,
            hardware.firmware)  # fmt: skip


def _aliases(node: str) -> list[str]:
    """What else the node is called, short and whole."""
    host, whole = socket.gethostname(), socket.getfqdn()
    names = {host, whole, host.partition(".")[0], node.partition(".")[0]}
    names -= {"localhost", "localhost.localdomain"}
    return sorted(name for name in names - {node, ""} if name_fault("alias", name) is None)


def boot_id(proc: Path) -> str:
    """The kernel's own name of this boot, "" where it tells none."""
    return _fact(proc / "sys/kernel/random/boot_id")


def _fact(path: Path) -> str:
    """One line of a small file, "" where there is none or it may not be read."""
    try:
        with path.open("rb") as file:
            text = file.read(FACT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    line = text.partition("\n")[0].strip("\x00 \t\r")
    return line if line.isprintable() and len(line) < 254 else ""


def _names(directory: Path) -> list[str]:
    try:
        return sorted(one.name for one in directory.iterdir())
    except OSError:
        return []
