"""The agent as a process with everything a node shows beside GPUs, NICs and logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agent_fakes import tree
from tests.integration.test_collect import BOOT, ROOT, Node, node, xid

__all__ = ["node"]
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={0}\nfull avg10=0.00 total={0}\n"


@pytest.fixture
def watched(node: Node) -> Node:
    """With a machine, a job and directories for dumps."""
    directory = node.directory
    tree(directory / "proc", {
        "stat": "cpu  1 0 0 9 0 0 0 0 0 0\n", "1/mounts": "/dev/md0 /data xfs rw 0 0\n",
        **{f"pressure/{name}": PRESSURE.format(1_000_000) for name in ("cpu", "memory", "io")},
    })  # fmt: skip
    (directory / "proc/1/root/data").mkdir(parents=True)
    tree(directory / "dumps", {"nothing": ""})
    node.settings(
        exporters=[], jobs_dir=str(directory / "jobs"),
        nccl_files=[f"{directory}/dumps/nccl_trace_rank_*"],
        stack_files=[f"{directory}/dumps/stacks/"],
    )  # fmt: skip
    return node


def launched(node: Node, *words: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    named = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT),
             "NODEWARDEN_STEP_SOCKET": str(node.directory / "s")}  # fmt: skip
    return subprocess.run(
        [sys.executable, "-m", "nodewarden", "run", "--", *words], cwd=ROOT,
        env={**named, **environ}, capture_output=True, timeout=60.0, check=False,
    )  # fmt: skip


def test_a_process_that_dies_is_an_event_at_once_under_the_job_of_the_prolog(
    watched: Node,
) -> None:
    tree(watched.directory / "jobs", {"42": json.dumps({"job": "42", "started_at": 1.0})})
    watched.start()
    watched.await_said("frame", lambda one: one["source"] == "host")
    done = launched(
        watched, "sh", "-c", "echo 'CUDA error: out of memory' >&2; kill -9 $$", RANK="3"
    )
    assert -9 == done.returncode
    event = watched.await_said("event", lambda one: one["source"] == "launch")
    assert ("n1", BOOT, "42", "rank:3", "oom") == (
        event["node"], event["boot_id"], event["job"], event["entity"], event["class"],
    )  # fmt: skip
    assert "SIGKILL" == event["details"]["signal"]
    assert 0 == launched(watched, "true").returncode  # and no event

    watched.print_kernel(0, xid(79))
    assert "42" == watched.await_said("event", lambda one: one.get("code") == 79)["job"]
    (watched.directory / "jobs" / "42").unlink()
    time.sleep(1.5)  # the agent looks every second
    watched.print_kernel(1, xid(48))
    watched.print_kernel(2, "eth0: link becomes ready")
    said = watched.await_said("event", lambda one: one.get("code") == 48)
    assert "" == said.get("job", "")
    assert 0 == watched.end()
    assert 1 == len([one for one in watched.said("event") if one["source"] == "launch"])


def test_the_machine_is_a_frame_of_its_own(watched: Node) -> None:
    watched.start()
    frame = watched.await_said("frame", lambda one: one["source"] == "host" and one["seq"] >= 2)
    assert ({"disk": ["/data"], "node": ["node"]}, [1.0]) == (
        frame["entities"], frame["metrics"]["host_memory_pressure_seconds_total"],
    )  # fmt: skip
    assert 0 == watched.end()


@pytest.mark.slow  # the agent looks every ten seconds
def test_dumps_are_told_once_through_kill_and_restart(watched: Node) -> None:
    watched.start()
    watched.await_said("frame", lambda one: one["source"] == "host")
    positions = watched.directory / "state" / "files.json"
    until_s = time.monotonic() + 30.0
    while not positions.exists():  # what was there before is history from here on
        assert time.monotonic() < until_s
        time.sleep(0.05)
    entry = {"state": "started", "profiling_name": "nccl:all_reduce", "collective_seq_id": 7}
    dump = json.dumps({"entries": [entry]})
    tree(watched.directory / "dumps", {"nccl_trace_rank_4": dump, "stacks/12.txt": (
        'Process 12: python train.py\nThread 12 (idle): "MainThread"\n    wait (threading.py:324)\n'
    )})  # fmt: skip
    event = watched.await_said("event", lambda one: one["class"] == "nccl")
    assert ("rank:4", 7) == (event["entity"], event["details"]["seq"])
    stacks = watched.await_said("event", lambda one: one["class"] == "stack_dump")
    assert "wait (threading.py:324)" in stacks["text"]
    while "stacks/12.txt" not in positions.read_text():
        assert time.monotonic() < until_s + 30.0
        time.sleep(0.05)
    assert watched.process is not None
    watched.process.kill()
    watched.process.wait()
    watched.start()
    again = watched.directory / "dumps" / "nccl_trace_rank_5"
    again.write_text(dump, "utf-8")
    watched.await_said("event", lambda one: one.get("entity") == "rank:5")
    assert 3 == len([one for one in watched.said("event") if one["source"] == "dumps"])
    assert 0 == watched.end()


@pytest.mark.parametrize("key", ["nccl_files", "stack_files"])
def test_a_template_that_cannot_be_meant_stops_the_start_with_one_line(
    node: Node, key: str
) -> None:
    settings: dict[str, Any] = {key: ["relative/*"]}
    node.settings(**settings)
    done = node.run("--once", "--stdout")
    assert (2, 1) == (done.returncode, len(done.stderr.splitlines()))
    assert f"collect.{key}" in done.stderr


def test_once_looks_at_the_machine_and_at_what_lies_there(watched: Node) -> None:
    dump = watched.directory / "dumps" / "nccl_trace_rank_4"
    dump.write_bytes(b"\x80\x04junk")
    old_s = time.time() - 60.0
    os.utime(dump, (old_s, old_s))
    done = watched.run("--once", "--stdout")
    assert (0, "") == (done.returncode, done.stderr)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"nic", "host", "dumps"} <= {one["source"] for one in said}
    assert Path(watched.directory / "state").exists() is False


def test_an_agent_without_training_logs_imports_no_numpy() -> None:
    """It would cost a third of its memory."""
    words = "import sys, nodewarden.commands.collect, collectors.agent.found_files as f"
    done = subprocess.run(
        [sys.executable, "-c", f"{words}; sys.exit('numpy' in sys.modules)"], cwd=ROOT, check=False,
        timeout=60.0,
    )  # fmt: skip
    assert 0 == done.returncode
