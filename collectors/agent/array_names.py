"""What squeue calls a job whose plain number the prolog was told.

Slurm (22.05 was looked at) tells a node's prolog nothing of arrays: task 2 of array 42 is job 44
there and 42_2 to everybody else. The job's own processes know both.
"""

from __future__ import annotations

import os
from pathlib import Path

PROCESSES_MAX = 20_000
ENVIRON_BYTES_MAX = 131_072
NAME_MAX = 64


def array_name(proc: Path, job: str) -> str | None:
    """The name of job `job`, itself where it is no array's; None where no process of it is seen."""
    wanted = b"\x00SLURM_JOB_ID=" + job.encode() + b"\x00"
    try:
        processes = [name for name in os.listdir(proc) if name.isdecimal()]
    except OSError:
        return None
    for process in sorted(processes, key=int, reverse=True)[:PROCESSES_MAX]:  # it is a young one
        environ = b"\x00" + _environ(proc / process / "environ") + b"\x00"
        if wanted in environ:
            array, task = _value(environ, "ARRAY_JOB_ID"), _value(environ, "ARRAY_TASK_ID")
            return f"{array}_{task}" if array and task else job
    return None


def _environ(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(ENVIRON_BYTES_MAX)
    except OSError:  # it has ended, or we may not read it
        return b""


def _value(environ: bytes, name: str) -> str:
    word = environ.partition(b"\x00SLURM_" + name.encode() + b"=")[2].partition(b"\x00")[0]
    return word.decode() if word.isdigit() and len(word) < NAME_MAX else ""
