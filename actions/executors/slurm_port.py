"""What the Slurm executor asks of Slurm, whichever way it is reached: commands or slurmrestd."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from telemetry.errors import SourceUnavailable
from telemetry.ports import Clock
from telemetry.slurm_words import HOLDS_NODES, JobState, NodeState

# A name and nothing but a name: "n[1-9]" or "n1,n2" would be many nodes, "-x" an option.
NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,252}")
JOB_ID = re.compile(r"[1-9][0-9]{0,9}(?:_[0-9]{1,9})?")
_HELD = frozenset({"REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
_STARTED = HOLDS_NODES - {"COMPLETING"}
GIVEN_BACK = "given back by nodewarden"
"""Newer Slurm keeps the reason of a drain that is taken off, and would drain under it again."""
BEGIN_IN_S = 2
"""A requeued job begins no sooner. Of a job that starts within the second in which its last run was
killed slurmd says "already killed, do not launch", and Slurm fails it for good.
"""
JobChange = Literal["cancel", "requeue_hold", "release", "begin_now"]


class NodeSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A node as Slurm says it is; times are Unix seconds, None where nothing was said.

    name       as Slurm spells it
    reason     why it is out, "" where nobody said; reason_by: who said so
    """

    name: str
    state: NodeState
    reason: str = ""
    reason_by: str = ""
    boot_at: float | None = None

    @property
    def is_drained(self) -> bool:
        """Drained or draining, or marked as failing, which keeps jobs away as well."""
        return bool({"DRAIN", "FAIL"} & set(self.state.flags))

    @property
    def is_known(self) -> bool:
        """Whether every word of its state is; with an unknown one nothing is done to it."""
        return self.state.base not in (None, "UNKNOWN") and not self.state.unknown


class JobSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A job as Slurm says it is; None where nothing was said.

    id          as it was asked for: "12", or "12_3" for a task of an array
    restarts    how often it was requeued so far
    nodes       where it runs, or what is still being cleaned of it
    may_requeue whether its owner allows it
    is_batch    an interactive one cannot be started again
    is_held     it waits until somebody releases it
    excluded    nodes that it must not get; required: those that it must, by its owner's word
    begins_at   not before it
    user        whose it is, a user id
    """

    id: str
    state: JobState
    restarts: int | None = None
    nodes: tuple[str, ...] = ()
    may_requeue: bool | None = None
    is_batch: bool | None = None
    is_held: bool | None = None
    excluded: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    begins_at: float | None = None
    user: int | None = None

    @property
    def words(self) -> frozenset[str]:
        """All words of its state."""
        return frozenset((self.state.word, *self.state.flags))

    @property
    def is_known(self) -> bool:
        """Whether its state is one that we know."""
        return self.state.ended is not None

    @property
    def is_completing(self) -> bool:
        """Processes of its last run may still be on its nodes."""
        return "COMPLETING" in self.words

    @property
    def runs(self) -> bool:
        """Whether it holds nodes for work."""
        return bool(self.words & _STARTED) and not self.is_completing

    @property
    def waits(self) -> bool:
        """Whether Slurm may start it."""
        return "PENDING" in self.words and not self.held

    @property
    def held(self) -> bool:
        """Whether it waits for a person's, or our, release."""
        return bool(self.is_held) or bool(self.words & _HELD)

    @property
    def is_over(self) -> bool:
        """Whether it ended and does not come again."""
        return self.state.ended is True and self.state.word not in ("REQUEUED", "SPECIAL_EXIT")


class SlurmController(Protocol):
    """slurmctld, as an administrator reaches it.

    Each method raises SourceUnavailable where nobody can tell what is, or whether a change was
    made. A change returns "" where Slurm took it, else why it certainly did not.
    """

    def nodes(self, names: Sequence[str]) -> Mapping[str, NodeSeen]:
        """Those of the names that Slurm knows; the others it says it does not have."""
        ...

    def job(self, name: str) -> JobSeen | None:
        """A job; None where Slurm says that it has none of that name."""
        ...

    def drain(self, names: Sequence[str], reason: str) -> str:
        """Give them no more work, and write down why."""
        ...

    def undrain(self, names: Sequence[str]) -> str:
        """Take the drain off, and nothing else: a node that is down stays down."""
        ...

    def change(self, job: str, what: JobChange) -> str:
        """Something that is done to a job as a whole."""
        ...

    def exclude(self, job: str, nodes: Collection[str]) -> str:
        """It gets none of these from now on; what it excluded before is to be among them."""
        ...


class CallTime:
    """How long one call of the executor may still take.

    A standby takes an intent over after `act.call_timeout_s`: whatever we do is over by then.
    """

    def __init__(self, clock: Clock, total_s: float, one_s: float) -> None:
        """`total_s` of a call, `one_s` of each question within it."""
        self._clock, self.total_s, self._one_s = clock, total_s, one_s
        self._until_s = clock.monotonic_s() + total_s

    def begin(self) -> None:
        """A call begins."""
        self._until_s = self._clock.monotonic_s() + self.total_s

    def spare_s(self) -> float:
        """What is left of the call, not below 0."""
        return max(self._until_s - self._clock.monotonic_s(), 0.0)

    def left_s(self) -> float:
        """For the next question. Raises SourceUnavailable where there is none."""
        spare_s = self.spare_s()
        if spare_s <= 0.0:
            raise SourceUnavailable(f"Slurm: the call is not done within {self.total_s:g} s")
        return min(spare_s, self._one_s)


def checked_nodes(names: Collection[str]) -> list[str]:
    """The names as they are. Raises ValueError where one is more, or less, than a node's name."""
    wrong = next((name for name in names if NODE_NAME.fullmatch(name) is None), None)
    if wrong is not None:
        raise ValueError(f"{wrong[:80]!r} is no name of one node")
    return list(names)


def checked_job(name: str) -> str:
    """The id as it is. Raises ValueError where it names no single job."""
    if JOB_ID.fullmatch(name) is None:
        raise ValueError(f"{name[:80]!r} is no id of one Slurm job")
    return name
