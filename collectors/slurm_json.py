"""Slurm's JSON: `--json` of sinfo, squeue, scontrol and sacct from 21.08 on, and slurmrestd. Pure.

An answer with errors is never "no jobs": its listing is incomplete, whatever lists stand beside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from collectors.flat import (
    Flat,
    count_of,
    dict_of,
    list_of,
    name_of,
    number_of,
    rejected,
    text_of,
    time_of,
    words_of,
)
from collectors.slurm_objects import (
    Gathered,
    Place,
    job_object,
    listing_object,
    node_object,
    nodes_of,
)
from telemetry.slurm_words import (
    Reason,
    gpus,
    job_state,
    node_state,
    reason,
    reason_class,
    tres_gpus,
)

_SHOWN = 400


def read_document(place: Place, value: dict[str, Any], line: int) -> Iterator[Flat] | None:
    """The objects of one JSON value; None where it is nothing of Slurm's."""
    fault = _errors(value)
    lists = {key: read for key, read in _LISTS.items() if isinstance(value.get(key), list)}
    if lists or fault:
        return _answer(place, value, lists, fault, line)
    if name_of(value.get("name")) and ("state" in value and "partitions" in value):
        return iter([_node(place, value, line)])
    if {"s", "n", "p"} <= value.keys():
        return iter([_short(place, value, line)])
    if value and all(isinstance(v, dict) and "status" in v for v in value.values()):
        return _statuses(place, value)
    return None


def _errors(value: dict[str, Any]) -> str:
    """What `errors` says, "" where it is empty. A number may be 0: only their presence counts."""
    said = []
    for error in list_of(value.get("errors"))[:8]:
        row = dict_of(error)
        parts = [text_of(row.get(key), _SHOWN) for key in ("description", "error")]
        number = count_of(row.get("error_number"))
        said.append(": ".join(p for p in parts if p) + (f" ({number})" if number else ""))
    return "; ".join(said) or ("unknown error" if list_of(value.get("errors")) else "")


def _answer(
    place: Place, value: dict[str, Any], lists: dict[str, Any], fault: str, line: int
) -> Iterator[Flat]:
    if fault:
        whats = " and ".join(sorted({_OF[key] for key in lists}))
        reason = f"{whats} unknown: {fault}" if whats else f"no answer: {fault}"
        yield rejected(place.file, reason, fault, line)
    for key, read in lists.items():
        rows = value[key]
        bad = count = 0
        for found in read(place, rows, line):
            bad += found["type"] == "rejected"
            count += found["type"] != "rejected" and not found.get("step")
            yield found
        why = fault or (f"{bad} entries cannot be read" if bad else "")
        if not why and not rows and _OF[key] == "nodes":
            why = "no node in it: a cluster has nodes"
        yield listing_object(place, _OF[key], count, why)


def _nodes(place: Place, rows: list[Any], line: int) -> Iterator[Flat]:
    for row in rows:
        yield _node(place, dict_of(row), line)


def _node(place: Place, row: dict[str, Any], line: int) -> Flat:
    name = name_of(row.get("name"))
    if not name:
        return rejected(place.file, "node without a name", str(row)[:_SHOWN], line)
    changed = time_of(row.get("reason_changed_at"))
    said = reason(text_of(row.get("reason")), place.tz)
    by = name_of(row.get("reason_set_by_user")) or None
    why = Reason(said.text, said.class_, said.by or by, said.at_s or changed) if said else None
    gres, used = text_of(row.get("gres")), text_of(row.get("gres_used"))
    count = gpus(gres)
    return node_object(
        place, name,
        node_state([*words_of(row.get("state")), *words_of(row.get("state_flags"))]), why,
        aliases=[name_of(row.get("hostname")), name_of(row.get("address"))],
        partitions=[p for p in map(name_of, list_of(row.get("partitions"))) if p],
        reservations=[r for r in [name_of(row.get("reservation"))] if r],
        gpus=tres_gpus(text_of(row.get("tres"))) if count is None else count,
        gpus_used=gpus(used), boot_s=time_of(row.get("boot_time")),
    )  # fmt: skip


def _short(place: Place, row: dict[str, Any], line: int) -> Flat:
    """A line of `sinfo` formatted as JSON: s state, n node, p partition."""
    name = name_of(row.get("n"))
    if not name:
        return rejected(place.file, "node without a name", str(row)[:_SHOWN], line)
    partition = name_of(row.get("p")).rstrip("*")
    return node_object(
        place, name, node_state(words_of(row.get("s"))), partitions=[partition] if partition else []
    )


def _sinfo(place: Place, rows: list[Any], line: int) -> Iterator[Flat]:
    """`sinfo --json` from 23.02 on: one entry for nodes that are alike."""
    gathered = Gathered(place)
    for entry in rows:
        row = dict_of(entry)
        state = words_of(dict_of(row.get("node")).get("state"))
        said = dict_of(row.get("reason"))
        told = text_of(said.get("description"))
        why = None
        if told:
            why = Reason(told, reason_class(told), name_of(said.get("user")) or None,
                         time_of(said.get("time")))  # fmt: skip
        names = [n for n in map(name_of, list_of(dict_of(row.get("nodes")).get("nodes"))) if n]
        if not names:
            yield rejected(place.file, "nodes without a name", str(row)[:_SHOWN], line)
        partition = name_of(dict_of(row.get("partition")).get("name"))
        for name in names:
            found = node_object(
                place, name, node_state(state), why, partitions=[partition] if partition else [],
                gpus=gpus(text_of(dict_of(row.get("gres")).get("total"))),
            )  # fmt: skip
            gathered.add(found, state)
    yield from gathered.objects()


def _jobs(place: Place, rows: list[Any], line: int) -> Iterator[Flat]:
    for entry in rows:
        row = dict_of(entry)
        yield _accounted(place, row, line) if "time" in row else _job(place, row, line)


def _job(place: Place, row: dict[str, Any], line: int) -> Flat:
    """A job of squeue, `scontrol show job` or slurmrestd's /jobs."""
    id_ = _job_id(row)
    if not id_:
        return rejected(place.file, "job without an id", str(row)[:_SHOWN], line)
    text = text_of(row.get("nodes"), 1_000_001)
    names = nodes_of(place, text, f"job {id_} nodes {text[:_SHOWN]}", line)
    if isinstance(names, dict):
        return names
    code, signal = _exit(row.get("exit_code"))
    return job_object(
        place, id_, job_state(words_of(row.get("job_state"))), names,
        name=text_of(row.get("name"), 253),
        attempt=count_of(row.get("restart_cnt")), start=time_of(row.get("start_time")),
        end=time_of(row.get("end_time")), gpus=tres_gpus(text_of(row.get("tres_alloc_str"))),
        node_count=count_of(row.get("node_count")) or None, exit_code=code, signal=signal,
        partition=name_of(row.get("partition")), why=_because(row.get("state_reason")),
        comment=_comment(row.get("comment")),
    )  # fmt: skip


def _accounted(place: Place, row: dict[str, Any], line: int) -> Flat:
    """A job of `sacct --json` or slurmrestd's /slurmdb/jobs."""
    id_ = _job_id(row)
    if not id_:
        return rejected(place.file, "job without an id", str(row)[:_SHOWN], line)
    text = text_of(row.get("nodes"), 1_000_001)
    names = nodes_of(place, text, f"job {id_} nodes {text[:_SHOWN]}", line)
    if isinstance(names, dict):
        return names
    state, time = dict_of(row.get("state")), dict_of(row.get("time"))
    code, signal = _exit(row.get("exit_code"))
    return job_object(
        place, id_, job_state(words_of(state.get("current"))), names,
        name=text_of(row.get("name"), 253), attempt=count_of(row.get("restart_cnt")),
        start=time_of(time.get("start")), end=time_of(time.get("end")),
        gpus=_tres_count(dict_of(row.get("tres")).get("allocated")),
        node_count=count_of(row.get("allocation_nodes")) or None, exit_code=code, signal=signal,
        partition=name_of(row.get("partition")), why=_because(state.get("reason")),
        comment=_comment(row.get("comment")),
    )  # fmt: skip


def _because(value: object) -> str:
    said = text_of(value, 253)
    return "" if said == "None" else said


def _comment(value: object) -> str:
    """The owner's: text, or one of three from 22.05 (sacct) on."""
    return text_of(dict_of(value).get("job") if isinstance(value, dict) else value)


def _job_id(row: dict[str, Any]) -> str:
    """The id that people know: "58948420_3" for a task of an array."""
    array = dict_of(row.get("array"))
    job = count_of(row.get("array_job_id")) or count_of(array.get("job_id"))
    task = count_of(row.get("array_task_id", array.get("task_id")))
    own = count_of(row.get("job_id"))
    if job and task is not None:
        return f"{job}_{task}"
    return str(own) if own else ""


def _exit(value: object) -> tuple[int | None, int | None]:
    """Exit code and signal: 256 * code + signal in old versions, an object in new ones."""
    if isinstance(value, dict) and "number" not in value:
        signal = dict_of(value.get("signal")).get(
            "id", dict_of(value.get("signal")).get("signal_id")
        )
        return count_of(value.get("return_code")), count_of(signal) or None
    number = number_of(value)
    if number is None or not 0 <= number < 2**32:
        return None, None
    return int(number) >> 8 & 255, int(number) & 127 or None


def _tres_count(value: object) -> int | None:
    found = [
        count_of(row.get("count"))
        for row in map(dict_of, list_of(value))
        if row.get("type") == "gres" and row.get("name") == "gpu"
    ]
    return next((count for count in found if count is not None), None)


def _statuses(place: Place, value: dict[str, Any]) -> Iterator[Flat]:
    """HTTP statuses that slurmrestd's answers came with: only 200 says something of the cluster."""
    for name, said in list(value.items())[:10_000]:
        status = count_of(said.get("status"))
        yield {
            "file": place.file, "type": "answer", "form": place.form, "name": name_of(name),
            "status": status, "content_type": text_of(said.get("content-type"), 253),
            "usable": status == 200,
        }  # fmt: skip


Rows = Callable[[Place, list[Any], int], Iterator[Flat]]
_LISTS: dict[str, Rows] = {"nodes": _nodes, "jobs": _jobs, "sinfo": _sinfo}
_OF = {"nodes": "nodes", "sinfo": "nodes", "jobs": "jobs"}
