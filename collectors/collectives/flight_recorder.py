"""PyTorch's NCCL flight recorder, as JSON: what each rank had scheduled when it was dumped.

The dump of one rank, or `{rank: dump}`. PyTorch itself writes pickles; those are code and are not
read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

ENTRIES_MAX = 100_000  # of one rank
GROUPS_MAX = 10_000
DIMENSIONS_MAX = 64

EXAMPLE = (
    '{"0": {"version": "2.9", "pg_config": {"43": {"desc": "PIPELINE_MODEL_PARALLEL_GROUP"}},'
    ' "entries": [{"pg_id": 6, "collective_seq_id": 26, "profiling_name": "nccl:send 0->3",'
    ' "state": "scheduled"}]}}'
)
_RANK_OF_FILE = re.compile(r"(?:rank[_-]?|trace_?)(\d{1,7})(?:\.json)?$", re.IGNORECASE)
_NAME = re.compile(r"nccl:(?P<op>\w{1,60})(?: (?P<from>\d{1,7})(?P<way>->|<-)(?P<to>\d{1,7}))?")


def is_dump(value: Any) -> bool:
    """Whether it is one rank's dump, or the dumps of several."""
    return isinstance(value, dict) and (
        _is_one(value) or any(_is_one(part) for part in value.values())
    )


def read_dump(value: dict[str, Any], file: str) -> Iterator[dict[str, Any]]:
    """Objects "group" (a process group's status at a rank) and "collective" (one entry).

    Sequence numbers are a group's own; ops of one group are the same on all its ranks. Times are
    Unix seconds. A dump whose shape is broken gives one "rejected".
    """
    if _is_one(value):
        rank = _RANK_OF_FILE.search(file)
        named = value.get("rank")
        number = named if isinstance(named, int) else int(rank[1]) if rank is not None else None
        yield from _one(value, number)
        return
    for name, part in value.items():
        number = int(name) if name.isdecimal() and len(name) < 8 else None
        if _is_one(part):
            yield from _one(part, number)
        else:
            yield {"type": "rejected", "reason": "rank without entries", "text": name[:200]}


def _is_one(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("entries"), list)


def _one(dump: dict[str, Any], rank: int | None) -> Iterator[dict[str, Any]]:
    config = dump.get("pg_config")
    groups = config if isinstance(config, dict) else {}
    status = dump.get("pg_status")
    for number, row in list(status.items() if isinstance(status, dict) else ())[:GROUPS_MAX]:
        if isinstance(row, dict):
            yield {
                "type": "group", "rank": rank, "pg_id": _whole(number),
                "last_enqueued": _counted(row.get("last_enqueued_collective")),
                "last_started": _counted(row.get("last_started_collective")),
                "last_completed": _counted(row.get("last_completed_collective")),
            }  # fmt: skip
    for entry in dump["entries"][:ENTRIES_MAX]:
        if isinstance(entry, dict):
            yield _entry(entry, rank, groups)
        else:
            yield {"type": "rejected", "reason": "entry that is no object",
                   "text": str(entry)[:200]}  # fmt: skip


def _entry(entry: dict[str, Any], rank: int | None, groups: dict[str, Any]) -> dict[str, Any]:
    named = entry.get("process_group")
    group = [str(part) for part in named[:2]] if isinstance(named, list) else []
    group += [""] * (2 - len(group))
    found = _NAME.match(str(entry.get("profiling_name", ""))[:200])
    peer = int(found["to"]) if found is not None and found["to"] is not None else None
    return {
        "type": "collective", "rank": rank, "pg_id": _whole(entry.get("pg_id")), "pg": group[0],
        "pg_desc": group[1], "pg_ranks": _ranks(groups.get(group[0])),
        "op": found["op"] if found is not None else str(entry.get("profiling_name", ""))[:60],
        "peer_in_group": peer,
        "is_p2p": bool(entry.get("is_p2p", peer is not None)),
        "seq": _whole(entry.get("collective_seq_id")), "p2p_seq": _whole(entry.get("p2p_seq_id")),
        "op_id": _whole(entry.get("op_id")), "record_id": _whole(entry.get("record_id")),
        "state": str(entry.get("state", ""))[:40], "retired": entry.get("retired") is True,
        "input_sizes": _sizes(entry.get("input_sizes")),
        "output_sizes": _sizes(entry.get("output_sizes")),
        "dtype": _first(entry.get("input_dtypes")), "thread": _text(entry.get("thread_name")),
        "created_at": _seconds(entry.get("time_created_ns")),
        "started_at": _seconds(entry.get("time_discovered_started_ns")),
        "completed_at": _seconds(entry.get("time_discovered_completed_ns")),
        "timeout_s": _thousandth(entry.get("timeout_ms")),
    }  # fmt: skip


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _counted(value: Any) -> int | None:
    """A sequence number; -1 is "never"."""
    number = _whole(value)
    return number if number is not None and number >= 0 else None


def _seconds(value: Any) -> float | None:
    number = _whole(value)
    return number / 1e9 if number is not None and 0 < number < 1 << 63 else None


def _thousandth(value: Any) -> float | None:
    number = _whole(value)
    return number / 1e3 if number is not None and abs(number) < 1 << 53 else None


def _text(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) else None


def _first(value: Any) -> str | None:
    return _text(value[0]) if isinstance(value, list) and value else None


def _sizes(value: Any) -> list[list[int]]:
    """A shape a tensor."""
    if not isinstance(value, list):
        return []
    shapes = [shape[:DIMENSIONS_MAX] for shape in value[:DIMENSIONS_MAX] if isinstance(shape, list)]
    return [[size for size in shape if isinstance(size, int)] for shape in shapes]


def _ranks(group: Any) -> list[int] | None:
    """The group's global ranks: `[0, 1]`, written as a text."""
    said = group.get("ranks") if isinstance(group, dict) else None
    if isinstance(said, list):
        return [rank for rank in said[:1_000_000] if isinstance(rank, int)]
    if not isinstance(said, str):
        return None
    return [int(part) for part in re.findall(r"\d{1,9}", said[:8_000_000])]
