"""Nodes and jobs out of Slurm's JSON: `scontrol --json` from 23.02 on, slurmrestd v0.0.38 to today.

An answer of another shape, or one that says itself that something is wrong, is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from actions.executors.slurm_port import JobSeen, NodeSeen
from telemetry.errors import SourceUnavailable
from telemetry.hostlist import expand
from telemetry.slurm_words import job_state, node_state

SAID_MAX = 200
Row = TypeVar("Row")
_INVALID_NODE, _INVALID_JOB = 2018, 2017  # slurm_errno.h


class _Number(msgspec.Struct, frozen=True):
    """How Slurm writes a number that may be missing, from v0.0.39 on."""

    set: bool = True
    infinite: bool = False
    number: int | float = 0


_Counted = int | float | _Number | None


class Fault(msgspec.Struct, frozen=True):
    """An error as an answer lists it."""

    error: str | None = None
    description: str | None = None
    error_number: int | None = None
    errno: int | None = None

    @property
    def text(self) -> str:
        """In words."""
        said = ": ".join(word for word in (self.description, self.error) if word)
        return " ".join(said.split())[:SAID_MAX] or "unknown error"

    @property
    def is_no_such(self) -> bool:
        """Whether it says that there is no such node or job."""
        return (self.error_number or self.errno) in (_INVALID_NODE, _INVALID_JOB)


class _Node(msgspec.Struct, frozen=True):
    name: str
    state: str | list[str]
    state_flags: list[str] = []
    reason: str | None = None
    reason_set_by_user: str | None = None
    boot_time: _Counted = None


class _Job(msgspec.Struct, frozen=True):
    job_id: int
    job_state: str | list[str]
    array_job_id: _Counted = None
    array_task_id: _Counted = None
    array_task_string: str | None = None
    restart_cnt: _Counted = None
    nodes: str | None = None
    requeue: bool | None = None
    batch_flag: bool | None = None
    excluded_nodes: str | None = None
    required_nodes: str | None = None
    priority: _Counted = None
    eligible_time: _Counted = None
    user_id: _Counted = None


class _Answer(msgspec.Struct, frozen=True):
    errors: list[Fault] = []
    nodes: list[_Node] | None = None
    jobs: list[_Job] | None = None


class _Faults(msgspec.Struct, frozen=True):
    errors: list[Fault] = []


def faults(body: bytes) -> list[Fault]:
    """What the answer says went wrong; [] too where nobody can read it."""
    try:
        return msgspec.json.decode(body, type=_Faults).errors
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def nodes(body: bytes, asked: str) -> dict[str, NodeSeen]:
    """All nodes of an answer by name. Raises SourceUnavailable where it is none."""
    found = _answer(body, asked).nodes
    if found is None:
        raise SourceUnavailable(f"{asked}: the answer holds no list of nodes")
    return {row.name: _node(row) for row in found}


def job(body: bytes, asked: str, name: str) -> JobSeen | None:
    """The one job of that name; None where the answer holds no job at all.

    Raises SourceUnavailable where it is no answer, or holds others, or several.
    """
    found = _answer(body, asked).jobs
    if found is None:
        raise SourceUnavailable(f"{asked}: the answer holds no list of jobs")
    row = the_one(found, lambda row: _is_named(row, name), asked, name)
    return None if row is None else _job(row, name, asked)


def the_one(
    found: Sequence[Row], is_named: Callable[[Row], bool], asked: str, name: str
) -> Row | None:  # fmt: skip
    """The one of that name, beside whom only tasks of its array may stand; None of none at all.

    Raises SourceUnavailable where there are others, or several.
    """
    if not found:
        return None
    rows = [row for row in found if is_named(row)]
    if len(rows) != 1 or (len(found) > 1 and "_" not in name):
        why = f"{len(found)} jobs, and {len(rows)} of them {name}"
        raise SourceUnavailable(f"{asked}: the answer holds {why}")
    return rows[0]


def _answer(body: bytes, asked: str) -> _Answer:
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SourceUnavailable(f"{asked}: no answer that we can read: {error}") from error
    if answer.errors:
        raise SourceUnavailable(f"{asked}: {answer.errors[0].text}")
    return answer


def _node(row: _Node) -> NodeSeen:
    return NodeSeen(
        name=row.name, state=node_state([*_words(row.state), *row.state_flags]),
        reason=(row.reason or "").strip(), reason_by=row.reason_set_by_user or "",
        boot_at=_time(row.boot_time),
    )  # fmt: skip


def _job(row: _Job, name: str, asked: str) -> JobSeen:
    priority = _number(row.priority)
    return JobSeen(
        id=name, state=job_state(_words(row.job_state)), restarts=_count(row.restart_cnt),
        nodes=hosts(row.nodes, asked), may_requeue=row.requeue, is_batch=row.batch_flag,
        is_held=None if priority is None else priority == 0,
        excluded=hosts(row.excluded_nodes, asked), required=hosts(row.required_nodes, asked),
        begins_at=_time(row.eligible_time), user=_count(row.user_id),
    )  # fmt: skip


def hosts(text: str | None, asked: str) -> tuple[str, ...]:
    """The names of a host list. Raises SourceUnavailable where it is none."""
    found = expand(text or "")
    if isinstance(found, str):
        raise SourceUnavailable(f"{asked}: {found}")
    return tuple(found)


def _is_named(row: _Job, name: str) -> bool:
    array, task = _count(row.array_job_id), _count(row.array_task_id)
    tasks = (row.array_task_string or "") if task is None else str(task)
    return name == str(row.job_id) or (bool(array) and is_task(name, str(array), tasks))


_TASKS = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")


def is_task(name: str, array: str, tasks: str) -> bool:
    """Whether a record of these tasks of the array, "1", or "3-9:2,12%4" of those that still wait
    together, is about the task `name`.
    """
    of, _, number = name.partition("_")
    if of != array or not number:
        return False
    for text in tasks.partition("%")[0].split(","):
        hit = _TASKS.fullmatch(text)
        if hit is not None:
            first, last, step = int(hit[1]), int(hit[2] or hit[1]), max(int(hit[3] or 1), 1)
            if first <= int(number) <= last and (int(number) - first) % step == 0:
                return True
    return False


def _words(said: str | Sequence[str]) -> list[str]:
    return [said] if isinstance(said, str) else list(said)


def _number(said: _Counted) -> float | None:
    if isinstance(said, _Number):
        return float(said.number) if said.set and not said.infinite else None
    return None if said is None else float(said)


def _count(said: _Counted) -> int | None:
    number = _number(said)
    return None if number is None or number < 0.0 else int(number)


def _time(said: _Counted) -> float | None:
    """0 is how Slurm says that there is none."""
    return _number(said) or None
