"""Host lists, states, reasons, times and names as schedulers spell them."""

from __future__ import annotations

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.names import NodeNames
from telemetry.hostlist import NODES_MAX, expand
from telemetry.slurm_words import (
    SUFFIXES,
    gpu_indexes,
    gpus,
    job_state,
    local_time,
    node_state,
    reason,
    tres_gpus,
)

# -- host lists


@pytest.mark.parametrize(
    ("text", "names"),
    [("n[001-003,7]", ["n001", "n002", "n003", "n7"]),
     ("n[8-10]", ["n8", "n9", "n10"]),
     ("n[08-10]", ["n08", "n09", "n10"]),
     ("a1,b[1-2],c", ["a1", "b1", "b2", "c"]),
     ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
     ("n[1-2]-ib", ["n1-ib", "n2-ib"]),
     ("n1,n1", ["n1"]),
     ("(null)", []), ("None assigned", []), ("", [])],
)  # fmt: skip
def test_a_host_list_is_expanded(text: str, names: list[str]) -> None:
    assert names == expand(text)


@pytest.mark.parametrize(
    "text",
    ["n[1-", "n[3-1]", "n[a-b]", "n[]", "n]1[", "n[1-2", "a b", "n[1-99999999]",
     "n[0-9][0-9][0-9][0-9][0-9][0-9]", "n[1-40000],m[1-40000]"],
)  # fmt: skip
def test_what_is_no_host_list_or_too_many_nodes_says_why(text: str) -> None:
    assert isinstance(expand(text), str)


@given(st.text(alphabet="n[]0123456789-,", max_size=60))
def test_no_text_expands_beyond_the_bound(text: str) -> None:
    found = expand(text)
    assert isinstance(found, str) or len(found) <= NODES_MAX


# -- states


@pytest.mark.parametrize("suffix", sorted(SUFFIXES))
def test_i3_each_suffix_is_a_flag(suffix: str) -> None:
    state = node_state([f"idle{suffix}"])
    assert "IDLE" == state.base
    assert (SUFFIXES[suffix] in state.flags) == (suffix != "+")


@pytest.mark.parametrize(
    ("words", "text", "usable", "drain"),
    [("IDLE+DRAIN", "IDLE+DRAIN", False, "drained"),
     ("MIXED+DRAIN", "MIXED+DRAIN", False, "draining"),
     ("DOWN+DRAIN+NOT_RESPONDING", "DOWN+DRAIN+NOT_RESPONDING", False, "drained"),
     ("drained*", "IDLE+DRAIN+NOT_RESPONDING", False, "drained"),
     ("drng@", "ALLOCATED+DRAIN+REBOOT_REQUESTED", False, "draining"),
     ("alloc", "ALLOCATED", True, None), ("mix-", "MIXED+PLANNED", True, None),
     ("IDLE+CLOUD", "IDLE+CLOUD", True, None),
     ("idle~", "IDLE+POWERED_DOWN", False, None),
     ("maint", "MAINTENANCE", False, None), ("", "", None, None),
     ("unk", "UNKNOWN", None, None)],
)  # fmt: skip
def test_i3_compound_states_are_told_apart(
    words: str, text: str, usable: bool | None, drain: str | None
) -> None:
    state = node_state([words])
    assert (text, usable, drain) == (state.text, state.usable, state.drain)


def test_i3_an_unknown_word_makes_the_node_neither_usable_nor_out() -> None:
    state = node_state(["IDLE+HALFWAY"])
    assert (None, ("HALFWAY",)) == (state.usable, state.unknown)


def test_the_state_may_come_as_a_list_or_beside_its_flags() -> None:
    assert node_state(["IDLE", "DRAIN"]) == node_state(["idle", "DRAIN"]) == node_state(
        ["IDLE+DRAIN"]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "word", "ended"),
    [(["R"], "RUNNING", False), (["CANCELLED by 1185200069"], "CANCELLED", True),
     (["COMPLETED", "COMPLETING"], "COMPLETED", True), (["NF"], "NODE_FAIL", True),
     (["NEW_STATE"], "NEW_STATE", None), ([], "", None)],
)  # fmt: skip
def test_a_jobs_state(words: list[str], word: str, ended: bool | None) -> None:
    state = job_state(words)
    assert (word, ended) == (state.word, state.ended)


# -- reasons, times, GPUs


def test_a_reason_tells_who_set_it_when() -> None:
    said = reason("Not responding [slurm@2026-01-01T01:00:00]", ZoneInfo("Europe/Berlin"))
    assert said is not None
    assert ("Not responding", "slurm", 1767225600.0) == (said.text, said.by, said.at_s)
    ours = reason("nodewarden:gpu_lost:0af3 [root@2026-01-01T01:00:00]", UTC)
    assert ours is not None
    assert "ours" == ours.class_
    noted = reason("nodewarden:gpu_lost:0af3 and a fan [otto@2026-01-01T01:00:00]", UTC)
    assert noted is not None
    assert "other" == noted.class_
    assert None is reason("none", UTC)


@pytest.mark.parametrize("text", ["Unknown", "2026-04-04T17:30.651", "1900-01-01T00:00:00", "N/A"])
def test_what_is_no_time_is_none(text: str) -> None:
    assert None is local_time(text, UTC)


def test_gpus_of_every_spelling() -> None:
    assert 8 == gpus("gpu:ampere:8(S:0-1)")
    assert 8 == gpus("gpu:8")
    assert 6 == gpus("gpu:a:4(S:0),gpu:b:2,nic:1")
    assert 1 == gpus("gpu:nvidia_h100_80gb_hbm3:1(S:0)")
    assert None is gpus("")
    assert None is gpus("(null)")
    assert 32 == tres_gpus("cpu=320,gres/gpu=32,gres/gpu:a100=32,mem=1600G")
    assert [0, 1, 2, 5] == gpu_indexes("gpu:ampere:4(IDX:0-2,5)")
    assert [] == gpu_indexes("gpu:ampere:0(IDX:N/A)")


# -- names


@pytest.mark.parametrize(
    ("said", "node"),
    [("n-1-30.local", "n-1-30"), ("n-1-30", "n-1-30"), ("n-1-30.local.", "n-1-30"),
     ("N-1-30", "n-1-30"), ("cw-a-37", "g8430"), ("10.0.0.7", "g8430"), ("10.0.0.8", None)],
)  # fmt: skip
def test_i2_a_node_is_known_by_any_of_its_names(said: str, node: str | None) -> None:
    names = NodeNames(["n-1-30", "g8430"], [], {"cw-a-37": "g8430", "10.0.0.7": "g8430"})
    assert (node or said) == names.of_labels({"Hostname": said})


def test_an_alias_never_hides_a_nodes_own_name() -> None:
    names = NodeNames(["a", "b"], [], {"b": "a"})
    assert "b" == names.of_labels({"node": "b"})
