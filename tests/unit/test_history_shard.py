"""A history shard lives in its pieces' time: what is no part of a piece moves no clock."""

from __future__ import annotations

import msgspec
import pytest

from actions.policy import verdict
from evaluation.simulator import START_S
from nodewarden.publishing import whole_piece
from streams.shard import Output, Shard
from telemetry.codec import decode, encode
from telemetry.records import Arrived, Record, Rejected
from telemetry.topics import INCIDENTS, REJECTED
from tests.folding import numbered
from tests.unit.test_shard import Line, log

TODAY_MS = round((START_S + 30 * 86_400.0) * 1000.0)
LIVE_RECORD = log()[700][3]


def piece() -> list[Line]:
    """An import as it stands in the topic: appended today, each record with its own arrival."""
    live: list[tuple[float, Record]] = []
    for _, time_ms, _, value in log():
        record = decode(value or b"", "")
        assert not isinstance(record, Rejected)
        live.append((time_ms / 1000.0, record))
    return [
        (found.offset + 1, TODAY_MS, b"history", encode(replayed(found)))
        for found in whole_piece(numbered(live), "a site's past")
    ]


def replayed(found: Arrived) -> Record:
    assert not isinstance(found.record, Rejected)
    return msgspec.structs.replace(found.record, replayed=found.arrival)


def folded(lines: list[Line]) -> list[Output]:
    shard = Shard("history", "history", verdict, 1)
    return [
        output
        for offset, (_, time_ms, key, value) in enumerate(lines)
        for output in shard.take(offset, time_ms, key, value)
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"history", None),
        (b"history", b"\xff"),
        (b"main", LIVE_RECORD),
        (b"history", LIVE_RECORD),
    ],
    ids=["null", "bytes", "of another shard", "live"],
)
def test_k11_poison_amid_an_import_changes_nothing_that_is_told(
    key: bytes, value: bytes | None
) -> None:
    lines = piece()
    clean = folded(lines)
    lines.insert(800, (0, TODAY_MS, key, value))
    poisoned = folded(lines)

    assert [output.topic for output in poisoned].count(REJECTED) == 1
    assert [output for output in poisoned if output.topic != REJECTED] == clean
    assert INCIDENTS in {output.topic for output in clean}
