"""Listings as allocations, also within a capture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collectors.allocations import changes, joined, read_allocated
from collectors.capture import open_capture
from collectors.slurm import read_objects
from telemetry.records import Allocation, Frame, NodeInfo, Rejected
from telemetry.settings import EngineSettings

START_S = 1_772_020_800.0  # 2026-02-25 12:00 UTC


def allocated(*texts: str) -> Any:
    return read_allocated(
        one for number, text in enumerate(texts)
        for one in read_objects(f"alloc/{number}", [text.encode()])
    )  # fmt: skip


JOB = (
    "JobId=7 JobName=llm\n   JobState={state} Restarts=1 ExitCode=0:0\n"
    "   StartTime=2026-02-25T11:00:00 EndTime=2026-02-26T11:00:00 Partition=p\n"
    "   NodeList=n[1-2] NumNodes=2\n   AllocTRES=cpu=2,gres/gpu=16,node=2\n"
)


def test_a_running_job_holds_its_nodes_until_it_ends() -> None:
    job = allocated(JOB.format(state="RUNNING")).jobs["7"]
    assert (START_S - 3_600.0, None, 8, 1) == (job.start, job.end, job.gpus_per_node, job.attempt)
    assert [("n1", START_S - 3_600.0, None), ("n2", START_S - 3_600.0, None)] == [
        (held.name, held.since, held.until) for held in job.nodes
    ]
    assert START_S + 82_800.0 == allocated(JOB.format(state="FAILED")).jobs["7"].end


def test_the_attempts_of_a_requeued_job_are_the_times_of_its_nodes() -> None:
    rows = (
        "JobID|State|Start|End|NodeList\n"
        "7|REQUEUED|2026-02-25T10:00:00|2026-02-25T11:00:00|n[1-2]\n"
        "7|RUNNING|2026-02-25T11:10:00|Unknown|n[2-3]\n"
        "7.batch|RUNNING|2026-02-25T11:10:00|Unknown|n2\n"
    )
    job = allocated(rows).jobs["7"]
    assert (1, START_S - 7_200.0, None) == (job.attempt, job.start, job.end)
    assert ["n1", "n2", "n2", "n3"] == sorted(held.name for held in job.nodes)
    assert {START_S - 3_600.0, None} == {held.until for held in job.nodes}


def test_a_job_said_by_two_tools_is_one_job() -> None:
    sacct = (
        "JobID|State|Start|End|NodeList\n7|FAILED|2026-02-25T11:00:00|2026-02-25T12:30:00|n[1-2]\n"
    )
    job = allocated(JOB.format(state="RUNNING"), sacct).jobs["7"]
    assert (START_S + 1_800.0, 2, 1) == (job.end, len(job.nodes), job.attempt)


def pod(name: str, node: str, labels: dict[str, str], gpus: int = 8) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "labels": {
            key.replace("__", "/").replace("_", "-"): value for key, value in labels.items()}},
        "spec": {"nodeName": node, "containers": [
            {"resources": {"limits": {"nvidia.com/gpu": str(gpus)} if gpus else {}}}]},
        "status": {"phase": "Running", "startTime": "2026-02-25T11:00:00Z"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "job"),
    [({"jobset.sigs.k8s.io__jobset_name": "j", "batch.kubernetes.io__job_name": "j-w-0"}, "ml/j"),
     ({"training.kubeflow.org__job_name": "t", "kueue.x_k8s.io__queue_name": "q"}, "ml/t"),
     ({"pytorch_job_name": "p"}, "ml/p"), ({"job_name": "b"}, "ml/b"), ({}, "ml/pod-0")],
)  # fmt: skip
def test_pods_make_the_job_that_their_labels_name(labels: dict[str, str], job: str) -> None:
    answer = json.dumps({"kind": "List", "items": [pod("pod-0", "n1", labels)]})
    found = allocated(answer).jobs
    assert [job] == list(found)
    assert ("n1", 8) == (found[job].nodes[0].name, found[job].gpus_per_node)


def test_a_launcher_without_gpus_does_not_train() -> None:
    items = [pod("l", "n9", {"job_name": "j"}, 0), pod("w", "n1", {"job_name": "j"})]
    job = allocated(json.dumps({"kind": "PodList", "items": items})).jobs["ml/j"]
    assert ["n1"] == [held.name for held in job.nodes]


def test_a_failed_or_partial_listing_is_said_and_nothing_is_gone() -> None:
    answer = {"jobs": [], "errors": [{"error": "Protocol authentication error"}]}
    said = allocated(JOB.format(state="RUNNING"), json.dumps(answer))
    assert ["7"] == list(said.jobs)
    assert 1 == len(said.rejected)
    assert "authentication" in said.partial[0]


def node(state: str, since: str) -> str:
    return f"NodeName=n1 State={state}\n   Reason=bad GPU [ops@{since}]\n"


def test_a_drain_before_the_capture_holds_and_one_within_is_a_change() -> None:
    before = allocated(node("IDLE+DRAIN", "2026-02-25T11:00:00"))
    listing = joined(None, before, START_S)
    assert listing is not None
    assert [NodeInfo(name="n1", state="IDLE+DRAIN", owner="ops")] == listing.nodes
    assert [] == changes(before, listing, START_S, START_S + 600.0)

    within = allocated(node("IDLE+DRAIN", "2026-02-25T12:05:00"))
    listing = joined(None, within, START_S)
    assert listing is not None
    assert [NodeInfo(name="n1")] == listing.nodes
    (change,) = changes(within, listing, START_S, START_S + 600.0)
    assert (START_S + 300.0, "IDLE+DRAIN") == (change.at, change.nodes[0].state)

    after = allocated(node("IDLE+DRAIN", "2026-02-25T13:00:00"))
    assert [] == changes(after, listing, START_S, START_S + 600.0)


def capture(place: Path) -> Path:
    """Three nodes' temperatures, each under another of the node's names."""
    (place / "metrics").mkdir(parents=True)
    (place / "alloc").mkdir()
    names = ("n1.local", "N2", "10.0.0.3")
    (place / "metrics" / "gpu.om").write_text("".join(
        f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="GPU-{name}",Hostname="{name}"}} 60 {START_S + at}\n'
        for name in names for at in range(0, 600, 30)
    ))  # fmt: skip
    return place


def test_a_capture_takes_what_schedulers_printed(tmp_path: Path) -> None:
    path = capture(tmp_path / "c")
    (path / "alloc" / "job.txt").write_text(JOB.format(state="RUNNING").replace("n[1-2]", "n[1-3]"))
    (path / "alloc" / "nodes.json").write_text(json.dumps({"errors": [], "nodes": [
        {"name": "n3", "state": ["IDLE"], "address": "10.0.0.3", "partitions": []},
        {"name": "n2", "state": ["IDLE", "DRAIN"], "reason": "x", "reason_set_by_user": "ops",
         "reason_changed_at": START_S + 300.0, "partitions": []},
    ]}))  # fmt: skip
    (path / "alloc" / "jobs.json").write_text('{"jobs": [], "errors": [{"error": "no right"}]}')
    with open_capture(path, EngineSettings(), "UTC") as opened:
        records = list(opened.records())
        notes = opened.notes
    head, change = [one for one in records if isinstance(one, Allocation)]
    assert (["7"], ["n1", "n2", "n3"]) == (
        [job.id for job in head.jobs], [info.name for info in head.nodes],
    )  # fmt: skip
    assert (True, 1) == (head.last, head.count)
    assert (START_S + 300.0, "n2", "IDLE+DRAIN", "ops") == (
        change.at, change.nodes[0].name, change.nodes[0].state, change.nodes[0].owner,
    )  # fmt: skip
    assert {"n1", "n2", "n3"} == {one.node for one in records if isinstance(one, Frame)}
    assert 1 == sum(isinstance(one, Rejected) for one in records)
    assert any("what it lacks is not gone" in note for note in notes)


def test_local_times_of_a_listing_are_in_the_captures_zone(tmp_path: Path) -> None:
    path = capture(tmp_path / "c")
    (path / "alloc" / "job.txt").write_text(JOB.format(state="RUNNING"))
    (path / "capture.json").write_text('{"timezone": "Europe/Berlin"}')
    with open_capture(path, EngineSettings()) as opened:
        (head,) = [one for one in opened.records() if isinstance(one, Allocation)]
    assert START_S - 7_200.0 == head.jobs[0].start


def test_jobs_json_holds_where_both_speak_of_a_job(tmp_path: Path) -> None:
    path = capture(tmp_path / "c")
    (path / "alloc" / "job.txt").write_text(JOB.format(state="RUNNING"))
    (path / "jobs.json").write_text(
        '{"jobs": [{"id": "7", "nodes": ["n1"]}], "topology": {"n1": {"leaf": "l1"}}}'
    )
    with open_capture(path, EngineSettings(), "UTC") as opened:
        (head,) = [one for one in opened.records() if isinstance(one, Allocation)]
    assert ["n1"] == [held.name for held in head.jobs[0].nodes]
    assert "l1" == next(info.leaf for info in head.nodes if info.name == "n1")
