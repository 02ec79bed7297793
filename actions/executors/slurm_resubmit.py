"""The site's own command for jobs that allow no requeue: it submits them again, without nodes.

Called once and never again by itself: nobody can read back whether it did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from actions.executors.slurm_port import checked_job, checked_nodes
from telemetry.errors import SourceUnavailable
from telemetry.ports import Clock
from telemetry.tools import ENVIRONMENT, Tools

SAID_MAX = 200


def resubmit(
    words: Sequence[str], environment: Mapping[str, str], clock: Clock, left_s: Callable[[], float]
) -> Callable[[str, Sequence[str]], str]:
    """F(job, nodes to leave out) -> what the command said, the new job's id if it prints one.

    words        the command; it gets the job and the nodes, "n1,n2", as its last two arguments
    environment  beside the PATH
    left_s       how long it may take

    F raises SourceUnavailable where the command fails, or is not done in time.
    """
    tools = Tools(clock, {**ENVIRONMENT, **environment})

    def submit(job: str, excluded: Sequence[str]) -> str:
        asked = [*words, checked_job(job), ",".join(checked_nodes(excluded))]
        done = tools.ran(asked, left_s())
        said = " ".join(done.printed.decode("utf-8", "replace").split())[:SAID_MAX]
        if done.status != 0:
            why = " ".join(done.said.split())[:SAID_MAX] or f"ends with status {done.status}"
            raise SourceUnavailable(f"{words[0]}: {why}")
        return said

    return submit
