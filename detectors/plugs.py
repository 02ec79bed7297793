"""Which switch a node's port is plugged into, and whether it is the switch that falls.

In a fabric of rails a node's ports go to different switches, so no `leaf` of the node tells which
of its neighbours share one. The switches' own lines do.
"""

from __future__ import annotations

from typing import Any

import msgspec

NODES_MIN = 3  # so many nodes behind one switch are no longer one node's link
TOGETHER_S = 60.0
HOLD_S = 600.0  # a switch that boots drops its ports several times
SWITCHES_MAX = 4_096
NODES_MAX = 1_024  # of one switch


class Fallen(msgspec.Struct):
    """One switch: when the links of its nodes fell last, and since when it is the switch."""

    nodes: dict[str, float] = {}
    shared_s: float | None = None


class Plugs:
    """What switches have told; the longest silent goes first where there is no room."""

    def __init__(self, ports_max: int) -> None:
        self._ports_max = ports_max
        self._switch: dict[tuple[str, str], str] = {}
        self._fallen: dict[str, Fallen] = {}

    def fell(self, switch: str, node: str, entity: str, at_s: float) -> bool:
        """Take a drop that a switch tells of; whether it is the switch's and not the node's."""
        self._switch.pop((node, entity), None)
        self._switch[node, entity] = switch
        if len(self._switch) > self._ports_max:
            del self._switch[next(iter(self._switch))]
        fallen = self._fallen.pop(switch, None) or Fallen()
        self._fallen[switch] = fallen
        if len(self._fallen) > SWITCHES_MAX:
            del self._fallen[next(iter(self._fallen))]
        near = {n: t for n, t in fallen.nodes.items() if n != node and at_s - t <= TOGETHER_S}
        fallen.nodes = dict([*near.items(), (node, at_s)][-NODES_MAX:])
        if len(fallen.nodes) >= NODES_MIN or self._holds(fallen, at_s):
            fallen.shared_s = at_s
            return True
        return False

    def is_shared(self, node: str, entity: str, at_s: float) -> bool:
        """Whether what a node tells of its own port belongs to a switch that falls."""
        fallen = self._fallen.get(self._switch.get((node, entity), ""))
        return fallen is not None and self._holds(fallen, at_s)

    def nodes(self, switch: str) -> int:
        """How many nodes' links to it fell together."""
        return len(self._fallen[switch].nodes)

    def _holds(self, fallen: Fallen, at_s: float) -> bool:
        return fallen.shared_s is not None and abs(at_s - fallen.shared_s) <= HOLD_S

    def snapshot(self) -> Any:
        """Plain rows."""
        switches = [[*key, switch] for key, switch in self._switch.items()]
        fallen = [[switch, msgspec.to_builtins(said)] for switch, said in self._fallen.items()]
        return {"switches": switches, "fallen": fallen}

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        self._switch = {(node, entity): switch for node, entity, switch in state["switches"]}
        self._fallen = {switch: msgspec.convert(said, Fallen) for switch, said in state["fallen"]}
