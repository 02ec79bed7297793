"""NCCL Inspector: one JSON record a collective and rank, with its time and bandwidth."""

from __future__ import annotations

import re
from typing import Any

EXAMPLE = (
    '{"header": {"id": "0x7f8c", "rank": 2, "n_ranks": 8}, "metadata": {"dump_timestamp_us":'
    ' 1748030377748202, "hostname": "n1"}, "coll_perf": {"coll": "AllReduce", "coll_sn": 1407,'
    ' "coll_msg_size_bytes": 17179869184, "coll_exec_time_us": 61974}}'
)
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


def is_record(value: Any) -> bool:
    """Whether it is a record of the Inspector."""
    return isinstance(value, dict) and isinstance(value.get("coll_perf"), dict)


def read_record(value: dict[str, Any]) -> dict[str, Any]:
    """One object "collective_time". `rank` counts within the communicator `comm`."""
    perf, head, about = value["coll_perf"], _dict(value, "header"), _dict(value, "metadata")
    trace = _dict(perf, "event_trace_ts")
    coll = perf.get("coll")
    return {
        "type": "collective_time", "comm": _text(head.get("id")), "rank": _number(head.get("rank")),
        "ranks": _number(head.get("n_ranks")), "nodes": _number(head.get("nnodes")),
        "host": _text(about.get("hostname")), "pid": _number(about.get("pid")),
        "at": _seconds(about.get("dump_timestamp_us")),
        "op": _WORDS.sub("_", coll).lower()[:60] if isinstance(coll, str) else None,
        "seq": _number(perf.get("coll_sn")), "bytes": _number(perf.get("coll_msg_size_bytes")),
        "duration_s": _seconds(perf.get("coll_exec_time_us")),
        "timing_source": _text(perf.get("coll_timing_source")),
        "algorithm_bandwidth_gbps": _number(perf.get("coll_algobw_gbs")),
        "bus_bandwidth_gbps": _number(perf.get("coll_busbw_gbs")),
        "started_at": _seconds(trace.get("coll_start_ts")),
    }  # fmt: skip


def _dict(value: dict[str, Any], name: str) -> dict[str, Any]:
    part = value.get(name)
    return part if isinstance(part, dict) else {}


def _number(value: Any) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e19:
        return None
    return value


def _seconds(value: Any) -> float | None:
    number = _number(value)
    return number / 1e6 if number is not None else None


def _text(value: Any) -> str | None:
    return value[:253] if isinstance(value, str) else None
