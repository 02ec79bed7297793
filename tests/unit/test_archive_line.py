"""A line of an archive gives back every byte of key, value and headers."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from telemetry.archive_line import ArchiveLine, embeddable, read_line, write_line


def line(value: bytes | None, key: bytes | None = None, *headers: tuple[str, bytes]) -> ArchiveLine:
    return ArchiveLine("nodewarden.telemetry", 0, 7, 1_700_000_000_123, "LogAppendTime",
                       headers, key, value)  # fmt: skip


def written(value: bytes | None, key: bytes | None = None) -> dict[str, object]:
    found = json.loads(write_line(line(value, key)))
    assert isinstance(found, dict)
    return found


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)
VALUES = (
    st.none()
    | st.binary(max_size=60)
    | JSON_VALUES.map(lambda value: json.dumps(value).encode())
    | JSON_VALUES.map(
        lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    )
    | JSON_VALUES.map(lambda value: json.dumps(value, indent=1).encode())
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)


@given(
    value=VALUES,
    key=st.none() | st.binary(max_size=20),
    headers=st.lists(st.tuples(NAMES, st.binary(max_size=9)), max_size=3),
)
@example(value=b"", key=b"", headers=[("kind", b"")])
@example(value=b'{"a":1},"offset":8', key=None, headers=[])
@example(value=b'"\\ud800"', key=b'","value":1', headers=[('","value":', b'"')])
def test_every_byte_comes_back(
    value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes]]
) -> None:
    wanted = line(value, key, *headers)
    data = write_line(wanted)
    assert data.endswith(b"}\n")
    assert data.count(b"\n") == 1
    assert b"\r" not in data
    assert read_line(data[:-1]) == wanted


@given(VALUES)
def test_any_json_reader_understands_the_line(value: bytes | None) -> None:
    fields = json.loads(write_line(line(value)))
    assert list(fields)[:6] == [
        "topic", "partition", "offset", "timestamp", "timestamp_type", "headers",
    ]  # fmt: skip
    assert ("value" in fields) != ("value_b64" in fields)


def test_a_json_value_is_embedded_as_it_was() -> None:
    assert b'"value":{"b" : 1.50, "a":[]}}' in write_line(line(b'{"b" : 1.50, "a":[]}'))


def test_a_tombstone_is_null_and_the_literal_null_is_base64() -> None:
    assert written(None)["value"] is None
    assert written(b"null")["value_b64"] == "bnVsbA=="


@pytest.mark.parametrize(
    "value",
    [b"", b"null", b"nope", b'{"a":\n1}', b"1\r", b" 1", b"1 ", b'"\xff"', b"NaN", b"1,2",
     b'{"a":1}{"b":2}', b"[" * 100_000 + b"]" * 100_000, b"[" * 300 + b"]" * 300,
     b"]" * 201 + b"[" * 201],
)  # fmt: skip
def test_what_json_cannot_carry_travels_as_base64(value: bytes) -> None:
    assert not embeddable(value) or len(value) == 600
    assert read_line(write_line(line(value))[:-1]) == line(value)


def test_many_brackets_are_no_depth() -> None:
    assert embeddable(b"[" + b",".join([b"{}"] * 500) + b"]")


def test_a_key_that_is_no_utf8_is_base64() -> None:
    assert written(b"1", b"main")["key"] == "main"
    assert written(b"1", b"\xff")["key_b64"] == "/w=="
    assert written(b"1", None)["key"] is None


def test_headers_are_text_or_base64() -> None:
    fields = json.loads(write_line(line(b"1", None, ("kind", b"frame"), ("raw", b"\xff"))))
    assert fields["headers"] == [["kind", "frame"], ["raw", {"b64": "/w=="}]]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"[]", "Expected `object`"),
        (b'{"topic":"t","partition":0,"offset":1,"timestamp":2}', "`value` or `value_b64`"),
        (b'{"topic":"t","partition":0,"offset":-1,"timestamp":2,"value":1}', ">= 0"),
        (b'{"topic":"t","partition":-1,"offset":1,"timestamp":2,"value":1}', ">= 0"),
        (b'{"topic":"t","partition":0,"offset":1,"timestamp":-2,"value":1}', ">= -1"),
        (b'{"topic":"t","partition":0,"offset":1,"timestamp":2,"value_b64":"*"}', "base64"),
        (b'{"topic":"t","partition":0,"offset":1,"timestamp":2,"value":1,"key_b64":"a"}', "base64"),
        (b'{"topic":"t","partition":0,"offset":1,"timestamp":2,"value_b64":"\xc3\xa9"}', "ASCII"),
        (b'{"topic":"t","partition":0,"offset":1,"timestamp":2,"value":' + b"[" * 200_000,
         "recursion"),
    ],
)  # fmt: skip
def test_a_broken_line_says_why(data: bytes, why: str) -> None:
    found = read_line(data)
    assert isinstance(found, str)
    assert why.lower() in found.lower()


@given(st.binary(max_size=200))
def test_no_line_raises(data: bytes) -> None:
    read_line(data)


def test_a_null_header_reads_as_empty() -> None:
    found = read_line(
        b'{"topic":"t","partition":0,"offset":1,"timestamp":2,"headers":[["a",null]],"value":1}'
    )
    assert isinstance(found, ArchiveLine)
    assert found.headers == (("a", b""),)
    assert found.timestamp_type == "LogAppendTime"
