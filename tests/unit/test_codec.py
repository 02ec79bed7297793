"""Bytes become a record or say why not; nothing that arrives can raise."""

from __future__ import annotations

import hashlib
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.codec import NAME_MAX, TEXT_MAX, decode, encode, name_fault
from telemetry.records import (
    Allocation,
    Beat,
    Begin,
    Control,
    End,
    Event,
    Frame,
    Hardware,
    Job,
    JobNode,
    Record,
    Rejected,
    Settings,
    Steps,
)
from telemetry.settings import EngineSettings

AT = 1_700_000_000.0
HEAD: dict[str, object] = {
    "at": AT, "node": "n1", "source": "gpu", "started_at": AT, "seq": 7,
}  # fmt: skip


def wire(**changes: object) -> bytes:
    fields = {"kind": "frame", **HEAD, "entities": {"gpu": ["a"]}, "metrics": {"m": [1.0]}}
    return msgspec.json.encode({**fields, **changes})


def reason(data: bytes) -> str:
    found = decode(data, "here")
    assert isinstance(found, Rejected)
    return found.reason


ONE_OF_EACH: tuple[Record, ...] = (
    Settings(at=AT, node="", source="engine", started_at=AT, seq=0, digest="d",
             engine_version="0.1.0", settings=EngineSettings()),
    Begin(at=AT, node="", source="import", started_at=AT, seq=1, name="incident"),
    End(at=AT, node="", source="import", started_at=AT, seq=2),
    Beat(at=AT, node="", source="", started_at=AT, seq=3, sent_at=AT),
    Frame(at=AT, node="n1", source="gpu", started_at=AT, seq=4, spooled=True,
          entities={"gpu": ["GPU-a", "GPU-b"]}, metrics={"gpu_power_watts": [None, 400.25]}),
    Event(at=AT, node="n1", source="kernel", started_at=AT, seq=5, type="xid", text="NVRM: Xid",
          severity="critical", class_="bus", code=79, entity="pci:0000:c3:00", boot_id="b"),
    Steps(at=AT, node="n1", source="training", started_at=AT, seq=6, job="7", ranks=[0, 1],
          step=[3, 3], loss=[None, 2.5], nonfinite=[["loss"], []]),
    Hardware(at=AT, node="n1", source="host", started_at=AT, seq=7, serial="x"),
    Allocation(at=AT, node="", source="inventory", started_at=AT, seq=8, replayed=AT,
               jobs=[Job(id="7", nodes=[JobNode(name="n1")])], listing="l", last=True, count=1),
    Control(at=AT, node="", source="actions", started_at=AT, seq=9, action="cleared", target="n1"),
)  # fmt: skip


@pytest.mark.parametrize("record", ONE_OF_EACH, ids=lambda record: type(record).__name__)
def test_every_kind_comes_back_as_it_went(record: Record) -> None:
    data = encode(record)
    assert decode(data, "here") == record
    assert b"\n" not in data


finite = st.floats(allow_nan=False, allow_infinity=False)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(
    values=st.lists(st.none() | finite, max_size=9),
    entity=text,
    metric=text,
    seq=st.integers(0, 2**63 - 1),
    at=st.floats(946_684_800.0, 4_102_444_799.0),
)
def test_round_trip(
    values: list[float | None], entity: str, metric: str, seq: int, at: float
) -> None:
    frame = Frame(at=at, node="n1", source="gpu", started_at=AT, seq=seq,
                  entities={"gpu": [entity]}, metrics={metric: values})  # fmt: skip
    assert decode(encode(frame), "here") == frame


@given(st.binary(max_size=300) | text.map(str.encode))
def test_no_bytes_raise(data: bytes) -> None:
    assert isinstance(decode(data, "here"), Rejected)


@given(st.data())
def test_a_damaged_record_is_a_record_or_rejected(data: st.DataObject) -> None:
    good = bytearray(encode(ONE_OF_EACH[4]))
    place = data.draw(st.integers(0, len(good) - 1))
    good[place] = data.draw(st.integers(0, 255))
    decode(bytes(good), "here")
    decode(bytes(good[:place]), "here")


def test_missing_numbers_travel_as_null_never_as_zero() -> None:
    frame = Frame(at=AT, node="n1", source="gpu", started_at=AT, seq=0,
                  entities={"gpu": ["a", "b"]}, metrics={"m": [math.nan, math.inf]})  # fmt: skip
    back = decode(encode(frame), "here")
    assert isinstance(back, Frame)
    assert back.metrics == {"m": [None, None]}


def test_fields_of_a_later_version_are_ignored() -> None:
    assert isinstance(decode(wire(colour="blue"), "here"), Frame)


def test_a_memoryview_is_as_good_as_bytes() -> None:
    assert decode(memoryview(encode(ONE_OF_EACH[4])), "here") == ONE_OF_EACH[4]
    assert isinstance(decode(memoryview(b"nope"), "here"), Rejected)


@pytest.mark.parametrize("field", sorted(HEAD))
def test_a_missing_field_rejects(field: str) -> None:
    fields = {**HEAD, "kind": "beat"}
    del fields[field]
    assert f"missing required field `{field}`" in reason(msgspec.json.encode(fields))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty value"),
        (b"null", "null is no record"),
        (b" null \r\n", "null is no record"),
        (b"[]", "no record: Expected `object`, got `array`"),
        (b"\xff\xfe", "no record: JSON is malformed"),
        (b'{"kind":"poem"}', "no record: Invalid value 'poem'"),
        (b'{"kind":"beat","junk":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deeply"),
        (wire(at="noon"), "no record: Expected `float`, got `str` - at `$.at`"),
        (wire(metrics={"m": ["x"]}), "no record: Expected `float | null`, got `str`"),
        (wire().replace(b"1.0]", b"1e999]"), "no record: Number out of range"),
        (wire().replace(b"n1", b"n\xff"), "no record: Invalid UTF-8"),
        (wire().replace(b"n1", b"n\\ud800"), "no record: JSON is malformed"),
        (wire(at=-1.0), "at: -1 is no time between 2000 and 2100"),
        (wire(at=946_684_799.9), "at: 9.46685e+08 is no time between 2000 and 2100"),
        (wire(at=4_102_444_800.0), "at: 4.10244e+09 is no time between 2000 and 2100"),
        (wire(v=2), "v: schema 2, this engine reads 1"),
        (wire(seq=-1), "seq: -1 is no position in a stream"),
        (wire(seq=2**63), "seq: 9223372036854775808 is no position in a stream"),
        (wire(started_at=-0.5), "started_at: -0.5 is no time before 2100"),
        (wire(started_at=1e18), "started_at: 1e+18 is no time before 2100"),
        (wire(sent_at=-2.0), "sent_at: -2 is no time before 2100"),
        (wire(sent_at=1e18), "sent_at: 1e+18 is no time before 2100"),
        (wire(replayed=0.0), "replayed: 0 is no time between 2000 and 2100"),
        (wire(node=""), "node: empty"),
        (wire(source=""), "source: empty"),
        (wire(node="n" * (NAME_MAX + 1)), "node: 254 characters, at most 253"),
        (wire(node="n\n1"), "node: holds a character that does not print"),
        (wire(source="\x1b[31m"), "source: holds a character that does not print"),
    ],
)
def test_what_is_no_record_says_why(data: bytes, why: str) -> None:
    assert reason(data).startswith(why)


def test_the_edges_of_what_is_a_record() -> None:
    assert isinstance(decode(wire(at=946_684_800.0), "here"), Frame)
    assert isinstance(decode(wire(sent_at=0.0, replayed=AT, started_at=0), "here"), Frame)
    assert isinstance(decode(wire(node="n" * NAME_MAX), "here"), Frame)
    assert isinstance(decode(wire(node="gpu-node é 1"), "here"), Frame)


def test_the_rejected_keep_what_is_needed_to_look_into_them() -> None:
    data = b"x" * (TEXT_MAX + 10)
    found = decode(data, "nodewarden.telemetry/0@123")
    assert isinstance(found, Rejected)
    assert found.text == "x" * TEXT_MAX
    assert found.length == TEXT_MAX + 10
    assert found.sha256 == hashlib.sha256(data).hexdigest()
    assert found.place == "nodewarden.telemetry/0@123"
    assert found.at is None


def test_a_rejected_record_keeps_its_time_where_it_has_one() -> None:
    late = decode(wire(seq=-1), "here")
    never = decode(wire(at=-1.0), "here")
    assert isinstance(late, Rejected)
    assert isinstance(never, Rejected)
    assert late.at == AT
    assert never.at is None


def test_names() -> None:
    assert name_fault("node", "") is None
    assert name_fault("node", "n1") is None
    assert name_fault("node", "a\u202eb") == "node: holds a character that does not print"
