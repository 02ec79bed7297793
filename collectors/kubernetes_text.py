"""What `kubectl` prints for people: describe, tables of nodes, condition messages. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from collectors.flat import Flat, rejected, text_of
from collectors.kubernetes import node_flat, read_conditions
from collectors.slurm_objects import Place, listing_object
from collectors.text_cursor import Cursor

Stops = Callable[[str], bool]
_ROW = re.compile(
    r"([a-z0-9][a-z0-9.\-]{0,252}) +([A-Za-z,]{3,80}) +(\S{1,200}) +(\S{1,20}) +(v\S{1,60})\s*"
)


def read_node_table(place: Place, cursor: Cursor, stops: Stops) -> Iterator[Flat]:
    """`kubectl get nodes`: NAME STATUS ROLES AGE VERSION."""
    cursor.next()
    count = bad = 0
    while cursor and cursor.line.strip() and not stops(cursor.line):
        row = _ROW.match(cursor.line)
        if row is None:
            bad += 1
            yield rejected(place.file, "no row of a node", cursor.line, cursor.number)
        else:
            count += 1
            words = row[2].split(",")
            status = {"Ready": "True", "NotReady": "False"}.get(words[0], "Unknown")
            conditions = read_conditions([{"type": "Ready", "status": status}])
            yield node_flat(place, row[1], conditions, "SchedulingDisabled" in words, [])
        cursor.next()
    yield listing_object(place, "nodes", count, f"{bad} lines cannot be read" if bad else "")


_FIELD = re.compile(r"([A-Z][A-Za-z ]{1,40}):(?:\s+(.*))?")
_TAINT = re.compile(
    r"\s*([A-Za-z0-9./\-]{1,253})(?:=[^:\s]{0,63})?:(?:NoSchedule|NoExecute|PreferNoSchedule)\s*"
)
_DATE = r"((?:[A-Z][a-z]{2}, )\d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4})"
_CONDITION = re.compile(
    rf"  ([A-Z][A-Za-z]{{2,80}})\s+(True|False|Unknown)\s+{_DATE}\s+{_DATE}\s+(\S{{1,253}})\s*(.*)"
)
_LINES_MAX = 2_000


def read_describe(place: Place, cursor: Cursor, stops: Stops) -> Iterator[Flat]:
    """`kubectl describe node`, whole or the part with taints and conditions."""
    fields: dict[str, str] = {}
    taints: list[str] = []
    rows: list[dict[str, str]] = []
    key, first, number, lines = "", cursor.line, cursor.number, 0
    while cursor and lines < _LINES_MAX:
        line = cursor.line
        field = _FIELD.fullmatch(line)
        ends = field[1] == "Name" if field is not None else stops(line)
        if lines and ends:
            break
        if field is not None:
            key = field[1]
            fields.setdefault(key, (field[2] or "").strip())
        if key == "Taints":
            taint = _TAINT.fullmatch(line.removeprefix("Taints:"))
            taints += [taint[1]] if taint else []
        row = _CONDITION.match(line) if key == "Conditions" else None
        if row is not None and len(rows) < 256:
            rows.append(dict(zip(_CONDITION_KEYS, row.groups(), strict=True)))
        cursor.next()
        lines += 1
    if not rows and not taints and "Name" not in fields:
        yield rejected(place.file, "no node's conditions", first, number)
        return
    cordoned = fields.get("Unschedulable", "").lower() == "true"
    yield node_flat(place, fields.get("Name", ""), read_conditions(rows), cordoned, taints[:64])


_CONDITION_KEYS = (
    "type", "status", "lastHeartbeatTime", "lastTransitionTime", "reason", "message",
)  # fmt: skip

_MESSAGE = re.compile(
    r"ErrorCode:(\S{1,100}) GPU:(\d{1,4})(?: PCI:([0-9A-Fa-f:.]{1,20}))?(?: GPU_UUID:(\S{1,80}))?"
    r"(.{0,2000}?) ?Recommended Action=([A-Z_]{1,64});"
)


def read_condition_messages(place: Place, cursor: Cursor, _: Stops) -> Iterator[Flat]:
    """One line of NVSentinel's node conditions; it may name several faults."""
    line, number = cursor.line, cursor.number
    cursor.next()
    found = False
    for hit in _MESSAGE.finditer(line):
        found = True
        yield {
            "file": place.file, "type": "health_event", "form": place.form, "node": "",
            "check": "", "healthy": False, "fatal": None, "codes": [hit[1]],
            "gpu_index": int(hit[2]), "gpu_uuid": hit[4] or "",
            "pci": (hit[3] or "").lower().partition(".")[0], "action": hit[6],
            "text": text_of(hit[5].strip()),
        }  # fmt: skip
    if not found:
        yield rejected(place.file, "no condition message", line, number)
