"""Damaged training logs, dumps and records: nothing raises, nothing after the damage is lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.kinds import KINDS

DATA = Path(__file__).parents[1] / "data" / "trainlog"
FILES = sorted(path.name for path in DATA.iterdir())
LAST = (
    b"\n [2026-04-06 02:59:36] iteration  7777777/ 9999999 | elapsed time per iteration (ms):"
    b" 5444.9 | lm loss: 1.5E+00 |\n"
)


def _cut(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + data[at + draw.randrange(200) :]


def _double(data: bytes, draw: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    return b"\n".join([*lines[: at + 1], *lines[at:]])


def _swap(data: bytes, draw: random.Random) -> bytes:
    lines = data.split(b"\n")
    draw.shuffle(lines)
    return b"\n".join(lines)


def _long(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + b"x" * 1_000_000 + data[at:]


def _junk(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.randbytes(64).replace(b"\n", b"") + b"\x00\xff\xfe" + data[at:]


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "cut": _cut, "doubled": _double, "swapped": _swap, "a line of 1 MB": _long, "junk": _junk,
    "utf-16": lambda data, _: data.decode("utf-8", "replace").encode("utf-16"),
    "latin-1": lambda data, _: data.decode("latin-1").encode("utf-8"),
    "carriage returns": lambda data, _: data.replace(b"\n", b"\r"),
    "dos": lambda data, _: data.replace(b"\n", b"\r\n"),
    "nul": lambda data, _: data.replace(b" ", b"\x00"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_no_damage_raises_or_hides_what_follows(name: str, damage: str) -> None:
    draw = random.Random(f"{name} {damage}")
    data = DAMAGES[damage]((DATA / name).read_bytes(), draw)
    for kind in ("training", "stacks", "collectives"):
        for found in KINDS[kind](name, [data]):
            assert found["type"] != "rejected" or found["reason"]
    filler = b"\nnothing\n" * 2_100  # whatever waits for more lines has its bound
    rest = KINDS["training"](name, [data, filler, LAST])
    assert 7_777_777 in [one["step"] for one in rest if one["type"] == "step"]


@given(st.binary(max_size=400))
@settings(max_examples=300)
def test_no_bytes_raise(data: bytes) -> None:
    for kind in ("training", "stacks", "collectives"):
        list(KINDS[kind]("x", [data]))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["entries", "pg_config", "pg_status", "coll_perf", "header", "frames", "0",
                 "process_group", "profiling_name", "time_created_ns", "input_sizes", "thread_id"]
            ),
            inner, max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(JSON)
@settings(max_examples=300)
def test_json_of_any_shape_raises_nothing(value: object) -> None:
    import json

    data = json.dumps(value).encode()
    for kind in ("stacks", "collectives", "training"):
        list(KINDS[kind]("x.json", [data]))


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("name", [name for name in FILES if name.endswith((".log", ".txt"))])
def test_how_a_file_is_cut_into_pieces_changes_nothing(name: str, size: int) -> None:
    data = (DATA / name).read_bytes()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    kind = "stacks" if "pyspy" in name else "training"
    assert list(KINDS[kind](name, [data])) == list(KINDS[kind](name, pieces))


def test_a_pickle_is_refused_with_its_reason() -> None:
    (found,) = KINDS["collectives"]("trace_3", [b"\x80\x04\x95 anything"])
    assert ("rejected", "a pickle, which is code; turn it into JSON first") == (
        found["type"], found["reason"],
    )  # fmt: skip


def test_broken_lines_of_known_forms_are_rejected_with_their_reason() -> None:
    lines = (
        b' :::MLLOG {"time_ms": 17\n :::MLLOG {"key": "x"}\n iteration 5/ 9 | consumed sam\n'
        b'{"_step": 1, "loss"\n'
    )
    found = list(KINDS["training"]("x.log", [lines]))
    assert [
        ("MLLOG line that is no JSON object", "x.log:1"),
        ("MLLOG line without time_ms or key", "x.log:2"),
        ("step line without a field", "x.log:3"),
        ("history row that is no JSON object", "x.log:4"),
    ] == [(one["reason"], one["place"]) for one in found]
