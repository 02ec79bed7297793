"""The signal that wakes a job's launcher: SIGUSR1 to the batch step, through Slurm."""

from __future__ import annotations

import re
from collections.abc import Callable

from telemetry.errors import SourceUnavailable
from telemetry.launching import JOB_PATTERN
from telemetry.tools import Tools

WAKE_MAX_S = 5.0
SAID_MAX = 200
_JOB = re.compile(JOB_PATTERN)


def waking(scancel: str, tools: Tools) -> Callable[[str], str]:
    """F(job) -> why the signal was not sent, "" where it was; no port of the node is open for it.

    A signal that does not arrive costs no more than time: the launcher looks by itself.
    """

    def wake(job: str) -> str:
        if _JOB.fullmatch(job) is None:
            return f"{job[:40]!r} is no job's number"
        try:
            ran = tools.ran([scancel, "--signal=USR1", "--batch", job], WAKE_MAX_S)
        except SourceUnavailable as error:
            return str(error)
        return "" if ran.status == 0 else ran.said.strip()[:SAID_MAX] or f"exit {ran.status}"

    return wake
