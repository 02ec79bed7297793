"""By what an incident was resolved; the words of ByteRobust's Table 4, and what else there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from actions.accounting.deeds import Course, Deed
from actions.policy.group import GROUP
from telemetry.accounts import Mechanism, MechanismShare
from telemetry.actions import Update
from telemetry.attempts import Step
from telemetry.findings import ISOLATING

# The order in which they are shown.
MECHANISMS: tuple[Mechanism, ...] = (
    "eviction_restart", "hot_update", "analyser_eviction", "rollback", "retry", "quarantine",
    "human", "restart_by_others", "by_itself",
)  # fmt: skip
_BY_STEP: dict[Step, Mechanism] = {
    "retry": "retry", "rollback": "rollback", "quarantine": "quarantine",
}  # fmt: skip


def mechanism_of(
    done: Sequence[tuple[Course, Deed]], *, by_hand: bool, restarted: bool
) -> Mechanism:
    """What resolved a closed incident, of whose decisions everything is known.

    done       what was really done for it, oldest first: the last resolved it
    by_hand    a person took a suspect out, or said that a step of theirs worked
    restarted  its job was started anew while it was open
    """
    for course, deed in reversed(done):
        found = _of_deed(course, deed)
        if found is not None:
            return found
    if by_hand:
        return "human"
    return "restart_by_others" if restarted else "by_itself"


def _of_deed(course: Course, deed: Deed) -> Mechanism | None:
    verdict, command = course.newest.verdict, deed.command
    if command.action == "release":
        return None
    if verdict.step is not None and verdict.step in _BY_STEP:
        return _BY_STEP[verdict.step]
    if command.action in ISOLATING:
        return "analyser_eviction" if verdict.rung == GROUP.name else "eviction_restart"
    if command.action == "rollback":
        return "rollback"
    if command.action == "restart":
        return "retry"
    return None


def of_update(update: Update) -> Mechanism:
    """A planned restart; what takes an update back is a rollback."""
    return "rollback" if update.undoes else "hot_update"


def shares(mechanisms: Iterable[Mechanism | None]) -> list[MechanismShare]:
    """Of the known ones; those that never were are left out."""
    counts = Counter(one for one in mechanisms if one is not None)
    total = counts.total()
    return [MechanismShare(one, counts[one], counts[one] / total) for one in MECHANISMS
            if counts[one]]  # fmt: skip
