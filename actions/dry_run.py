"""The executor that does nothing and says what it would have done."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from actions.ports import Executor
from telemetry.actions import Command, Outcome, Preconditions


class DryRun:
    """An Executor that changes nothing: every command is done.

    world  who would carry commands out; it is looked at, and never told anything. None: nothing
           is known
    """

    def __init__(self, time_s: Callable[[], float], world: Executor | None = None) -> None:
        self._time_s, self._world = time_s, world

    def observe(self, targets: Sequence[str], job: str = "") -> Preconditions:
        """As they are. Raises SourceUnavailable where nobody can see them."""
        return Preconditions() if self._world is None else self._world.observe(targets, job)

    def achieved(self, command: Command, now: Preconditions) -> bool | None:
        """Never: nothing is done."""
        return False

    def execute(self, command: Command) -> Outcome:
        """Say it."""
        what = " ".join([command.step or command.action, *command.targets])
        return Outcome(
            command=command.id, at=self._time_s(), status="done",
            reason=f"dry run: would {what}, and nothing was done",
        )  # fmt: skip
