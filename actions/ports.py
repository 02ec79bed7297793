"""What the action service asks of the world: somebody who carries commands out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from telemetry.actions import ActionRecord, Command, Decision, Outcome, Preconditions
from telemetry.findings import Incident


class Executor(Protocol):
    """Carries commands out. Raises SourceUnavailable where the world does not answer."""

    def observe(self, targets: Sequence[str], job: str = "") -> Preconditions:
        """How the targets and the job stand now; a job of "" is none."""
        ...

    def achieved(self, command: Command, now: Preconditions) -> bool | None:
        """Whether what the command wants is so already; None where nobody can read that back.

        Of a restart: whether it took effect (the job's run is another one, or the launcher did
        it), not whether the job runs by now; that is `job_state`.
        """
        ...

    def execute(self, command: Command) -> Outcome:
        """Do it, once. A failure that is certain is an Outcome; one that is not is `unknown`.

        What is not supported, or not for this job, is `refused`: the next mode is tried.
        """
        ...


class Looks(Protocol):
    """Looks how nodes are, in its own time: who asks waits for nothing."""

    def ask(self, nodes: Sequence[str]) -> None:
        """Begin a look; whoever asks again first waits for its answer."""
        ...

    def answer(self) -> Preconditions | None:
        """What it found, told once; None while it is under way.

        Raises SourceUnavailable where nobody answered.
        """
        ...


class LooksAtOnce:
    """A `Looks` for what answers at once."""

    def __init__(self, world: Executor) -> None:
        self._world = world
        self._nodes: Sequence[str] | None = None

    def ask(self, nodes: Sequence[str]) -> None:
        """See the port."""
        self._nodes = nodes

    def answer(self) -> Preconditions | None:
        """See the port."""
        nodes, self._nodes = self._nodes, None
        return None if nodes is None else self._world.observe(nodes)


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What others than the scheduler know of a job; None where nobody does.

    progresses     it still ends steps
    stands_still   its communication timed out
    checkpoint_at  when its newest checkpoint was whole, Unix seconds
    replacements   nodes that are free for it
    pending        somebody reads it just now: it is known in a moment
    """

    progresses: bool | None = None
    stands_still: bool | None = None
    checkpoint_at: float | None = None
    replacements: int | None = None
    pending: bool = False


class ActionLog(Protocol):
    """`nodewarden.actions`, of which this instance alone is the writer."""

    def commit(self, records: Sequence[ActionRecord]) -> None:
        """Return when all of them are in the log.

        Raises Fenced where another instance has taken over, PublishError where it is not known
        whether they are in; after either nothing more can be written.
        """
        ...


class Teller(Protocol):
    """Tells people; makes no call while it is asked, but later, in its own time."""

    def take(self, incident: Incident, decision: Decision | None = None) -> None:
        """A revision of an incident, with what was decided; an older one changes nothing."""
        ...

    def acknowledge(self, incident: str, by: str) -> int:
        """Somebody has it; returns how many pages that are."""
        ...

    def changed(self, change_id: str, incident: str, summary: str, targets: Sequence[str]) -> None:
        """A node was isolated or given back; the same `change_id` is told once."""
        ...

    def save(self) -> None:
        """Return when what was taken is kept. Raises SourceUnavailable."""
        ...
