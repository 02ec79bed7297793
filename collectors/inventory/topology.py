"""`scontrol show topology` into where each node is: leaf switch, block, pod. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from telemetry.errors import ListingIncomplete
from telemetry.hostlist import expand

_FIELD = re.compile(r"(\w{1,40})=(\S*)")


class Where(NamedTuple):
    """Places of a node; "" where nobody said."""

    rack: str = ""
    leaf: str = ""
    pod: str = ""


def read_topology(text: str) -> dict[str, Where]:
    """Node -> where it is.

    Switches of level 0 are leaves, those of level 1 pods; a block (NVLink domain) is a rack. A
    node that hangs at two leaves, as behind rails, has none: which of them is meant, nobody said.
    Raises ListingIncomplete where a line of a switch or block cannot be read.
    """
    places: dict[str, dict[str, set[str]]] = {}
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line[:1_000_000]))
        kind = _kind(fields)
        if kind is None:
            continue
        names = expand(fields.get("Nodes", ""))
        if isinstance(names, str):
            raise ListingIncomplete(f"scontrol show topology: {names}")
        switch = fields.get("SwitchName") or fields.get("BlockName", "")
        for name in names:
            places.setdefault(name, {}).setdefault(kind, set()).add(switch)
    return {name: _where(found) for name, found in places.items()}


def _kind(fields: dict[str, str]) -> str | None:
    if fields.get("BlockName"):
        return "rack"
    if not fields.get("SwitchName"):
        return None
    return {"0": "leaf", "1": "pod"}.get(fields.get("Level", ""))


def _where(found: dict[str, set[str]]) -> Where:
    one = {kind: next(iter(names)) for kind, names in found.items() if len(names) == 1}
    return Where(rack=one.get("rack", ""), leaf=one.get("leaf", ""), pod=one.get("pod", ""))
