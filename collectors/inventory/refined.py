"""A scheduler's listing with what only the site knows: places, protected nodes, what just ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from collectors.inventory.recent import Recent
from collectors.inventory.source import InventorySource, JobsFile
from telemetry.errors import SettingsError
from telemetry.hostlist import expand
from telemetry.ports import Clock
from telemetry.records import Allocation, NodeInfo
from telemetry.settings import InventorySettings

SAME_BOOT_S = 60.0


class Refined:
    """An `InventorySource` over another one.

    Raises SettingsError where `inventory.protected` is no host list.
    """

    def __init__(self, source: InventorySource, settings: InventorySettings, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._protected = _names(settings.protected)
        path = settings.topology_file
        self._topology = JobsFile(Path(path), clock) if path else None
        self._boots: dict[str, float] = {}  # of the nodes that are listed
        self._recent = Recent(settings.keep_ended_s)

    def listing(self) -> Allocation:
        """Raises what the source raises, and InputError where the topology file is none."""
        listing = self._source.listing()
        places: dict[str, NodeInfo] = {}
        if self._topology is not None:
            places = {info.name: info for info in self._topology.listing().nodes}
        nodes = [self._node(info, places.get(info.name)) for info in listing.nodes]
        self._boots = {info.name: info.boot_at for info in nodes if info.boot_at is not None}
        return self._recent.with_ended(replace(listing, nodes=nodes), self._clock.time_s())

    def _node(self, info: NodeInfo, place: NodeInfo | None) -> NodeInfo:
        """The file goes before the scheduler; nodes that only the file knows are none."""
        if place is not None:
            info = replace(
                info, rack=place.rack or info.rack, leaf=place.leaf or info.leaf,
                pod=place.pod or info.pod,
            )  # fmt: skip
        if info.boot_at is not None:
            info = replace(info, boot_at=self._boot(info.name, info.boot_at))
        return replace(info, protected=True) if info.name in self._protected else info

    def _boot(self, node: str, boot_at: float) -> float:
        """Schedulers reckon it anew each time, a second more or less: that is no news."""
        known = self._boots.get(node)
        if known is None or abs(boot_at - known) > SAME_BOOT_S:
            known = self._boots[node] = boot_at
        return known


def _names(lists: Sequence[str]) -> frozenset[str]:
    found: set[str] = set()
    for text in lists:
        names = expand(text)
        if isinstance(names, str):
            raise SettingsError(f"inventory.protected: {names}")
        found |= set(names)
    return frozenset(found)
