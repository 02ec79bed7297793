"""What the ladder is told of the moment: free nodes, changed code, each only where it is known."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.slurm_objects import code_of
from streams import codes
from streams.codes import SERIES_MAX, Codes
from streams.fold import Fold
from streams.snapshot import Snapshots, load
from streams.standby import replacements
from telemetry.findings import Incident, Suspect, Verdict
from telemetry.records import (
    Allocation,
    Arrived,
    Gpu,
    Hardware,
    Job,
    JobNode,
    NodeInfo,
    Record,
    Settings,
)
from telemetry.settings import EngineSettings
from tests.folding import fresh

START_S = 1_000.0
BUSY = ["n0", "n1"]
IDLE = ["n2", "n3"]


def infos(**states: str) -> list[NodeInfo]:
    words = {**dict.fromkeys(BUSY, "ALLOCATED"), **dict.fromkeys(IDLE, "IDLE"), **states}
    return [NodeInfo(name=name, state=word, pod="p1") for name, word in words.items()]


def job(*nodes: str, **more: Any) -> Job:
    held = [JobNode(name=name, since=START_S) for name in nodes]
    return Job(id="7", start=START_S, nodes=held, **more)


def fold_of(
    nodes: list[NodeInfo], jobs: tuple[Job, ...] = (), gpus: dict[str, int] | None = None
) -> Fold:
    """A fold that was told this; by default every node has 8 GPUs."""
    fold = fresh()
    header: dict[str, Any] = {"at": START_S, "node": "", "source": "inventory", "started_at": 0.0}
    made: list[Record] = [
        Settings(**header, seq=0, digest="d", engine_version="1", settings=EngineSettings()),
        Allocation(
            **header, seq=1, jobs=list(jobs or (job(*BUSY),)), nodes=nodes, listing="l", last=True,
            count=1,
        ),
    ]  # fmt: skip
    counts = gpus if gpus is not None else {info.name: 8 for info in nodes}
    for name, count in counts.items():
        cards = [Gpu(index=index, uuid=f"GPU-{name}-{index}") for index in range(count)]
        made.append(
            Hardware(at=START_S, node=name, source="host", started_at=0.0, seq=0, gpus=cards)
        )
    for offset, record in enumerate(made):
        fold.step(Arrived(offset, START_S + 1.0, record))
    return fold


def free(fold: Fold, blind: tuple[str, ...] = ()) -> int | None:
    return replacements(fold, BUSY, blind)


def test_idle_nodes_with_as_many_gpus_in_the_jobs_pods_are_counted() -> None:
    assert 2 == free(fold_of(infos()))
    assert 1 == free(fold_of(infos(n3="ALLOCATED")))
    assert 0 == free(fold_of(infos(n2="MIXED", n3="ALLOCATED")))
    assert 1 == free(fold_of(infos(), gpus={"n0": 8, "n1": 8, "n2": 8, "n3": 4}))
    assert 1 == free(fold_of(infos(), gpus={"n0": 8, "n1": 8, "n2": 8}))  # n3 is no GPU node
    elsewhere = [msgspec.structs.replace(one, pod="p2") if one.name == "n3" else one
                 for one in infos()]  # fmt: skip
    assert 1 == free(fold_of(elsewhere))


@pytest.mark.parametrize(
    "word", ["IDLE+DRAIN", "IDLE+NOT_RESPONDING", "IDLE+PLANNED", "DOWN", "IDLE+RESERVED", ""]
)
def test_an_idle_node_that_waits_for_something_is_not_free(word: str) -> None:
    assert 1 == free(fold_of(infos(n3=word)))


def test_protected_blind_suspect_and_held_nodes_are_not_free() -> None:
    guarded = [msgspec.structs.replace(one, protected=one.name == "n3") for one in infos()]
    assert 1 == free(fold_of(guarded))
    assert 1 == free(fold_of(infos()), blind=("n3",))
    assert 1 == free(fold_of(infos(), (job(*BUSY, "n3"),)))
    fold = fold_of(infos())
    fold.judge.docket.incidents["i"] = suspecting("n3")
    assert 1 == free(fold)
    fold.judge.docket.incidents["i"] = msgspec.structs.replace(suspecting("n3"), closed_at=2_000.0)
    assert 2 == free(fold)


def suspecting(node: str) -> Incident:
    said = Verdict("page", "", [], "now", START_S)
    return Incident(
        id="i", rev=0, scope=f"node:{node}", opened_at=START_S, closed_at=None, job="",
        cause="hardware", kind="gpu_fault", severity="warning", confidence=0.5,
        suspects=[Suspect(node, "", 0.5)], evidence=[], verdict=said, verdicts=[said],
    )  # fmt: skip


def test_where_nobody_says_it_nobody_knows() -> None:
    """Neither a file of jobs nor a simulation says what a scheduler has its nodes do."""
    silent = [msgspec.structs.replace(one, state="") for one in infos()]
    assert None is free(fold_of(silent))
    simulated = [msgspec.structs.replace(one, state="allocated") for one in infos()]
    assert None is free(fold_of(simulated))
    assert None is free(fold_of(infos(), gpus={}))
    assert None is replacements(fold_of(infos()), [], ())


# -- changed code


def attempt(id: str, code: str, start: float | None, end: float | None = None) -> Job:
    return Job(id=id, name="llm", start=start, end=end, code=code)


def known(*listings: list[Job]) -> Codes:
    found: Codes = {}
    for jobs in listings:
        codes.take(found, jobs)
    return found


def test_the_first_attempt_that_anybody_saw_changed_nothing_that_is_known() -> None:
    assert None is codes.changed_at(known([attempt("7", "v1", 10.0)]), "7")
    assert None is codes.changed_at(known([attempt("7", "", 10.0)]), "7")


def test_a_requeued_job_and_the_next_of_its_name_changed_when_they_started() -> None:
    requeued = known([attempt("7", "v1", 10.0)], [attempt("7", "v2", 50.0)])
    assert 50.0 == codes.changed_at(requeued, "7")
    following = known(
        [attempt("7", "v1", 10.0)],
        [attempt("7", "v1", 10.0, 90.0), attempt("8", "v2", 120.0)],
        [attempt("7", "v1", 10.0, 90.0), attempt("8", "v2", 120.0)],
    )
    assert 120.0 == codes.changed_at(following, "8")
    assert None is codes.changed_at(following, "7")
    same = known([attempt("7", "v1", 10.0, 90.0)], [attempt("8", "v1", 120.0)])
    assert None is codes.changed_at(same, "8")


def test_jobs_of_one_name_at_one_time_are_different_jobs() -> None:
    beside = known([attempt("7", "v1", 10.0), attempt("8", "v2", 50.0)])
    assert None is codes.changed_at(beside, "8")


def test_a_changed_code_stays_changed_through_attempts_that_keep_it() -> None:
    found = known(
        [attempt("7", "v1", 10.0)], [attempt("7", "v2", 50.0)], [attempt("7", "v2", 90.0)]
    )
    assert 50.0 == codes.changed_at(found, "7")


def test_so_many_series_are_kept_and_no_more() -> None:
    many = [Job(id=str(number), code="v1") for number in range(SERIES_MAX + 5)]
    assert SERIES_MAX == len(known(many))


jobs = st.lists(
    st.builds(
        attempt, st.sampled_from("78"), st.sampled_from(["", "v1", "v2"]),
        st.none() | st.sampled_from([10.0, 50.0]), st.none() | st.sampled_from([40.0, 90.0]),
    ),
    max_size=3,
)  # fmt: skip


@given(listings=st.lists(jobs, max_size=4))
def test_a_listing_said_again_changes_nothing(listings: list[list[Job]]) -> None:
    by_id = [list({one.id: one for one in said}.values()) for said in listings]
    once = known(*by_id)
    again = known(*by_id, *by_id[-1:])
    assert once == again


def test_the_ladder_hears_of_it_and_a_snapshot_keeps_it() -> None:
    fold = fold_of(infos(), (job(*BUSY, code="v1"),))
    header: dict[str, Any] = {"at": START_S, "node": "", "source": "inventory", "started_at": 0.0}
    again = msgspec.structs.replace(job(*BUSY, code="v2"), start=START_S + 50.0)
    fold.step(Arrived(90, START_S + 60.0, Allocation(**header, seq=2, jobs=[again])))
    context = fold._context(msgspec.structs.replace(suspecting("n0"), job="7"), [])
    assert (START_S + 50.0, 2) == (context.code_changed_at, context.replacements)

    store: dict[str, bytes] = {}
    store.update(Snapshots("main").take(fold))
    restored = load("main", store, fresh)
    assert restored is not None
    assert START_S + 50.0 == restored[0].inventory.code_changed_at("7")


@pytest.mark.parametrize(
    ("comment", "code"),
    [
        ("code=v1.2", "v1.2"),
        ("team=a; code=9f8e7d6c,x=y", "9f8e7d6c"),
        ("a code=registry.site/llm:2026-11@sha256 b", "registry.site/llm:2026-11@sha256"),
        ("barcode=7", ""),
        ("code=", ""),
        ("code=-rf", ""),
        ("code=a\x1bb", ""),
        ("", ""),
    ],
)
def test_a_comment_names_the_code_as_a_word_of_its_own(comment: str, code: str) -> None:
    assert code == code_of(comment)
