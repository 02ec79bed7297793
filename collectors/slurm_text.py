"""Slurm's text: `sinfo` tables of every shape, `squeue`, `scontrol show`. Pure.

Each reader takes the cursor at its first line, leaves it behind its last one, and ends its listing
with a "listing" object: incomplete where a row could not be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from collectors.flat import Flat, count_of, rejected
from collectors.slurm_logs import is_said
from collectors.slurm_objects import (
    Gathered,
    Place,
    job_object,
    listing_object,
    node_object,
    nodes_of,
)
from collectors.text_cursor import Cursor
from telemetry.slurm_words import (
    NODE_WORDS,
    REASON_CUT,
    SUFFIXES,
    Reason,
    gpus,
    job_state,
    local_time,
    node_state,
    reason,
    reason_class,
    tres_gpus,
)

Stops = Callable[[str], bool]
_SIGNS = "".join(SUFFIXES)


def is_node_word(text: str) -> bool:
    """Whether `sinfo` could have printed it in its STATE column."""
    bare = text.rstrip(_SIGNS).upper()
    return bool(bare) and all(part in NODE_WORDS for part in bare.split("+"))


# -- sinfo as a table of blanks: PARTITION AVAIL TIMELIMIT NODES STATE NODELIST


def read_sinfo_table(place: Place, cursor: Cursor, stops: Stops) -> Iterator[Flat]:
    """Columns by their names; a cell holds no blank but the reason, which comes first or last."""
    header = cursor.line.split()
    cursor.next()
    gathered, bad = Gathered(place), 0
    while cursor and not stops(cursor.line):
        line, number, line_at = cursor.line, cursor.number, cursor.at
        cursor.next()
        if not line.strip():
            continue
        cells = _cells(header, line)
        if cells is None:
            if is_said(line):
                cursor.back(line_at, number)
                break
            bad += 1
            yield rejected(place.file, f"{len(line.split())} columns, the header has {len(header)}",
                           line, number)  # fmt: skip
            continue
        names = nodes_of(place, cells.get("NODELIST", ""), line, number)
        if isinstance(names, dict):
            bad += 1
            yield names
            continue
        for name in names:
            _gather(place, gathered, name, cells)
    yield from gathered.objects()
    only = "" if "STATE" in header else "only nodes with a reason are in it"
    yield _listing(place, gathered, bad, only)


def _cells(header: list[str], line: str) -> dict[str, str] | None:
    width = len(header) - 1
    last = header[0] == "REASON"  # which holds blanks, as no other column does
    cells = line.rsplit(maxsplit=width) if last else line.split(maxsplit=width)
    return dict(zip(header, cells, strict=True)) if len(cells) == len(header) else None


def _gather(place: Place, gathered: Gathered, name: str, cells: dict[str, str]) -> None:
    words = [cells["STATE"]] if "STATE" in cells else []
    partition = cells.get("PARTITION", "").rstrip("*")
    told = cells.get("REASON", "").strip()
    if told.lower() == "none":
        told = ""
    by = cells.get("USER", "").partition("(")[0].strip()
    why = None
    if told:
        why = Reason(told, reason_class(told), by if by not in ("", "Unknown") else None,
                     local_time(cells.get("TIMESTAMP", ""), place.tz))  # fmt: skip
    found = node_object(
        place, name, node_state(words), why, partitions=[partition] if partition else [],
        gpus=gpus(cells.get("GRES", "")), gpus_used=gpus(cells.get("GRES_USED", "")),
        reservations=[r for r in [cells.get("RESERVATION", "")] if r],
        aliases=[a for a in [cells.get("NODE_ADDR", ""), cells.get("HOSTNAMES", "")] if a],
        reason_cut=len(told) == REASON_CUT and "TIMESTAMP" in cells and "REASON" in cells
        and len(cells) == 4,
    )  # fmt: skip
    gathered.add(found, words)


def _listing(place: Place, gathered: Gathered, bad: int, only: str = "") -> Flat:
    fault = f"{bad} lines cannot be read" if bad else only
    if gathered.dropped:
        fault = f"{gathered.dropped} nodes too many"
    if not fault and not len(gathered):
        fault = "no node in it: a cluster has nodes"
    return listing_object(place, "nodes", len(gathered), fault)


# -- sinfo -o with a sign between the columns


def read_sinfo_columns(place: Place, cursor: Cursor, stops: Stops) -> Iterator[Flat]:
    """Rows "a|b |c" under a header; columns may occur twice, and a last one may be empty."""
    header = [cell.strip() for cell in cursor.line.split("|")]
    if header[-1] == "":
        header.pop()
    cursor.next()
    gathered, bad = Gathered(place), 0
    while cursor and not stops(cursor.line):
        line, number, line_at = cursor.line, cursor.number, cursor.at
        cursor.next()
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == len(header) + 1 and cells[-1] == "":
            cells.pop()
        if len(cells) != len(header):
            if is_said(line):
                cursor.back(line_at, number)
                break
            bad += 1
            yield rejected(place.file, f"{len(cells)} columns, the header has {len(header)}", line,
                           number)  # fmt: skip
            continue
        row = dict(zip(header, cells, strict=True))
        names = nodes_of(place, row.get("NODELIST") or row.get("HOSTNAMES", ""), line, number)
        if isinstance(names, dict):
            bad += 1
            yield names
            continue
        for name in names:
            _gather(place, gathered, name, row)
            words = [c for key, c in zip(header, cells, strict=True) if key == "STATE"]
            gathered.add(node_object(place, name, node_state(words)), words)
    yield from gathered.objects()
    yield _listing(place, gathered, bad)


# -- sinfo --Format=NodeHost:256,... without a header


def is_padded_row(line: str) -> bool:
    """A row of `sinfo --Format` with columns padded by blanks: node, ..., A/I/O/T, state."""
    return line[:1].isalnum() and "/" in line and "  " in line and _padded(line) is not None


def _padded(line: str) -> tuple[str, list[str], str] | None:
    """Node, the cells between, state."""
    cells = _GAPS.split(line.strip(" |"), 64)
    if not 3 <= len(cells) <= 64:
        return None
    at = next((i for i, cell in enumerate(cells) if _COUNTS.fullmatch(cell)), None)
    if at is None or at == 0 or at + 1 >= len(cells) or not is_node_word(cells[at + 1]):
        return None
    if not _NODE.fullmatch(cells[0]):
        return None
    return cells[0], cells[1:at] + cells[at + 2 :], cells[at + 1]


_GAPS = re.compile(r"[ |]+")
_COUNTS = re.compile(r"(?:[0-9]{1,9}/){3}[0-9]{1,9}")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,252}")


def read_padded(place: Place, cursor: Cursor, stops: Stops) -> Iterator[Flat]:
    """Rows until one is of another shape."""
    gathered, bad = Gathered(place), 0
    while cursor:
        line, number = cursor.line, cursor.number
        row = _padded(line)
        if row is None and (stops(line) or is_said(line)):
            break
        cursor.next()
        if row is None:
            if line.strip():
                bad += 1
                yield rejected(place.file, "no row of node, CPUs A/I/O/T and state", line, number)
            continue
        name, cells, state = row
        gres = [count for count in map(gpus, cells) if count is not None]
        partition = cells[-1].rstrip("*") if cells and _NODE.match(cells[-1]) else ""
        found = node_object(
            place, name, node_state([state]), partitions=[partition] if partition else [],
            gpus=gres[0] if gres else None, gpus_used=gres[1] if len(gres) > 1 else None,
        )  # fmt: skip
        gathered.add(found, [state])
    yield from gathered.objects()
    yield _listing(place, gathered, bad)


# -- squeue: JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)


def read_squeue_table(place: Place, cursor: Cursor, stops: Stops) -> Iterator[Flat]:
    """The last column holds the nodes, or why there are none in brackets."""
    header = cursor.line.split()
    cursor.next()
    count = bad = 0
    while cursor and not stops(cursor.line):
        line, number, line_at = cursor.line, cursor.number, cursor.at
        cursor.next()
        if not line.strip():
            continue
        cells = _cells(header, line.strip())
        if cells is None and is_said(line):
            cursor.back(line_at, number)
            break
        if cells is None or not _JOB_ID.fullmatch(cells["JOBID"]):
            bad += 1
            yield rejected(place.file, "no row of a queue", line, number)
            continue
        last = cells[header[-1]]
        waits = last.startswith("(")
        names = [] if waits else nodes_of(place, last, line, number)
        if isinstance(names, dict):
            bad += 1
            yield names
            continue
        count += 1
        yield job_object(
            place, cells["JOBID"], job_state([cells.get("ST") or cells.get("STATE", "")]), names,
            name=cells.get("NAME", ""), partition=cells.get("PARTITION", ""),
            why=last.strip("()") if waits else "",
        )  # fmt: skip
    fault = f"{bad} lines cannot be read" if bad else ""
    yield listing_object(place, "jobs", count, fault)


_JOB_ID = re.compile(r"[0-9]{1,12}(?:_(?:[0-9]{1,9}|\[[0-9,\-%:]{1,200}\]))?(?:\+[0-9]{1,6})?")

# -- scontrol show node, scontrol show job


def read_scontrol(place: Place, cursor: Cursor, stops: Stops) -> Iterator[Flat]:
    """One record of `Key=value` over many lines; lines of blanks do not end it."""
    first, number = cursor.line, cursor.number
    lines = [first]
    cursor.next()
    while cursor and not stops(cursor.line) and _goes_on(cursor.line) and len(lines) < 400:
        lines.append(cursor.line)
        cursor.next()
    fields = _fields(lines)
    if "NodeName" in fields:
        yield from _scontrol_nodes(place, fields, first, number)
    else:
        yield _scontrol_job(place, fields, first, number)


def _goes_on(line: str) -> bool:
    return (not line.strip() and bool(line)) or line.startswith((" ", "\t"))


# These run to the end of their line: they hold blanks and "=".
_WHOLE = ("OS", "Reason", "Comment", "Extra", "Command", "WorkDir", "AdminComment",
          "SystemComment", "SubmitLine")  # fmt: skip
_KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z:/_]{1,40})=")


def _fields(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        keys = list(_KEY.finditer(line))
        for at, key in enumerate(keys):
            end = keys[at + 1].start() if at + 1 < len(keys) else len(line)
            if key[1] in _WHOLE:
                found.setdefault(key[1], line[key.end() :].strip())
                break
            found.setdefault(key[1], line[key.end() : end].strip())
    return found


def _said(fields: dict[str, str], key: str) -> str:
    value = fields.get(key, "")
    return "" if value in ("(null)", "N/A", "None", "Unknown") else value


def _scontrol_nodes(place: Place, fields: dict[str, str], line: str, number: int) -> Iterator[Flat]:
    names = nodes_of(place, fields["NodeName"], line, number)
    if isinstance(names, dict):
        yield names
        return
    if "State" not in fields:
        yield rejected(place.file, "node without a state: the record is cut", line, number)
        return
    why = reason(_said(fields, "Reason"), place.tz)
    count = gpus(_said(fields, "Gres"))
    for name in names:
        yield node_object(
            place, name, node_state([fields["State"]]), why,
            aliases=[_said(fields, "NodeAddr"), _said(fields, "NodeHostName")]
            if len(names) == 1 else [],
            partitions=[p for p in _said(fields, "Partitions").split(",") if p],
            reservations=[r for r in [_said(fields, "ReservationName")] if r],
            gpus=tres_gpus(_said(fields, "CfgTRES")) if count is None else count,
            gpus_used=tres_gpus(_said(fields, "AllocTRES")),
            boot_s=local_time(_said(fields, "BootTime"), place.tz),
        )  # fmt: skip


def _scontrol_job(place: Place, fields: dict[str, str], line: str, number: int) -> Flat:
    id_ = fields.get("JobId", "")
    if fields.get("ArrayJobId", "").isdecimal() and fields.get("ArrayTaskId", "").isdecimal():
        id_ = f"{fields['ArrayJobId']}_{fields['ArrayTaskId']}"
    if not _JOB_ID.fullmatch(id_) or "JobState" not in fields:
        return rejected(place.file, "job without an id or a state: the record is cut", line, number)
    names = nodes_of(place, fields.get("NodeList", ""), line, number)
    if isinstance(names, dict):
        return names
    code, _, signal = fields.get("ExitCode", "").partition(":")
    tres = _said(fields, "AllocTRES") or _said(fields, "TRES")
    return job_object(
        place, id_, job_state([fields["JobState"]]), names, name=_said(fields, "JobName"),
        attempt=count_of(fields.get("Restarts")),
        start=local_time(_said(fields, "StartTime"), place.tz),
        end=local_time(_said(fields, "EndTime"), place.tz), gpus=tres_gpus(tres),
        node_count=count_of(fields.get("NumNodes")) or None, exit_code=count_of(code),
        signal=count_of(signal) or None, partition=_said(fields, "Partition"),
        why=_said(fields, "Reason"), comment=_said(fields, "Comment"),
    )  # fmt: skip
