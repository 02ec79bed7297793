"""A node's NIC counters from sysfs, `ethtool -S` and `rdma statistic` into cells.

Only files whose names the catalogue knows are read: on some cards a counter costs a command to the
firmware. Where they are is looked up anew now and then, ports come and go seldom.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from collectors.agent.cells import Cells
from collectors.agent.patience import Patience
from collectors.nic import NicReading, read_json, read_lines
from telemetry.errors import SourceUnavailable
from telemetry.metrics import recognise
from telemetry.ports import Clock
from telemetry.records import Rejected
from telemetry.tools import Tools

FILES_MAX = 8_192
FILE_BYTES = 256
LOOK_AGAIN_S = 60.0
TOOL_TIMEOUT_S = 2.0
INTERFACES_MAX = 32
REJECTED_MAX = 20
_PORT_FILES = ("state", "phys_state", "rate")


@dataclass(slots=True)
class NicRead:
    """One round. `failures` says which tool did not work and why."""

    rejected: list[Rejected] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    broken: int = 0
    cells: int = 0


@dataclass(frozen=True, slots=True)
class NicPaths:
    """Where the kernel shows itself, and which tools are asked.

    ethtool, rdma   the tool's name or path, "" asks none
    """

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    ethtool: str = "ethtool"
    rdma: str = ""


class NicSource:
    """The NICs of one node."""

    def __init__(self, paths: NicPaths, tools: Tools, clock: Clock) -> None:
        self._paths, self._tools, self._clock = paths, tools, clock
        self._files: list[tuple[str, str]] = []  # path, and as the parser wants it
        self._interfaces: list[str] = []
        self._looked_s: float | None = None
        self._patience: dict[str, Patience] = {}

    def read(self, cells: Cells) -> NicRead:
        """One round; a counter that cannot be read is absent, never zero."""
        now_s = self._clock.monotonic_s()
        if self._looked_s is None or now_s - self._looked_s >= LOOK_AGAIN_S:
            self._look()
            self._looked_s = now_s
        done = NicRead()
        self._take(read_lines(self._contents(), "sysfs"), cells, done)
        for interface in self._interfaces if self._paths.ethtool else ():
            self._ethtool(interface, cells, done)
        if self._paths.rdma:
            words = (self._paths.rdma, "-j", "statistic", "show")
            printed = self._printed("rdma", words, done)
            if printed:
                self._take(read_json(printed, "rdma"), cells, done)
        self._host(cells)
        return done

    def _look(self) -> None:
        sys = self._paths.sys
        self._files = list(islice(_files(sys), FILES_MAX))
        cards = sys / "class" / "infiniband"
        names = {net for card in _names(cards) for net in _names(cards / card / "device" / "net")}
        self._interfaces = sorted(names)[:INTERFACES_MAX]

    def _contents(self) -> Iterator[bytes]:
        for path, name in self._files:
            content = _content(path)
            if content:
                yield f"{name}\t".encode() + content.partition(b"\n")[0]

    def _ethtool(self, interface: str, cells: Cells, done: NicRead) -> None:
        words = (self._paths.ethtool, "-S", interface)
        printed = self._printed(interface, words, done)
        if printed:
            lines = [f"# ethtool -S {interface}".encode(), *printed.splitlines()]
            self._take(read_lines(lines, f"ethtool {interface}"), cells, done)

    def _printed(self, key: str, words: tuple[str, ...], done: NicRead) -> bytes:
        patience = self._patience.setdefault(key, Patience(longest_s=300.0))
        if not patience.is_over(self._clock.monotonic_s()):
            return b""
        try:
            printed = self._tools.run(words, TOOL_TIMEOUT_S)
        except SourceUnavailable as error:
            patience.failed(self._clock.monotonic_s())
            done.failures.append(str(error))
            return b""
        patience.worked()
        return printed

    def _take(
        self, said: Iterator[NicReading | Rejected], cells: Cells, done: NicRead
    ) -> None:  # fmt: skip
        for one in said:
            if isinstance(one, Rejected):
                done.broken += 1
                if len(done.rejected) < REJECTED_MAX:
                    done.rejected.append(one)
            elif one.metric is not None and one.entity and one.device == one.metric.device:
                cells.add(one.metric, one.entity, one.value)
                done.cells += 1

    def _host(self, cells: Cells) -> None:
        """Load and free memory, as node_exporter names them."""
        load = _content(str(self._paths.proc / "loadavg")).split(b" ", 1)[0]
        memory = _content(str(self._paths.proc / "meminfo"), 4_096)
        available = memory.partition(b"\nMemAvailable:")[2].split(None, 1)[:1]
        for name, word, scale in (
            ("node_load1", load, 1.0),
            ("node_memory_MemAvailable_bytes", b"".join(available), 1024.0),
        ):
            metric = recognise(name)
            digits = word.replace(b".", b"", 1)
            if metric is not None and digits.isdigit() and len(digits) < 18:
                cells.add(metric, "node", float(word) * scale)


def _files(sys: Path) -> Iterator[tuple[str, str]]:
    """Counter files and, of InfiniBand ports, their state."""
    cards = sys / "class" / "infiniband"
    for card in _names(cards):
        for port in _names(cards / card / "ports"):
            of_port = cards / card / "ports" / port
            for name in _PORT_FILES:
                yield str(of_port / name), f"{card}/ports/{port}/{name}"
            for kind in ("counters", "hw_counters"):
                for name in _names(of_port / kind):
                    if recognise(name) is not None:
                        yield str(of_port / kind / name), f"{card}/ports/{port}/{kind}/{name}"
    nets = sys / "class" / "net"
    for net in _names(nets):
        if not (nets / net / "device").exists():
            continue  # bridges, tunnels and loopback are no hardware
        for name in _names(nets / net / "statistics"):
            if recognise(name) is not None:
                yield str(nets / net / "statistics" / name), f"net/{net}/statistics/{name}"


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []  # no such hardware, or it has just gone


def _content(path: str, size: int = FILE_BYTES) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, size)
    except OSError:
        return b""  # the kernel knows the counter and the card does not
    finally:
        os.close(file)
