"""Who is who through boots and renames: aliases, serial numbers, devices; from hardware records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from telemetry.records import Hardware

ALIASES_MAX = 16  # of one node
SERIAL_MIN = 4  # shorter ones are placeholders
NO_SERIALS = ("default", "filled", "none", "not ", "serial", "system", "unknown", "n/a", "0000")


class Identities:
    """Built from the newest hardware record of each node, so bounded as these are."""

    def __init__(self) -> None:
        self._records: dict[str, Hardware] = {}
        self._devices: dict[str, dict[str, str]] = {}  # node -> entity -> device
        self._aliases: dict[str, dict[str, None]] = {}  # alias -> nodes that claim it
        self._serials: dict[str, dict[str, None]] = {}  # serial -> nodes that show it

    def take(self, record: Hardware) -> None:
        """What a node says of itself now replaces what it said before."""
        node, before = record.node, self._records.get(record.node)
        if before is not None:
            for alias in before.aliases[:ALIASES_MAX]:
                _forget(self._aliases, alias, node)
            _forget(self._serials, before.serial, node)
        self._records[node] = record
        if before is None or (before.gpus, before.ports) != (record.gpus, record.ports):
            self._devices[node] = _devices(record)
        for alias in record.aliases[:ALIASES_MAX]:
            self._aliases.setdefault(alias, {})[node] = None
        self._serials.setdefault(record.serial, {})[node] = None

    def node_of(self, name: str) -> str:
        """The one node that claims the alias; a name that several claim stays as it is."""
        claimed = self._aliases.get(name, {})
        return next(iter(claimed)) if len(claimed) == 1 else name

    def device(self, node: str, entity: str, heard: Mapping[str, float]) -> str:
        """See `View.device`; `heard` is the newest arrival of each node."""
        if entity:
            return self._devices.get(node, {}).get(entity, "")
        record = self._records.get(node)
        if record is None or not _is_serial(record.serial):
            return ""
        # A machine that was renamed has left its old name; two that speak at once share a label.
        others = [other for other in self._serials[record.serial] if other != node]
        if any(self._overlap(record, self._records[other], heard) for other in others):
            return ""
        return f"serial:{record.serial}"

    def holds(self, node: str, device: str) -> bool:
        """See `View.holds`."""
        return device in self._devices.get(node, {}).values()

    def _overlap(self, one: Hardware, other: Hardware, heard: Mapping[str, float]) -> bool:
        younger, elder = (one, other) if one.started_at >= other.started_at else (other, one)
        return heard.get(elder.node, elder.at) > younger.started_at


def _forget(claims: dict[str, dict[str, None]], name: str, node: str) -> None:
    nodes = claims.get(name, {})
    nodes.pop(node, None)
    if not nodes:
        claims.pop(name, None)


def _devices(record: Hardware) -> dict[str, str]:
    named: dict[str, str] = {}
    for gpu in record.gpus:
        if gpu.uuid:
            named[f"gpu:{gpu.uuid}"] = f"gpu:{gpu.uuid}"
            if gpu.pci:
                named[f"pci:{gpu.pci}"] = f"gpu:{gpu.uuid}"
    for port in record.ports:
        number = port.name.partition("/")[2]
        kept = f"guid:{port.guid}" if port.guid else f"port:{port.pci}/{number}"
        if port.guid or port.pci:
            named[f"nic:{port.name}"] = kept
    # What two ports claim identifies neither.
    claims = Counter(device for entity, device in named.items() if entity.startswith("nic:"))
    return {entity: device for entity, device in named.items() if claims[device] < 2}


def _is_serial(serial: str) -> bool:
    lower = serial.lower()
    return len(serial) >= SERIAL_MIN and not any(word in lower for word in NO_SERIALS)
