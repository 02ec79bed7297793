"""The inventory poller and a fold behind it: what the fold knows of what a scheduler said."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from collectors.inventory.metrics import InventoryMetrics
from collectors.inventory.poller import InventoryPoller, Target
from collectors.inventory.source import InventorySource
from collectors.inventory.state import InventoryState
from nodewarden.clock import SystemClock
from streams.inventory import Inventory
from telemetry.codec import decode
from telemetry.records import Arrived, Rejected
from telemetry.settings import EngineSettings, InventorySettings
from telemetry.testing import MemoryPublisher
from telemetry.topics import TELEMETRY
from tests.folding import fresh

WAIT_MAX_S = 60.0
SCRIPTS = Path(__file__).parents[1] / "deploy" / "local"
PLAIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Followed:
    """A real scheduler's inventory, told to a fold in memory. `look` asks the source once."""

    def __init__(self, source: InventorySource) -> None:
        self.clock = SystemClock()
        self.metrics = InventoryMetrics()
        self._publisher = MemoryPublisher()
        self._fold = fresh()
        self._read = 0
        self._poller = InventoryPoller(
            source, self._publisher, InventoryState(self._publisher, {}, 900_000),
            Target("main", 0), EngineSettings, "1", InventorySettings(poll_s=0.001), self.clock,
            self.metrics,
        )  # fmt: skip
        self._poller.start()
        self._fold_all()

    def look(self) -> Inventory:
        """Ask, tell, fold."""
        time.sleep(0.01)
        self._poller.step()
        self._fold_all()
        return self.inventory

    def until(self, holds: Callable[[Inventory], bool]) -> Inventory:
        """Look again and again until it holds of what the fold knows."""
        end_s = time.monotonic() + WAIT_MAX_S
        while not holds(self.look()):
            assert time.monotonic() < end_s, (self.fault, self.states(), self.jobs())
            time.sleep(0.2)
        return self.inventory

    @property
    def inventory(self) -> Inventory:
        """The fold's view."""
        return self._fold.inventory

    @property
    def fault(self) -> str:
        """Why the source gave no listing."""
        return self._poller.fault

    def states(self) -> Mapping[str, str]:
        """Node -> the scheduler's word for it."""
        return {node.name: node.state for node in self.inventory.snapshot().nodes}

    def jobs(self) -> Mapping[str, list[str]]:
        """Running job -> the nodes that it holds now."""
        now_s = self.clock.time_s()
        return {
            job: list(self.inventory.job_nodes(job, now_s))
            for job, _, _ in self.inventory.running_jobs(now_s)
        }

    def _fold_all(self) -> None:
        told = self._publisher.of(TELEMETRY)
        for sent in told[self._read :]:
            record = decode(sent.value or b"", "test")
            assert not isinstance(record, Rejected), record
            self._fold.step(Arrived(self._read, self.clock.time_s(), record))
            self._read += 1
