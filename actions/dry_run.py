"""The executor that does nothing and says what it would have done."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from telemetry.actions import Command, Outcome, Preconditions


class DryRun:
    """An Executor without a world: nothing is observed, and every command is done."""

    def __init__(self, time_s: Callable[[], float]) -> None:
        self._time_s = time_s

    def observe(self, targets: Sequence[str], job: str = "") -> Preconditions:
        """Nothing is known of them."""
        return Preconditions()

    def achieved(self, command: Command, now: Preconditions) -> bool | None:
        """Never: there is no world in which it could be so."""
        return False

    def execute(self, command: Command) -> Outcome:
        """Say it."""
        does = command.step or command.action
        what = " ".join([does, *command.targets, *([command.mode] if command.mode else [])])
        return Outcome(
            command=command.id, at=self._time_s(), status="done",
            reason=f"dry run: would {what}, and nothing was done",
        )  # fmt: skip
