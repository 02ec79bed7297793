"""A scheduler's executor, and the launcher of the job for what happens within an allocation.

Restarts that keep the allocation are the launcher's; whatever else is the scheduler's. A requeue
that is to run other versions leaves them where the job's next launcher finds them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from actions.executors.launch import Launches, Left, by_launcher
from actions.ports import Executor
from telemetry.actions import Command, Outcome, Preconditions
from telemetry.errors import SourceUnavailable
from telemetry.launching import Phase
from telemetry.ports import Clock

_WORDS: dict[Phase, str] = {
    "failed": "FAILED", "stopping": "STOPPED", "stopped": "STOPPED", "cleaning": "STOPPED",
}  # fmt: skip


class WithLauncher:
    """An `Executor`."""

    def __init__(self, scheduler: Executor, launches: Launches, clock: Clock) -> None:
        self._scheduler, self._launches, self._clock = scheduler, launches, clock

    def observe(self, targets: Sequence[str], job: str = "") -> Preconditions:
        """See the port: as the scheduler knows it, and of a running job what its launcher says.

        A job whose processes failed still runs to the scheduler, which holds its nodes.
        """
        found = self._scheduler.observe(targets, job)
        try:
            said = self._launches.fresh_status(job, found.job_user) if job else None
        except SourceUnavailable:  # the scheduler's word is enough to act on
            said = None
        if said is None or said.attempt != found.attempt or found.job_state != "RUNNING":
            return found
        nodes = sorted(part.node for part in said.parts)
        return msgspec.structs.replace(
            found, job_nodes=nodes, job_state=_WORDS.get(said.phase, found.job_state),
            job_spares=len(said.spares),
        )  # fmt: skip

    def achieved(self, command: Command, now: Preconditions) -> bool | None:
        """See the port."""
        if by_launcher(command):
            return self._launches.achieved(command, now.job_user)
        return self._scheduler.achieved(command, now)

    def execute(self, command: Command) -> Outcome:
        """See the port."""
        if by_launcher(command):
            if command.dry_run:
                return Outcome(
                    command=command.id, at=self._clock.time_s(), status="refused",
                    reason="it was written for a dry run",
                )  # fmt: skip
            return self._launches.execute(command)
        if command.step != "restart" or not command.versions or command.dry_run:
            return self._scheduler.execute(command)
        left = self._left(command)
        done = self._scheduler.execute(command)
        said = left.said
        if done.status in ("refused", "failed"):
            said = self._taken_back(left)
        elif done.next_job:  # no launcher of this job comes again, and the other was told
            self._taken_back(left)
            return done
        return msgspec.structs.replace(done, reason=f"{done.reason}; {said}")

    def _left(self, command: Command) -> Left:
        """Before the restart, for it may begin at once; which does not wait for it."""
        try:
            return self._launches.leave_versions(command)
        except SourceUnavailable as error:
            return Left(f"it runs its old versions: {error}")

    def _taken_back(self, left: Left) -> str:
        try:
            return self._launches.take_back(left)
        except SourceUnavailable as error:
            return f"its next run may have the new versions: {error}"
