"""What is read at fixed moments: exporters, NICs, hardware. Each in a thread of its own.

A source that hangs holds up nobody but itself, and is never asked twice at once: a round that comes
while the one before it runs is left out and counted.
"""

from __future__ import annotations

import threading
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import structs

from collectors.agent.cells import Cells
from collectors.agent.counts import Counts
from collectors.agent.hardware import HardwareSource
from collectors.agent.host_source import HOST, HostSource
from collectors.agent.nic_source import NicSource
from collectors.agent.scrape import Exporters
from telemetry.ports import Clock
from telemetry.records import Record, Rejected

if TYPE_CHECKING:
    from collectors.agent.found_files import FoundPosition

GPU, NIC = "gpu", "nic"
RESULTS_MAX = 64


@dataclass(slots=True)
class Reading:
    """What one round brought; `notes` are sentences for the operator.

    position   behind these records, of files that are read once
    """

    records: list[Record] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    position: FoundPosition | None = None


class Rounds:
    """The rounds themselves; every method is called by one thread at a time."""

    def __init__(
        self, node: str, boot_id: str, exporters: Exporters, nics: NicSource | None,
        hardware: HardwareSource, counts: Counts, clock: Clock, nic_interval_s: float,
        host: HostSource | None = None, host_interval_s: float = 0.0,
    ) -> None:  # fmt: skip
        self._node, self._boot_id = node, boot_id
        self._exporters, self._nics, self._hardware = exporters, nics, hardware
        self._counts, self._clock = counts, clock
        self._nic_interval_s = nic_interval_s
        self._host, self._host_interval_s = host, host_interval_s
        self._scraped: tuple[float, Cells] | None = None

    def gpu(self) -> Reading:
        """Every exporter once."""
        at_s = self._clock.time_s()
        cells = Cells()
        done = self._exporters.read(cells, at_s)
        self._scraped = (at_s, cells)
        counts = self._counts
        counts.add("scrapes", done.scrapes)
        counts.add("scrapes_left_out", done.skipped)
        counts.add("errors", len(done.failures), "exporter")
        counts.add("rejected", done.broken, "exporter")
        events = [structs.replace(event, boot_id=self._boot_id) for event in done.events]
        counts.add("events", len(events), "exporter")
        reading = Reading([*events], done.rejected, done.failures)
        frame = cells.frame(GPU, self._node, self._boot_id, at_s)
        if frame is not None:
            reading.records.append(frame)
            counts.succeeded(GPU, at_s)
        return reading

    def nic(self) -> Reading:
        """Counters of this node, and what exporters told of its NICs since the round before."""
        at_s = self._clock.time_s()
        cells, reading = Cells(), Reading()
        if self._nics is not None:
            done = self._nics.read(cells)
            self._counts.add("errors", len(done.failures), NIC)
            self._counts.add("rejected", done.broken, NIC)
            reading.rejected, reading.notes = done.rejected, done.failures
        return self._framed(NIC, self._nic_interval_s, cells, at_s, reading)

    def host(self) -> Reading:
        """The machine, and what exporters told of it since the round before."""
        at_s = self._clock.time_s()
        cells, reading = Cells(), Reading()
        if self._host is not None:
            reading.notes = self._host.read(cells).failures
            self._counts.add("errors", len(reading.notes), HOST)
        return self._framed(HOST, self._host_interval_s, cells, at_s, reading)

    def _framed(
        self, source: str, interval_s: float, cells: Cells, at_s: float, reading: Reading
    ) -> Reading:
        scraped = self._scraped
        if scraped is not None and at_s - scraped[0] < interval_s:
            cells.join(scraped[1], source)
        frame = cells.frame(source, self._node, self._boot_id, at_s)
        if frame is not None:
            reading.records.append(frame)
            self._counts.succeeded(source, at_s)
        return reading

    def hardware(self) -> Reading:
        """The node's facts, where they are news."""
        found = self._hardware.read(self._exporters.gpus())
        failures, self._hardware.failures = self._hardware.failures, []
        self._counts.add("errors", len(failures), "hardware")
        return Reading([found] if found is not None else [], notes=failures)


class Worker:
    """One thread that does one kind of round when it is told to."""

    def __init__(
        self, name: str, work: Callable[[], Reading], done: Callable[[Reading], None]
    ) -> None:
        self._work, self._done = work, done
        self._wanted = threading.Event()
        self._busy = False
        self._ended = False
        self.error: Exception | None = None  # one of ours, which ended the thread
        # A daemon: a driver that hangs must not keep the agent from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def trigger(self) -> bool:
        """Start a round; False where the one before it still runs."""
        if self._busy:
            return False
        self._busy = True
        self._wanted.set()
        return True

    def end(self) -> None:
        """No further rounds."""
        self._ended = True
        self._wanted.set()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._ended:
                return
            try:
                self._done(self._work())
            except Exception as error:  # noqa: BLE001 - the top of a thread; the loop raises it
                self.error = error
                return
            self._busy = False


class Results:
    """From the workers' threads to the loop's; the oldest goes where nobody takes them."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: deque[Reading] = deque(maxlen=RESULTS_MAX)

    def put(self, reading: Reading) -> None:
        """Called by a worker."""
        self._waiting.append(reading)
        self._wake()

    def take(self) -> list[Reading]:
        """Called by the loop."""
        taken: list[Reading] = []
        while self._waiting:
            taken.append(self._waiting.popleft())
        return taken


class Phase:
    """When a source is due: every interval, at a moment of it that the node's name decides.

    Nodes that start together do not all speak at once, and a node always does at its own moment.
    """

    def __init__(self, node: str, source: str, interval_s: float) -> None:
        self.interval_s = interval_s
        share = zlib.crc32(f"{node}/{source}".encode()) / 2**32
        self._offset_s = share * interval_s

    def wait_s(self, now_s: float, *, first: bool = False) -> float:
        """From a wall-clock time to the next moment: at least half an interval but for the first,
        so that a wake-up just before the moment is not followed by another one."""
        if first:
            return (self._offset_s - now_s) % self.interval_s
        turns = round((now_s - self._offset_s) / self.interval_s)
        return self._offset_s + (turns + 1) * self.interval_s - now_s
