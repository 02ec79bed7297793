"""One line of an export in each tool's form, and damage."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.kafka_exports import FORMS, Where, form_of, read_line_of, where_of
from telemetry.archive_line import ArchiveLine
from telemetry.records import Rejected

VALUE = b'{"kind":"beat","at":1772020800.5,"node":"","source":"x","started_at":0.0,"seq":0}'
MS = 1_772_020_800_123


NOWHERE = Where()


def read(line: Any, where: Where = NOWHERE, number: int = 0) -> ArchiveLine | Rejected | None:
    data = line if isinstance(line, bytes) else json.dumps(line).encode()
    form = form_of(data)
    assert form is not None
    return read_line_of(form, data, where, number, "x:1")


def kcat(**other: Any) -> dict[str, Any]:
    return {
        "topic": "t", "partition": 3, "offset": 7, "tstype": "create", "ts": MS, "broker": 1,
        "key": "main", "payload": VALUE.decode(), **other,
    }  # fmt: skip


def place(line: ArchiveLine | Rejected | None) -> tuple[str, int, int, int]:
    assert isinstance(line, ArchiveLine)
    return line.topic, line.partition, line.offset, line.timestamp_ms


@pytest.mark.parametrize(
    "headers", [["kind", "beat", "none", None], {"kind": ["beat"], "none": [None]}]
)
def test_kcat_keeps_place_time_key_and_headers_in_both_its_ways(headers: Any) -> None:
    said = read(kcat(headers=headers))
    assert ("t", 3, 7, MS) == place(said)
    assert isinstance(said, ArchiveLine)
    assert (b"main", VALUE, "CreateTime") == (said.key, said.value, said.timestamp_type)
    assert (("kind", b"beat"), ("none", b"")) == said.headers


def test_a_tombstone_and_a_record_without_a_time() -> None:
    said = read({"topic": "t", "partition": 0, "offset": 0, "key": None, "payload": None})
    assert ("t", 0, 0, -1) == place(said)
    assert isinstance(said, ArchiveLine)
    assert (None, None) == (said.key, said.value)


@pytest.mark.parametrize(
    ("time", "millis"),
    [(MS, MS), (1_772_020_800, 1_772_020_800_000), ("2026-02-25T12:00:00.123Z", MS), (None, -1),
     (str(MS), MS)],
)  # fmt: skip
def test_aivens_fields_take_place_from_the_files_name_and_time_in_any_spelling(
    time: Any, millis: int
) -> None:
    where = where_of("nodewarden.telemetry-2-0000000040.jsonl.gz")
    line = {"value": base64.b64encode(VALUE).decode(), "timestamp": time}
    said = read(line, where, 5)
    assert ("nodewarden.telemetry", 2, 45, millis) == place(said)
    assert isinstance(said, ArchiveLine)
    assert VALUE == said.value


def test_values_alone_and_with_a_schema_stand_where_their_line_does() -> None:
    where = where_of("nodewarden.telemetry+1+0000000010.json")
    assert Where("nodewarden.telemetry", 1, 10) == where
    assert ("nodewarden.telemetry", 1, 12, 1_772_020_800_500) == place(read(VALUE, where, 2))
    wrapped = b'{"schema":null,"payload":' + VALUE + b"}"
    assert ("nodewarden.telemetry", 1, 13, 1_772_020_800_500) == place(read(wrapped, where, 3))


@pytest.mark.parametrize(
    "line",
    [kcat(offset=-1), kcat(partition=2**40), kcat(ts=2**70), kcat(offset="7"),
     {"value": "no base64!"}, {"value": "eyJ9", "timestamp": "yesterday"},
     {"value": {}, "metadata": []}],
)  # fmt: skip
def test_a_broken_line_is_rejected_with_its_reason(line: dict[str, Any]) -> None:
    said = read(line)
    assert isinstance(said, Rejected)
    assert said.reason
    assert "x:1" == said.place


@pytest.mark.parametrize("line", [b"", b"  \n", b"[", b"]", b"% Reached end of topic t [0]"])
def test_remarks_and_brackets_are_no_records(line: bytes) -> None:
    assert None is read_line_of(FORMS[0], line, Where(), 0, "x")


@pytest.mark.parametrize(
    "line", [b"{}", b"x", b'{"status":"success"}', b'{"metric":{},"value":[1,"2"]}', b"[1]"]
)
def test_what_no_tool_writes_is_no_export(line: bytes) -> None:
    assert None is form_of(line)


@given(st.binary(max_size=80), st.integers(0, 400))
def test_any_damage_raises_nothing(junk: bytes, at: int) -> None:
    for whole in (json.dumps(kcat()).encode(), VALUE, b'{"value":{"a":1},"offset":2}'):
        line = whole[:at] + junk + whole[at:]
        form_of(line)
        for form in FORMS:
            read_line_of(form, line, Where(), 0, "x")
