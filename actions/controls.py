"""What the engine is told of people and of steps that were made, as Control records.

Each has a place in the stream of the instance that took it (`Request.control`, `Outcome.control`),
which stands in the log of actions before it is sent: told again it is the same record, and the
engine takes it once.
"""

from __future__ import annotations

from typing import Literal

from actions.ledger import Ledger
from telemetry.actions import Command, Outcome, Request, Verb
from telemetry.attempts import Attempt
from telemetry.records import Control

SOURCE = "act"
_ACTIONS: dict[Verb, Literal["released", "false_alarm", "attempted"]] = {
    "release": "released", "false_alarm": "false_alarm", "tried": "attempted",
}  # fmt: skip


def control_of(request: Request) -> Control:
    """What a person released, called a false alarm, or tried."""
    assert request.control is not None, request
    started_at, seq = request.control
    return Control(
        at=request.at, node="", source=SOURCE, started_at=started_at, seq=seq,
        target=request.target, by=request.by,
        action=_ACTIONS[request.verb], attempt=request.attempt,
    )  # fmt: skip


def attempt_of(ledger: Ledger, command: Command, done: Outcome) -> Attempt | None:
    """The step of the ladder that was made; None where none was, or only in a dry run.

    Where a decision takes several commands, the job's restart completes it.
    """
    if command.step not in ("", "restart"):
        return None
    decision = ledger.decisions.get(command.decision)
    if decision is None or command.dry_run or done.status != "done" or not decision.incident:
        return None
    verdict = decision.verdict
    if verdict.step is None:
        return None
    evicts = verdict.step in ("eviction", "checked_eviction")
    return Attempt(
        step=verdict.step, at=done.at, incident=decision.incident, told=True,
        nodes=list(command.targets) if evicts else None,
    )  # fmt: skip


def attempted(command: Command, done: Outcome, attempt: Attempt) -> Control:
    """The same as the engine is told it."""
    assert done.control is not None, done
    started_at, seq = done.control
    return Control(
        at=done.at, node="", source=SOURCE, started_at=started_at, seq=seq,
        target=attempt.incident, by="act", action="attempted", attempt=attempt,
    )  # fmt: skip


def controls(ledger: Ledger, since_s: float) -> list[Control]:
    """All of them since then, in the order of their streams."""
    found = [
        control_of(one)
        for one in ledger.requests.values()
        if one.control is not None and one.at >= since_s
    ]
    for command in ledger.all_commands():
        done = ledger.outcomes.get(command.id)
        if done is None or done.control is None or done.at < since_s:
            continue
        step = attempt_of(ledger, command, done)
        if step is not None:
            found.append(attempted(command, done, step))
    return sorted(found, key=lambda one: (one.started_at, one.seq))
