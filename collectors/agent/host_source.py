"""The machine itself: CPUs, pressure, swap, TCP, and the space of real file systems, into cells.

Read from /proc: the same figures by way of psutil cost more memory and time (docs/node-agent.md).
Network file systems are left out: asking one that hangs would hang. Load and free memory travel
with the NICs' frames, as those of every exporter do.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from collectors.agent.cells import Cells
from telemetry.metrics import BY_NAME

HOST = "host"
FILE_BYTES = 16_384
MOUNTS_BYTES_MAX = 262_144
MOUNTS_MAX = 32
_REAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs"})
_IN_MEMORY = frozenset({"/dev/shm", "/tmp"})  # noqa: S108 - where a full tmpfs ends training
_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")
_PRESSURE = (
    ("cpu", b"some", "host_cpu_pressure_seconds_total"),
    ("memory", b"full", "host_memory_pressure_seconds_total"),
    ("io", b"full", "host_io_pressure_seconds_total"),
)


@dataclass(frozen=True, slots=True)
class Mount:
    """One file system; `path` is how the host calls the place."""

    device: str
    path: str


@dataclass(slots=True)
class HostRead:
    """One round; `failures` says which file system did not answer and why."""

    failures: list[str] = field(default_factory=list)


class HostSource:
    """The machine that `proc` and `sys` show."""

    def __init__(self, sys: Path, proc: Path) -> None:
        self._sys, self._proc = sys, proc
        # In a container that has the host's /proc elsewhere, the host's files are under process 1.
        self._root = "" if proc == Path("/proc") else str(proc / "1" / "root")
        self._cpu: tuple[int, int] | None = None  # busy and all, in ticks

    def read(self, cells: Cells) -> HostRead:
        """One round; what the kernel does not tell is absent, never zero."""
        done = HostRead()
        self._cpus(cells)
        for name, word, metric in _PRESSURE:
            self._pressure(self._content(f"pressure/{name}"), word, metric, cells)
        vmstat = b"\n" + self._content("vmstat")
        _add(cells, "host_swap_in_pages_total", _word(vmstat, b"\npswpin "))
        _add(cells, "host_tcp_retransmitted_segments_total", self._retransmitted())
        for mount in self.mounts():
            self._space(mount, cells, done)
            self._errors(mount, cells)
        return done

    def mounts(self) -> list[Mount]:
        """Each real file system once, where it is mounted first."""
        words = "self/mounts" if not self._root else "1/mounts"
        found: dict[str, Mount] = {}
        for line in self._content(words, MOUNTS_BYTES_MAX).split(b"\n"):
            parts = line.split(b" ", 3)
            if len(parts) < 4:
                continue
            device, path, kind = (_unescaped(part) for part in parts[:3])
            shm = kind == "tmpfs" and path in _IN_MEMORY
            if (kind in _REAL or shm) and path.isprintable() and len(found) < MOUNTS_MAX:
                found.setdefault(path if shm else device, Mount(device, path))
        return list(found.values())

    def _cpus(self, cells: Cells) -> None:
        """Busy is all but idle and waiting for disks, between two rounds."""
        first = self._content("stat").partition(b"\n")[0].split()
        ticks = [int(word) for word in first[1:9] if word.isdigit() and len(word) < 18]
        if first[:1] != [b"cpu"] or len(ticks) < 5:
            return
        now = (sum(ticks) - ticks[3] - ticks[4], sum(ticks))
        before, self._cpu = self._cpu, now
        if before is None or now[1] <= before[1] or now[0] < before[0]:
            return
        share = min(1.0, (now[0] - before[0]) / (now[1] - before[1]))
        _add(cells, "host_cpu_busy_percent", 100.0 * share)

    def _pressure(self, content: bytes, word: bytes, metric: str, cells: Cells) -> None:
        line = (b"\n" + content).partition(b"\n" + word + b" ")[2].partition(b"\n")[0]
        total_us = _word(b" " + line, b" total=")
        _add(cells, metric, total_us / 1e6 if total_us is not None else None)

    def _retransmitted(self) -> float | None:
        """The names stand in one line, the values in the next."""
        rows = [
            one.split() for one in self._content("net/snmp").split(b"\n") if one[:5] == b"Tcp: "
        ]
        if len(rows) != 2 or len(rows[0]) != len(rows[1]) or b"RetransSegs" not in rows[0]:
            return None
        return _number(rows[1][rows[0].index(b"RetransSegs")])

    def _space(self, mount: Mount, cells: Cells, done: HostRead) -> None:
        """Free for whoever is not root, of what such a user could fill; as df reckons."""
        try:
            seen = os.statvfs(self._root + mount.path)
        except OSError as error:
            done.failures.append(f"{mount.path}: {error.strerror}; its space is not known")
            return
        usable = seen.f_blocks - seen.f_bfree + seen.f_bavail
        if usable > 0:
            share = min(1.0, seen.f_bavail / usable)
            cells.add(BY_NAME["disk_filesystem_free_ratio"], mount.path, share)

    def _errors(self, mount: Mount, cells: Cells) -> None:
        """What ext4 counts; other file systems only tell the kernel's log."""
        device = os.path.basename(os.path.realpath(self._root + mount.device))
        path = self._sys / "fs" / "ext4" / device / "errors_count"
        errors = _number(_content(path, 32).strip())
        if errors is not None:
            cells.add(BY_NAME["disk_filesystem_errors_total"], mount.path, errors)

    def _content(self, name: str, size: int = FILE_BYTES) -> bytes:
        return _content(self._proc / name, size)


def _content(path: Path, size: int) -> bytes:
    """The kernel hands out long files in pieces."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    content = b""
    try:
        while len(content) < size and (piece := os.read(file, size - len(content))):
            content += piece
    except OSError:
        return b""  # a kernel without pressure figures opens the file and does not read it
    finally:
        os.close(file)
    return content


def _word(content: bytes, before: bytes) -> float | None:
    return _number(content.partition(before)[2].split(None, 1)[0:1])


def _number(word: bytes | list[bytes]) -> float | None:
    digits = b"".join(word) if isinstance(word, list) else word
    return float(digits) if digits.isdigit() and len(digits) < 20 else None


def _add(cells: Cells, name: str, value: float | None) -> None:
    if value is not None:
        cells.add(BY_NAME[name], "node", value)


def _unescaped(word: bytes) -> str:
    found = _OCTAL.sub(lambda octal: bytes([int(octal[1], 8)]), word)
    return found.decode("utf-8", "replace")
