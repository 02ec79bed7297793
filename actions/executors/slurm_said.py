"""What came of one thing that was asked of Slurm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from telemetry.actions import OutcomeStatus
from telemetry.errors import SourceUnavailable

_BAD: tuple[OutcomeStatus, ...] = ("done", "refused", "failed", "unknown")


class Did(NamedTuple):
    """How it ended, and why."""

    status: OutcomeStatus
    reason: str


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


def worst(said: Sequence[Did]) -> OutcomeStatus:
    """Of several the one that matters most to a person; nothing to do is done."""
    return max((one.status for one in said), key=_BAD.index, default="done")
