"""The prolog and epilog as a real Slurm calls them, and the launch wrapper under a real srun."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collectors.agent.array_names import array_name
from collectors.step_reporter import SOCKET_VARIABLE
from tests.slurm.cluster import Slurm

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0


def with_prolog(slurm: Slurm, directory: Path) -> Path:
    """Slurm with our scripts; all nodes are this machine, so each writes to a place of its own."""
    lines = ["PrologFlags=Alloc"]
    for name in ("prolog", "epilog"):
        script = directory / f"{name}.sh"
        script.write_text(
            f'#!/bin/sh\nNODEWARDEN_JOBS_DIR="{directory}/$SLURMD_NODENAME" exec'
            f" {ROOT}/deploy/slurm/{name}.sh\n",
            "utf-8",
        )
        script.chmod(0o755)
        lines.append(f"{name.capitalize()}={script}")
    with Path(slurm.conf).open("a", encoding="utf-8") as conf:
        conf.write("\n".join(["", *lines, ""]))
    slurm.run("scontrol", "reconfigure")
    return directory


def said(directory: Path) -> dict[str, str]:
    """File -> job, of all nodes."""
    return {
        f"{path.parent.name}/{path.name}": json.loads(path.read_text("utf-8"))["job"]
        for path in directory.glob("node*/*")
    }


def awaited(true: Callable[[], bool]) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < until_s
        time.sleep(0.1)


def test_a_job_is_on_its_nodes_from_its_first_process_until_its_end(
    slurm: Slurm, tmp_path: Path
) -> None:
    directory = with_prolog(slurm, tmp_path)
    job = slurm.submit(2)
    awaited(lambda: len(said(directory)) == 2)
    assert {job} == set(said(directory).values())
    slurm.run("scancel", job)
    awaited(lambda: said(directory) == {})
    assert "drain" not in slurm.run("sinfo", "-h", "-o", "%T")


def test_tasks_of_an_array_get_squeue_s_names_from_their_processes(
    slurm: Slurm, tmp_path: Path
) -> None:
    directory = with_prolog(slurm, tmp_path)
    array = slurm.run(
        "sbatch", "--parsable", "--array=1-2", "--output=/dev/null", "--wrap=sleep 600"
    )
    awaited(lambda: len(said(directory)) == 2)
    proc = Path("/proc")
    awaited(lambda: all(array_name(proc, job) is not None for job in said(directory).values()))
    names = {array_name(proc, job) for job in said(directory).values()}
    assert {f"{array}_1", f"{array}_2"} == names
    assert names == set(slurm.run("squeue", "-h", "-r", "-o", "%i").split())
    slurm.run("scancel", array)


def test_srun_sees_the_command_s_end_and_the_agent_its_rank(slurm: Slurm, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(str(tmp_path / "s"))
        agent.settimeout(DEADLINE_S)
        words = ["srun", "--nodes=2", "--chdir=/", "env", f"PYTHONPATH={ROOT}",
                 f"{SOCKET_VARIABLE}={tmp_path}/s", sys.executable, "-m", "nodewarden", "run", "--",
                 "sh", "-c", "echo last >&2; exit 9"]  # fmt: skip
        done = subprocess.run(
            words, env={"PATH": "/usr/bin:/bin", "SLURM_CONF": slurm.conf}, capture_output=True,
            text=True, check=False, timeout=DEADLINE_S,
        )  # fmt: skip
        assert (9, 2) == (done.returncode, done.stderr.count("last\n"))
        ends: list[dict[str, Any]] = []
        while len(ends) < 2:
            one = json.loads(agent.recv(65_536))
            ends += [one] if one["launch"] == "end" else []
    assert {(0, 9), (1, 9)} == {(one["rank"], one["exitcode"]) for one in ends}
    assert 1 == len({one["job"] for one in ends} - {""})
