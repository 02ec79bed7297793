"""One step of bringing a job back. Pure: decides what is to be commanded, and commands nothing.

A call that may have been made is never made again: what became of it is read back, and where
nobody can tell, or not in time, a person is paged. So every state has an end, and none a loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import msgspec

from actions.recovery.table import ENDED, OF_TARGETS, RESTARTING, ROWS, Happening
from telemetry.actions import (
    CommandStep,
    Decision,
    OutcomeStatus,
    Passage,
    Recovery,
    RestartMode,
    command_id,
)
from telemetry.settings import RecoverySettings

HISTORY_MAX = 40
PAUSED = "a person paused everything"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Time passed: what is seen of the job and of the last command. None where nobody knows.

    over          why nothing is to be done any more; "" where it is not so
    ended         why the job needs no restart: it ended, or runs elsewhere, by itself; "" else
    objection     what rails say against stopping the job; "" nothing
    exited, stands_still   a process of the job ended; its communication timed out
    checkpoint_at when the newest checkpoint was whole
    progresses    the job still ends steps
    replacements  nodes that are free for it
    busy          another recovery of the same job is under way
    pending       more of the job is known in a moment
    achieved      what the last command wanted is so
    runs          the job runs
    """

    over: str = ""
    ended: str = ""
    objection: str = ""
    paused: bool = False
    busy: bool = False
    pending: bool = False
    exited: bool = False
    stands_still: bool = False
    checkpoint_at: float | None = None
    progresses: bool | None = None
    replacements: int | None = None
    achieved: bool | None = None
    runs: bool | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of the last command; `prevented`: a check refused it, nobody was called.

    next_job  under which id the job goes on; "" where it has its own
    """

    status: OutcomeStatus
    reason: str
    prevented: bool = False
    next_job: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be commanded next."""

    step: CommandStep
    mode: RestartMode | None
    attempt: int
    expires_at: float


Event = Look | Answer
Next = tuple[Recovery, Order | None]


def recovers(decision: Decision) -> bool:
    """Whether it takes more than one command. A quarantine's nodes go at once."""
    return decision.verdict.action in RESTARTING and decision.verdict.step != "quarantine"


def begin(decision: Decision, settings: RecoverySettings, dry_run: bool, now_s: float) -> Recovery:
    """The recovery that an approved decision asks for."""
    verdict = decision.verdict
    modes = [one for one in settings.modes if verdict.targets or one not in OF_TARGETS]
    return Recovery(
        id=decision.id, incident=decision.incident, job=decision.job, action=verdict.action,
        when=verdict.when, targets=list(verdict.targets), state="suspect", since=now_s, at=now_s,
        began_at=now_s, reason=f"{verdict.action}: {decision.reason}", modes_left=modes,
        out=not verdict.targets, dry_run=dry_run,
    )  # fmt: skip


def step(recovery: Recovery, event: Event, settings: RecoverySettings, now_s: float) -> Next:
    """What it becomes, unchanged (the same object) where nothing does, and what to command."""
    if recovery.state in ENDED:
        return recovery, None
    match event:
        case Answer():
            return _answered(recovery, event, settings, now_s), None
        case Look():
            return _looked(recovery, event, settings, now_s)
        case _:
            assert_never(event)


def limit_s(recovery: Recovery, settings: RecoverySettings, busy: bool = False) -> float:
    """How long its state may last, seconds."""
    limit = ROWS[recovery.state].limit
    if limit != "now_s":
        return float(getattr(settings, limit)) if limit else float("inf")
    waits_s = {
        "now": settings.now_s, "at_checkpoint": settings.checkpoint_s,
        "at_job_end": settings.job_end_s,
    }[recovery.when]  # fmt: skip
    return max(waits_s, settings.restart_s + settings.checkpoint_s) if busy else waits_s


# -- an answer


def _answered(
    recovery: Recovery, answer: Answer, settings: RecoverySettings, now_s: float
) -> Recovery:
    if not recovery.command or recovery.answered is not None:
        return recovery  # heard before
    may_be_stopped = recovery.state == "stopping" and answer.status in ("done", "failed", "unknown")
    if may_be_stopped:
        recovery = msgspec.structs.replace(recovery, stopped=True)
    if answer.prevented or _is_final_no(recovery, answer):
        return _held_back(recovery, answer, settings, now_s)
    match answer.status:
        case "refused" if recovery.state == "cleaning" and recovery.mode == "requeue":
            return _left(recovery, "needless", answer.reason, now_s)
        case "refused" | "failed":
            return _left(recovery, answer.status, answer.reason, now_s)
        case "done" | "unknown":
            return _changed(
                recovery, now_s, answered=answer.status, reason=answer.reason,
                next_job=answer.next_job or recovery.next_job,
            )  # fmt: skip
        case _:
            assert_never(answer.status)


def _is_final_no(recovery: Recovery, answer: Answer) -> bool:
    """A refusal after which no other mode is left. Nothing was done: it may be a passing one."""
    scheduler_cleans = recovery.state == "cleaning" and recovery.mode == "requeue"
    return answer.status == "refused" and not scheduler_cleans and (
        recovery.state == "suspect" or not recovery.modes_left
    )  # fmt: skip


def _held_back(
    recovery: Recovery, answer: Answer, settings: RecoverySettings, now_s: float
) -> Recovery:
    """It gets another intent, but not without end."""
    tries = recovery.tries + 1
    if tries >= settings.tries_max:
        why = f"held back {tries} times, the last time because: {answer.reason}"
        return _left(recovery, "prevented" if answer.prevented else "refused", why, now_s)
    return _changed(
        recovery, now_s, command="", attempt=recovery.attempt + 1, tries=tries,
        reason=f"held back: {answer.reason}",
    )  # fmt: skip


# -- a look


def _looked(recovery: Recovery, seen: Look, settings: RecoverySettings, now_s: float) -> Next:
    if recovery.command and recovery.answered is None:
        return recovery, None  # its call is under way, or whoever made it is left alone for a while
    if not recovery.stopped and recovery.state in ("suspect", "stopping") and seen.over:
        return _left(recovery, "over", seen.over, now_s), None
    moved = _read_back(recovery, seen, now_s) if recovery.command else _idle(recovery, seen, now_s)
    if moved is not recovery:
        return moved, None
    most_s = limit_s(recovery, settings, seen.busy)
    if now_s - recovery.since >= most_s:
        why = f"after {most_s:g} s in {recovery.state}: {_wait(recovery, seen, now_s)}"
        return _left(recovery, "timed_out", why, now_s), None
    if recovery.command or not _may_order(recovery, seen, settings, now_s):
        return recovery, None
    return _ordered(recovery, now_s, most_s)


def _read_back(recovery: Recovery, seen: Look, now_s: float) -> Recovery:
    """A call that was made: whether the world is as it was to become."""
    if recovery.dry_run:
        return _done(recovery, recovery.reason, now_s)
    if seen.achieved is None:
        if recovery.answered == "unknown":
            return _left(recovery, "unreadable", f"nobody can tell: {recovery.reason}", now_s)
        return _done(recovery, f"{recovery.reason}; nobody reads it back", now_s)
    if not seen.achieved or (recovery.state == "restarting" and seen.runs is False):
        return recovery
    said = "found done, after no answer" if recovery.answered == "unknown" else recovery.reason
    if recovery.state == "restarting" and seen.runs:  # the answer may be older: "PENDING"
        said = f"the job runs; {said}"
    return _done(recovery, said, now_s)


def _done(recovery: Recovery, reason: str, now_s: float) -> Recovery:
    if recovery.state == "suspect":  # it goes on waiting for its trigger
        return _changed(recovery, now_s, command="", answered=None, out=True, reason=reason)
    return _left(recovery, "done", reason, now_s)


def _idle(recovery: Recovery, seen: Look, now_s: float) -> Recovery:
    """No command is out: it may be time for the next state, without one."""
    if recovery.state == "suspect" and recovery.out:
        ended = seen.ended if recovery.job else "no job is named: nothing is to be restarted"
        if ended:
            return _left(recovery, "over", ended, now_s)
        trigger = _trigger(recovery, seen)
        return _left(recovery, "triggered", trigger, now_s) if trigger else recovery
    if recovery.state == "stopping" and seen.ended:  # the run that runs now is not the one meant
        return _left(recovery, "over", seen.ended, now_s)
    swaps = recovery.mode == "replacement" and bool(recovery.targets)
    if recovery.state == "replacing" and not swaps:
        return _left(recovery, "needless", f"not needed for {recovery.mode}", now_s)
    return recovery


def _trigger(recovery: Recovery, seen: Look) -> str:
    """Why it is time to stop the job; "" where it is not."""
    if recovery.dry_run:
        return "dry run: nothing is waited for"
    if seen.paused or seen.objection or seen.busy:
        return ""
    if seen.exited:
        return "a process of the job exited"
    if seen.stands_still and seen.progresses is not True:
        return "the job's communication timed out"
    if seen.pending or _lacks(recovery, seen):
        return ""
    if recovery.when == "now":
        return "at once"
    newest = seen.checkpoint_at
    if recovery.when == "at_checkpoint" and newest is not None and newest >= recovery.began_at:
        return f"a checkpoint is whole since {newest:.3f}"
    return ""


def _lacks(recovery: Recovery, seen: Look) -> bool:
    """A job that still progresses is not killed unless others can take the place of what goes."""
    enough = seen.replacements is not None and seen.replacements >= len(recovery.targets)
    return bool(recovery.targets) and seen.progresses is True and not enough


def _wait(recovery: Recovery, seen: Look, now_s: float) -> str:
    """What was waited for, in words."""
    if recovery.command:
        call = "after no answer it" if recovery.answered == "unknown" else "it was taken, and"
        runs = ", and the job does not run" if seen.runs is False else ""
        return f"{call} is not seen to be done{runs}"
    if seen.paused:
        return PAUSED
    if recovery.state != "suspect":
        return recovery.reason
    if not recovery.out:
        return seen.objection or recovery.reason
    if seen.busy:
        return "another recovery of the job is under way"
    if seen.objection:
        return seen.objection
    if _lacks(recovery, seen):
        free = "nobody knows how many" if seen.replacements is None else str(seen.replacements)
        return f"the job progresses, and {free} of {len(recovery.targets)} replacements are free"
    return {
        "now": "no trigger",
        "at_checkpoint": "no checkpoint",
        "at_job_end": "no end of the job",
    }[recovery.when]


def _may_order(
    recovery: Recovery, seen: Look, settings: RecoverySettings, now_s: float
) -> bool:  # fmt: skip
    if seen.paused or (recovery.state == "suspect" and recovery.out):
        return False
    if recovery.state == "suspect" and seen.objection:
        return False
    return recovery.tries == 0 or now_s - recovery.at >= settings.look_s * 2.0**recovery.tries


def _ordered(recovery: Recovery, now_s: float, most_s: float) -> Next:
    wanted = ROWS[recovery.state].step
    assert wanted, recovery
    name = command_id(recovery.id, wanted, recovery.attempt)
    order = Order(wanted, recovery.mode, recovery.attempt, recovery.since + most_s)
    return _changed(recovery, now_s, command=name), order


# -- from state to state


def _left(recovery: Recovery, on: Happening, reason: str, now_s: float) -> Recovery:
    """The state that follows, by the table."""
    edge = ROWS[recovery.state].edge(on)
    passed = Passage(recovery.state, recovery.since, now_s, reason)
    changed = _changed(
        recovery, now_s, state=edge.to, since=now_s, reason=reason, tries=0, command="",
        answered=None, history=[*recovery.history, passed][-HISTORY_MAX:],
    )  # fmt: skip
    if not edge.falls_back and on != "triggered":
        return changed
    if not recovery.modes_left:
        why = f"{reason}; no other way of restarting is left"
        return msgspec.structs.replace(changed, state="escalated", reason=why)
    mode, *left = recovery.modes_left
    first = recovery.mode is None
    why = reason if first else f"{recovery.mode} does not work ({reason}): {mode} instead"
    return msgspec.structs.replace(
        changed, mode=mode, modes_left=left, reason=why,
        attempt=recovery.attempt + (0 if first else 1),
    )  # fmt: skip


def _changed(recovery: Recovery, now_s: float, **changes: object) -> Recovery:
    """Said again, in its next revision."""
    return msgspec.structs.replace(recovery, revision=recovery.revision + 1, at=now_s, **changes)
