"""Answers of Prometheus' API, whole, cut and odd, as OpenMetrics lines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.prometheus_api import is_answer, metric_lines, read_answers
from telemetry.records import Rejected

AT_S = 1_772_020_800


def series(name: str, *values: Any, **labels: str) -> dict[str, Any]:
    metric = {"__name__": name, **labels} if name else labels
    return {"metric": metric, "values": [[AT_S + 15 * n, value] for n, value in enumerate(values)]}


def answer(*result: dict[str, Any]) -> bytes:
    data = {"resultType": "matrix", "result": list(result)}
    return json.dumps({"status": "success", "data": data}).encode()


def read(data: bytes) -> tuple[list[str], list[str]]:
    """Lines, and why something is none."""
    found = list(read_answers(data, "a.json"))
    text = b"".join(one for one in found if isinstance(one, bytes)).decode()
    return text.splitlines(), [one.reason for one in found if isinstance(one, Rejected)]


def test_values_are_texts_and_keep_their_spelling() -> None:
    lines, bad = read(answer(series("m", "1", "NaN", "+Inf", "1e-05", gpu="0")))
    assert [f'm{{gpu="0"}} {value} {AT_S + 15.0 * n}' for n, value in enumerate(
        ("1", "NaN", "+Inf", "1e-05"))] == lines  # fmt: skip
    assert [] == bad


def test_labels_are_escaped() -> None:
    lines, _ = read(answer(series("m", "1", path='a"b\\c\nd')))
    assert [f'm{{path="a\\"b\\\\c\\nd"}} 1 {float(AT_S)}'] == lines


def test_an_answer_of_query_has_one_value() -> None:
    one = {"metric": {"__name__": "m"}, "value": [AT_S + 0.5, "3"]}
    assert ([f"m{{}} 3 {AT_S}.5"], []) == read(answer(one))


def test_an_error_is_rejected_with_its_words() -> None:
    data = b'{"status":"error","errorType":"bad_data","error":"exceeded maximum resolution"}'
    assert ([], ["Prometheus answered bad_data: exceeded maximum resolution"]) == read(data)


def test_an_expressions_result_has_no_name_and_is_rejected() -> None:
    lines, bad = read(answer(series("", "1", gpu="0"), series("m", "2")))
    assert 1 == len(lines)
    assert "query the metric itself" in bad[0]


@pytest.mark.parametrize("value", [None, {}, "1 2", "1\nm{} 9", [], "x" * 100])
def test_a_value_that_is_no_number_costs_itself(value: Any) -> None:
    lines, bad = read(answer(series("m", "1", value, "2"), series("k", "3")))
    assert ["m{} 1", "m{} 2", "k{} 3"] == [line.rpartition(" ")[0] for line in lines]
    assert 1 == len(bad)


def test_a_cut_answer_is_read_to_its_last_whole_series() -> None:
    data = answer(series("a", "1"), series("b", "2"), series("c", "3"))
    lines, bad = read(data[: data.index(b'"c"') + 5])
    assert ["a{} 1", "b{} 2"] == [line.rpartition(" ")[0] for line in lines]
    assert bad[-1].startswith("no whole answer")


def test_what_follows_a_damaged_series_is_read() -> None:
    data = answer(series("a", "1"), series("b", "2"), series("c", "3"))
    lines, bad = read(data.replace(b'"__name__": "b"', b'"__name__": "b'))
    assert ["a{} 1", "c{} 3"] == [line.rpartition(" ")[0] for line in lines]
    assert bad


def test_several_answers_in_one_file_are_no_damage() -> None:
    lines, bad = read(answer(series("a", "1")) + b"\n" + answer(series("a", "2")))
    assert ["a{} 1", "a{} 2"] == [line.rpartition(" ")[0] for line in lines]
    assert [] == bad


def test_a_dump_passes_as_it_is_and_an_answer_is_recognised() -> None:
    dump = [b"# TYPE m gauge\n", b'm{a="b"} 1 2\n']
    assert dump == list(metric_lines(iter(dump), "x"))
    assert not is_answer(dump[0])
    assert is_answer(b'\n {\n  "status" : "success"')
    assert [f"m{{}} 1 {float(AT_S)}\n".encode()] == list(
        metric_lines(iter([answer(series("m", "1"))]), "x")
    )


@given(st.binary(max_size=200), st.integers(0, 400))
def test_any_damage_raises_nothing(junk: bytes, at: int) -> None:
    data = answer(series("a", "1", "2", gpu="0"), series("b", "NaN"))
    read(data[:at] + junk + data[at:])
    read(junk)
