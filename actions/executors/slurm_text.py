"""Nodes and jobs out of the text of `scontrol show`, in its form of many lines, for old Slurm.

On one line nobody can tell where a comment ends. Times are UTC: whoever asks sets the zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC

from actions.executors.slurm_json import hosts, is_task, the_one
from actions.executors.slurm_port import JobSeen, NodeSeen
from telemetry.errors import SourceUnavailable
from telemetry.slurm_words import job_state, local_time, node_state, reason

Fields = dict[str, str]
GOES_ON = " ..."
_KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z:/_]{1,40})=")
# These run to the end of their line: they may hold blanks and "=".
_WHOLE = frozenset({
    "OS", "Reason", "Comment", "Extra", "Command", "WorkDir", "AdminComment", "SystemComment",
    "SubmitLine", "JobName",
})  # fmt: skip
_USER = re.compile(r"[^()]*\(([0-9]{1,10})\)")
_NOBODY = frozenset({"", "(null)", "N/A", "None", "Unknown", "n/a"})


def nodes(text: str, asked: str) -> dict[str, NodeSeen]:
    """All nodes of the answer by name. Raises SourceUnavailable where one cannot be read."""
    return {one.name: one for one in (_node(row, asked) for row in _records(text, "NodeName"))}


def job(text: str, asked: str, name: str) -> JobSeen | None:
    """The one job of that name; None where the answer holds no job at all.

    Raises SourceUnavailable where it holds others, or several, or cannot be read.
    """
    found = list(_records(text, "JobId"))
    row = the_one(found, lambda row: _is_named(row, name), asked, name)
    return None if row is None else _job(row, name, asked)


def _node(row: Fields, asked: str) -> NodeSeen:
    why = reason(row.get("Reason", ""), UTC)
    # Who wrote it stands behind it; where nobody does, the reason goes on in another line.
    text = "" if why is None else why.text.strip() + ("" if why.by else GOES_ON)
    return NodeSeen(
        name=_wanted(row, "NodeName", asked), state=node_state([_wanted(row, "State", asked)]),
        reason=text, reason_by=(why.by or "") if why else "",
        boot_at=local_time(row.get("BootTime", ""), UTC),
    )  # fmt: skip


def _job(row: Fields, name: str, asked: str) -> JobSeen:
    return JobSeen(
        id=name, state=job_state([_wanted(row, "JobState", asked)]),
        restarts=_count(row.get("Restarts", "")), nodes=hosts(_said(row, "NodeList"), asked),
        may_requeue=_flag(row.get("Requeue", "")), is_batch=_flag(row.get("BatchFlag", "")),
        is_held=_held(row.get("Priority", "")), excluded=hosts(_said(row, "ExcNodeList"), asked),
        required=hosts(_said(row, "ReqNodeList"), asked),
        begins_at=local_time(row.get("EligibleTime", ""), UTC), user=_user(row.get("UserId", "")),
    )  # fmt: skip


def _records(text: str, first: str) -> Iterator[Fields]:
    """Each begins with the line of `first`. What is said twice in one is not said: a job's name
    may look like a field.
    """
    row: Fields = {}
    for line in text.splitlines():
        if line.startswith(f"{first}="):
            if row:
                yield row
            row = {}
        elif not row or not line.startswith((" ", "\t")):
            continue
        for key, value in _fields(line):
            row[key] = value if key not in row else ""
    if row:
        yield row


def _fields(line: str) -> Iterator[tuple[str, str]]:
    keys = list(_KEY.finditer(line))
    for at, key in enumerate(keys):
        if key[1] in _WHOLE:
            yield key[1], line[key.end() :].strip()
            return
        end = keys[at + 1].start() if at + 1 < len(keys) else len(line)
        yield key[1], line[key.end() : end].strip()


def _is_named(row: Fields, name: str) -> bool:
    array, tasks = row.get("ArrayJobId", ""), row.get("ArrayTaskId", "")
    return name == row.get("JobId") or is_task(name, array, tasks)


def _wanted(row: Fields, key: str, asked: str) -> str:
    if not row.get(key):
        raise SourceUnavailable(f"{asked}: the answer has no one {key}")
    return row[key]


def _said(row: Fields, key: str) -> str:
    value = row.get(key, "")
    return "" if value in _NOBODY else value


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _user(text: str) -> int | None:
    """Of "otto(1000)"."""
    hit = _USER.fullmatch(text)
    return None if hit is None else int(hit[1])


def _flag(text: str) -> bool | None:
    return {"0": False, "1": True}.get(text)


def _held(text: str) -> bool | None:
    return int(text) == 0 if text.isascii() and text.isdecimal() and len(text) < 12 else None
