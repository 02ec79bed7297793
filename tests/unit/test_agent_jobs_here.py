"""Slurm's prolog and epilog as scripts, and the agent that reads what they leave."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from msgspec import structs

from collectors.agent.jobs_here import FILE_BYTES_MAX, JOBS_MAX, JobsHere
from telemetry.records import Event, Frame, Record, Steps
from telemetry.testing import ManualClock

SLURM = Path(__file__).parents[2] / "deploy" / "slurm"
AT_S = 1_700_000_000.0


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "run" / "jobs"


def slurm(script: str, directory: Path, shell: str = "sh", **environ: str) -> int:
    named = {"NODEWARDEN_JOBS_DIR": str(directory), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [shell, str(SLURM / script)], env={**named, **environ}, capture_output=True, check=False,
        timeout=20.0,
    )  # fmt: skip
    assert b"" == done.stdout + done.stderr
    return done.returncode


def jobs(directory: Path) -> JobsHere:
    here = JobsHere(directory, "n1", directory.parent / "proc", ManualClock(AT_S))
    assert [] == here.look()
    return here


def put(directory: Path, name: str, job: str, started_at: float = AT_S) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(json.dumps({"job": job, "started_at": started_at}), "utf-8")


def event(**more: object) -> Event:
    made = Event(at=AT_S + 1, node="n1", source="kernel", started_at=0.0, seq=0, type="xid",
                 text="", severity="critical")  # fmt: skip
    return structs.replace(made, **more)


def job_of(here: JobsHere, record: Record) -> str:
    stamped = here.stamped(record)
    assert isinstance(stamped, Event | Steps)
    return stamped.job


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_job_begins_and_ends_as_slurm_says(directory: Path, shell: str) -> None:
    environ = {"SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": "n[001-004,7],x-1", "SLURM_JOB_UID": "7"}
    assert 0 == slurm("prolog.sh", directory, shell, **environ)
    assert [("42", "n[001-004,7],x-1")] == [(one.job, one.nodes) for one in jobs(directory).jobs]
    assert b"uid" not in (directory / "42").read_bytes()
    assert 0 == slurm("epilog.sh", directory, shell, **environ)
    assert () == jobs(directory).jobs
    assert 0 == slurm("epilog.sh", directory, shell, **environ)  # once more


def test_a_task_of_an_array_is_named_as_squeue_names_it(directory: Path) -> None:
    array = {"SLURM_JOB_ID": "44", "SLURM_ARRAY_JOB_ID": "42", "SLURM_ARRAY_TASK_ID": "2"}
    slurm("prolog.sh", directory, **array)
    assert ["42_2"] == [one.job for one in jobs(directory).jobs]
    slurm("epilog.sh", directory, **array)
    assert () == jobs(directory).jobs


@pytest.mark.parametrize(
    "environ",
    [
        {}, {"SLURM_JOB_ID": ""}, {"SLURM_JOB_ID": "../../etc/x"}, {"SLURM_JOB_ID": '1"; rm'},
        {"SLURM_JOB_ID": "1\n2"}, {"SLURM_JOB_ID": "$(id)"},
    ],
)  # fmt: skip
def test_the_scripts_never_fail_and_write_nothing_that_is_no_job(
    directory: Path, environ: dict[str, str]
) -> None:
    assert 0 == slurm("prolog.sh", directory, **environ)
    assert 0 == slurm("epilog.sh", directory, **environ)
    assert not directory.exists() or [] == list(directory.iterdir())


def test_a_place_where_nothing_can_be_written_drains_no_node(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert 0 == slurm("prolog.sh", tmp_path / "file" / "jobs", SLURM_JOB_ID="1")
    assert 0 == slurm("epilog.sh", tmp_path / "file" / "jobs", SLURM_JOB_ID="1")


def test_records_of_this_node_name_the_job_where_they_name_none(directory: Path) -> None:
    put(directory, "42", "42")
    here = jobs(directory)
    steps = Steps(at=AT_S + 1, node="n1", source="training", started_at=0.0, seq=0, job="")
    assert ["42", "42"] == [job_of(here, event()), job_of(here, steps)]
    assert "mine" == job_of(here, event(job="mine"))
    assert "" == job_of(here, event(at=AT_S - 60.0))  # told of what was before the job
    assert "" == job_of(here, event(node="other"))
    assert "" == job_of(here, event(node=""))
    frame = Frame(at=AT_S, node="n1", source="gpu", started_at=0.0, seq=0, entities={}, metrics={})
    assert frame is here.stamped(frame)


def environ(directory: Path, process: int, *words: str) -> None:
    path = directory.parent / "proc" / str(process) / "environ"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(word.encode() + b"\x00" for word in words))


def test_a_task_of_an_array_takes_its_name_from_its_processes(directory: Path) -> None:
    """Slurm's prolog on a node is told only the plain number."""
    put(directory, "44", "44")
    clock = ManualClock(AT_S)
    here = JobsHere(directory, "n1", directory.parent / "proc", clock)
    here.look()
    assert "44" == job_of(here, event())  # it has no process yet
    environ(directory, 7, "SLURM_JOB_ID=4", "SLURM_ARRAY_JOB_ID=4", "SLURM_ARRAY_TASK_ID=1")
    environ(directory, 8, "A=b", "SLURM_ARRAY_TASK_ID=2", "SLURM_JOB_ID=44",
            "SLURM_ARRAY_JOB_ID=42")  # fmt: skip
    environ(directory, 9, "\udcff junk".encode("utf-8", "replace").decode())
    clock.advance(11.0)
    assert "42_2" == job_of(here, event())
    (directory.parent / "proc" / "8" / "environ").unlink()
    clock.advance(11.0)
    assert "42_2" == job_of(here, event())


def test_a_job_of_no_array_keeps_its_number(directory: Path) -> None:
    put(directory, "44", "44")
    environ(directory, 8, "SLURM_JOB_ID=44", "SLURM_ARRAY_TASK_ID=2", "SLURM_ARRAY_JOB_ID=../x")
    assert "44" == job_of(jobs(directory), event())


def test_two_jobs_on_a_node_name_nobody(directory: Path) -> None:
    put(directory, "42", "42")
    put(directory, "43", "43")
    assert "" == job_of(jobs(directory), event())


def test_changes_are_seen_and_a_directory_may_come_and_go(directory: Path) -> None:
    here = jobs(directory)
    assert not here.jobs
    for turn in range(3):
        put(directory, "42", f"{turn}")
        here.look()
        assert [f"{turn}"] == [one.job for one in here.jobs]
        (directory / "42").unlink()
        here.look()
        assert not here.jobs
    put(directory, "42", "42")
    (directory / "42").unlink()
    directory.rmdir()
    assert [] == here.look()
    assert () == here.jobs


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x00\xff" * 50, b"[]", b'{"job":""}', b'{"job":"1"}', b"[" * 5_000,
        b'{"job":"a\\nb","started_at":1.0}', b'{"job":"1","started_at":"now"}',
        b'{"job":"1","started_at":1.0}' + b" " * FILE_BYTES_MAX,
    ],
)  # fmt: skip
def test_a_file_that_is_no_job_is_told_of_once(directory: Path, data: bytes) -> None:
    put(directory, "42", "42")
    (directory / "junk").write_bytes(data)
    clock = ManualClock(AT_S)
    here = JobsHere(directory, "n1", directory.parent / "proc", clock)
    assert [str(directory / "junk")] == [one.place for one in here.look()]
    for _ in range(3):
        clock.advance(100.0)
        assert [] == here.look()
    assert ["42"] == [one.job for one in here.jobs]


def test_directories_links_to_nowhere_and_very_many_files_are_bounded(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / "sub").mkdir()
    (directory / "link").symlink_to("/nowhere")
    (directory / ".new").write_bytes(b"junk")
    for number in range(JOBS_MAX + 50):
        put(directory, str(number), str(number))
    assert JOBS_MAX == len(jobs(directory).jobs)
