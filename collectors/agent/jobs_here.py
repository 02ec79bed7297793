"""Which jobs run on this node, as Slurm's prolog and epilog leave it in a directory.

The inventory tells the fold; this is for the records of this node, which name their job from the
first second, also where nobody lists jobs.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, structs

from collectors.agent.array_names import array_name
from telemetry.codec import AT_MAX_S, name_fault, rejected
from telemetry.ports import Clock
from telemetry.records import Event, Record, Rejected, Steps

JOBS_MAX = 256
FILE_BYTES_MAX = 65_536
AGAIN_S = 60.0
FRESH_S = 2.0  # a directory that changed within this may change again without showing it
NAMED_AGAIN_S = 10.0
SLACK_S = 2.0  # the prolog writes whole seconds


class JobHere(msgspec.Struct, frozen=True):
    """One file: a job that holds this node. It names no user.

    nodes   Slurm's host list of the job, "" where the prolog was told none
    """

    job: Annotated[str, Meta(min_length=1, max_length=253)]
    started_at: Annotated[float, Meta(ge=0.0, lt=AT_MAX_S)]
    nodes: Annotated[str, Meta(max_length=FILE_BYTES_MAX)] = ""


_DECODER = msgspec.json.Decoder(JobHere)


class JobsHere:
    """The directory, looked at anew where it changed."""

    def __init__(self, directory: Path, node: str, proc: Path, clock: Clock) -> None:
        self._directory, self._node, self._clock = directory, node, clock
        self._proc = proc
        self._names: dict[str, str] = {}  # of jobs that are here, as squeue has them
        self._asked_s: float | None = None
        self._changed_ns: int | None = None
        self._read_s = 0.0
        self._told: dict[str, int] = {}  # broken files that were told of, by when they were written
        self.jobs: tuple[JobHere, ...] = ()

    def look(self) -> list[Rejected]:
        """Notice jobs that began or ended; what is no job, once."""
        try:
            changed_ns = os.stat(self._directory).st_mtime_ns
        except OSError:  # no prolog is installed, or nothing ran since the machine booted
            self._changed_ns, self.jobs = None, ()
            return []
        now_s, mono_s = self._clock.time_s(), self._clock.monotonic_s()
        settled = now_s - changed_ns / 1e9 > FRESH_S
        if changed_ns == self._changed_ns and mono_s - self._read_s < AGAIN_S:
            return []
        self._changed_ns, self._read_s = changed_ns if settled else None, mono_s
        return self._read()

    def stamped(self, record: Record) -> Record:
        """Names the job of a record of this node that names none; only where there is one job."""
        if not isinstance(record, Event | Steps) or record.job or len(self.jobs) != 1:
            return record
        job = self.jobs[0]
        if record.node != self._node or record.at < job.started_at - SLACK_S:
            return record
        return structs.replace(record, job=self._named(job.job))

    def _named(self, job: str) -> str:
        """Looked up when it is wanted: a job's processes begin after the prolog."""
        now_s = self._clock.monotonic_s()
        waits = self._asked_s is not None and now_s - self._asked_s < NAMED_AGAIN_S
        if job not in self._names and job.isdecimal() and not waits:
            self._asked_s = now_s
            name = array_name(self._proc, job)
            if name is not None:
                self._names[job] = name
        return self._names.get(job, job)

    def _read(self) -> list[Rejected]:
        jobs: dict[str, JobHere] = {}
        broken: list[Rejected] = []
        told: dict[str, int] = {}
        for path in self._files():
            try:
                with path.open("rb") as file:
                    written_ns = os.fstat(file.fileno()).st_mtime_ns
                    data = file.read(FILE_BYTES_MAX + 1)
            except OSError:  # it has ended meanwhile, or is a directory
                continue
            found = _job(data, str(path))
            if isinstance(found, JobHere):
                jobs[found.job] = found
                continue
            told[path.name] = written_ns
            if self._told.get(path.name) != written_ns:
                broken.append(found)
        self._told = told
        self.jobs = tuple(jobs.values())
        self._names = {job: name for job, name in self._names.items() if job in jobs}
        self._asked_s = None
        return broken

    def _files(self) -> list[Path]:
        try:
            with os.scandir(self._directory) as entries:
                names = (one for one in entries if not one.name.startswith("."))
                files = islice((one for one in names if one.is_file()), JOBS_MAX)
                return sorted(Path(one.path) for one in files)
        except OSError:
            return []


def _job(data: bytes, place: str) -> JobHere | Rejected:
    if len(data) > FILE_BYTES_MAX:
        return rejected(f"more than {FILE_BYTES_MAX} bytes", data, place)
    try:
        found = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return rejected(f"no job: {error}", data, place)
    fault = name_fault("job", found.job)
    return found if fault is None else rejected(fault, data, place)
