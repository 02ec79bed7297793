"""`jobs.json` into an allocation listing."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.jobs import read_jobs
from telemetry.errors import InputError
from telemetry.records import Allocation, JobNode, NodeInfo, Parallel

START_S = 1_772_020_800.0


def read(said: object) -> Allocation:
    return read_jobs(json.dumps(said).encode(), "c/jobs.json", START_S)


def test_only_id_and_nodes_are_required() -> None:
    listing = read({"jobs": [{"id": 7, "nodes": ["n2", "n1"]}]})
    assert (START_S, "jobs.json", True, 1) == (
        listing.at, listing.listing, listing.last, listing.count,
    )  # fmt: skip
    assert "7" == listing.jobs[0].id
    assert [JobNode(name="n2"), JobNode(name="n1")] == listing.jobs[0].nodes
    assert [NodeInfo(name="n1"), NodeInfo(name="n2")] == listing.nodes


def test_everything_else_is_taken_over() -> None:
    listing = read(
        {
            "jobs": [
                {"id": "a", "name": "llm", "nodes": ["n1"], "start": START_S, "end": START_S + 9,
                 "gpus_per_node": 8, "parallel": {"tp": 8, "pp": 2},
                 "ranks": {"n1": [0, 1]}, "stages": {"n1": 1}}
            ],
            "topology": {"n1": {"rack": "r", "leaf": "l", "pod": "p"}, "n9": {}},
        }
    )  # fmt: skip
    job = listing.jobs[0]
    assert Parallel(tp=8, pp=2) == job.parallel
    assert [JobNode("n1", START_S, START_S + 9, [0, 1], 1)] == job.nodes
    assert [NodeInfo("n1", rack="r", leaf="l", pod="p"), NodeInfo("n9")] == listing.nodes


@pytest.mark.parametrize(
    "said",
    [
        [], {"jobs": {}}, {"jobs": [{"id": "1"}]}, {"jobs": [{"nodes": []}]},
        {"jobs": [{"id": "1", "nodes": "n1"}]}, {"jobs": [{"id": "1", "nodes": [3]}]},
        {"jobs": [{"id": "", "nodes": ["n1"]}]}, {"jobs": [{"id": "1", "nodes": [""]}]},
        {"jobs": [{"id": "1", "nodes": ["n1"], "start": "soon"}]},
        {"jobs": [{"id": "1", "nodes": ["n1"], "start": 12}]},
        {"jobs": [{"id": "1", "nodes": ["n1"], "ranks": {"n2": [1]}}]},
        {"jobs": [{"id": "1", "nodes": ["a\u0000b"]}]}, {"topology": {"n1": "rack 3"}},
    ],
)  # fmt: skip
def test_a_file_of_another_form_is_refused_in_one_line(said: object) -> None:
    with pytest.raises(InputError, match=r"^c/jobs\.json: ") as caught:
        read(said)
    assert "\n" not in str(caught.value)


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_bytes_that_are_no_listing_raise_nothing_else(data: bytes) -> None:
    with contextlib.suppress(InputError):
        read_jobs(data, "jobs.json", START_S)
