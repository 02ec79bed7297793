"""The site's own command for jobs that allow no requeue: it submits them again, without nodes.

Called once and never again by itself: nobody can read back whether it did. Where it prints the new
job's id, as sbatch and slurmrestd do, the job is followed under that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from actions.executors.slurm_port import checked_job, checked_nodes
from telemetry.errors import SourceUnavailable
from telemetry.launching import VERSION_PATTERN
from telemetry.ports import Clock
from telemetry.tools import ENVIRONMENT, Tools

SAID_MAX = 200
_PRINTED = re.compile(
    r"^(?:Submitted batch job )?([1-9][0-9]{0,9})(?:;\S+| on cluster \S+)?\s*$", re.M
)
_VERSION = re.compile(VERSION_PATTERN)


class Resubmitted(NamedTuple):
    """What the command said, and under which id the job goes on; "" where it does not say."""

    said: str
    job: str = ""


Resubmit = Callable[[str, Sequence[str], Mapping[str, str]], Resubmitted]


class _Result(msgspec.Struct, frozen=True):
    job_id: int | None = None


class _Answer(msgspec.Struct, frozen=True):
    """Of slurmrestd to a submission; newer ones say it twice."""

    job_id: int | None = None
    result: _Result | None = None


def resubmit(
    words: Sequence[str], environment: Mapping[str, str], clock: Clock, left_s: Callable[[], float]
) -> Resubmit:
    """F(job, nodes to leave out, versions that it is to run).

    words        the command; it gets the job and the nodes, "n1,n2", as its last two arguments, and
                 versions as NODEWARDEN_CODE_VERSION and NODEWARDEN_CONFIG_VERSION, which sbatch
                 hands on to the job
    environment  beside the PATH
    left_s       how long it may take

    F raises SourceUnavailable where the command fails, or is not done in time.
    """

    def submit(job: str, excluded: Sequence[str], versions: Mapping[str, str]) -> Resubmitted:
        asked = [*words, checked_job(job), ",".join(checked_nodes(excluded))]
        given = {
            f"NODEWARDEN_{kind.upper()}_VERSION": version for kind, version in versions.items()
            if kind in ("code", "config") and _VERSION.fullmatch(version)
        }  # fmt: skip
        tools = Tools(clock, {**ENVIRONMENT, **environment, **given})
        done = tools.ran(asked, left_s())
        printed = done.printed.decode("utf-8", "replace")
        if done.status != 0:
            why = " ".join(done.said.split())[:SAID_MAX] or f"ends with status {done.status}"
            raise SourceUnavailable(f"{words[0]}: {why}")
        new = new_job(printed)
        return Resubmitted(" ".join(printed.split())[:SAID_MAX], "" if new == job else new)

    return submit


def new_job(printed: str) -> str:
    """The one job's id that sbatch, or slurmrestd's JSON, says; "" where there is none, or more."""
    try:
        answer = msgspec.json.decode(printed, type=_Answer)
    except (msgspec.DecodeError, RecursionError):
        found = set(_PRINTED.findall(printed))
    else:
        said = {answer.job_id, answer.result.job_id if answer.result is not None else None}
        found = {str(number) for number in said if number is not None and number > 0}
    return found.pop() if len(found) == 1 else ""
