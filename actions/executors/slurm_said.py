"""What came of one thing that was asked of Slurm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from actions.executors.slurm_port import CallTime
from telemetry.actions import OutcomeStatus
from telemetry.errors import SourceUnavailable
from telemetry.ports import Clock

LOOK_AGAIN_S, AT_ONCE_S = (0.2, 0.5), 1.0
Seen = TypeVar("Seen")
_BAD: tuple[OutcomeStatus, ...] = ("done", "refused", "failed", "unknown")


class Did(NamedTuple):
    """How it ended, and why; `next_job`: under which other id the job goes on, "" under none."""

    status: OutcomeStatus
    reason: str
    next_job: str = ""


class Told(NamedTuple):
    """What Slurm answered to a change: `refusal` is certain; `silence` is why nobody knows."""

    refusal: str = ""
    silence: str = ""

    def undone(self, what: str) -> Did:
        """What to say where the change is not seen; `what`: how things are instead."""
        if self.refusal:
            return Did("failed", f"Slurm refuses: {self.refusal}; {what}")
        if self.silence:
            return Did("unknown", f"{self.silence}; {what}")
        return Did("unknown", f"Slurm says it is done; {what}")


def told(change: Callable[[], str]) -> Told:
    """Make the change. No answer is an answer too: whoever asked looks how things are."""
    try:
        return Told(refusal=change())
    except SourceUnavailable as error:
        return Told(silence=str(error))


def patiently(look: Callable[[], Seen], clock: Clock, time: CallTime) -> Seen:
    """What is seen. A look that fails at once is made again: slurmrestd has such moments. One that
    takes long is not, for the service waits.

    Raises SourceUnavailable of the last one.
    """
    for wait_s in LOOK_AGAIN_S:
        began_s = clock.monotonic_s()
        try:
            return look()
        except SourceUnavailable:
            if clock.monotonic_s() - began_s > AT_ONCE_S or time.spare_s() <= wait_s:
                raise
            clock.sleep(wait_s)
    return look()


def worst(said: Sequence[Did]) -> OutcomeStatus:
    """Of several the one that matters most to a person; nothing to do is done."""
    return max((one.status for one in said), key=_BAD.index, default="done")
