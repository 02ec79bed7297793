"""What becomes of updates while the service works: they join restarts, or get one, and have run.

Says records and changes nothing, as the service does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from actions.ledger import Ledger
from actions.recovery.table import ENDED
from actions.versions import Register, changed, due, judged, rolled_back, told
from telemetry.actions import Command, Compared, Decision, Recovery, Update, decision_id
from telemetry.findings import Verdict
from telemetry.settings import ActSettings

CompareOf = Callable[[Update], list[Compared] | None]
UPDATE_RUNG = "planned_update"
NOT_ASKED = frozenset({"denied", "expired", "refused"})


def joined(register: Register, command: Command) -> list[Update]:
    """The update that the restart runs, said together with its intent."""
    update = register.pending(command.job)
    if update is None or command.step != "restart" or command.dry_run:
        return []
    why = f"the restart of decision {command.decision} runs it"
    return [changed(
        update, "joined", why, command.intent_at, decision=command.decision, command=command.id,
        joined_at=command.intent_at,
    )]  # fmt: skip


def taken_back(
    register: Register, recovery: Recovery, settings: ActSettings, now_s: float
) -> list[Update]:
    """What a rollback that the ladder advises runs: what ran before the newest update.

    Where nobody told what that is, the job is restarted as it is.
    """
    if recovery.action != "rollback" or recovery.dry_run or not recovery.job:
        return []
    found = rolled_back(
        register, recovery.job, urgent=False, by="nodewarden", note=f"decision {recovery.id}",
        now_s=now_s, forced_s=settings.versions.forced_s,
    )  # fmt: skip
    if isinstance(found, str):
        return []
    made = msgspec.structs.replace(found[-1], decision=recovery.id)
    return [*found[:-1], made]


def carried_over(register: Register, recovery: Recovery, now_s: float) -> list[Update]:
    """What the job runs under its new id, once it does; a rollback can name what ran before."""
    if recovery.state != "running" or not recovery.next_job or recovery.dry_run:
        return []
    runs = register.to_run(recovery.job)
    found = told(
        register, recovery.next_job, runs, by="nodewarden",
        note=f"job {recovery.job} was submitted again", now_s=now_s,
    )  # fmt: skip
    newest = register.pending(recovery.job) or register.newest(recovery.job)
    if isinstance(found, str) or newest is None:
        return []
    before = {kind: runs[kind] for kind in runs if kind not in newest.versions}
    return [msgspec.structs.replace(one, before={**before, **newest.before}) for one in found]


def news(
    ledger: Ledger, settings: ActSettings, compared: CompareOf, now_s: float
) -> list[Decision | Update]:
    """Restarts of their own for those that are due, and what became of the others' restarts.

    compared  what the steps say that were made again; None while nobody knows
    """
    said: list[Decision | Update] = []
    for update in ledger.versions.all():
        if update.state in ("ordered", "joined"):
            said += _settled(update, ledger, now_s)
        elif update.state == "waiting" and update.decision:
            said += _unneeded(update, ledger, now_s)
        elif update.state == "running" and (found := compared(update)) is not None:
            said.append(judged(update, found, now_s))
    if ledger.paused:
        return said
    busy = {job for one in ledger.live_recoveries() for job in one.jobs}
    for update in due(ledger.versions, now_s):
        if update.job not in busy:  # else it joins the restart that is under way
            decision = _restart(update, settings, now_s)
            why = "urgent" if update.urgent else "no restart came within its time"
            ordered = changed(update, "ordered", f"{why}: a restart of its own", now_s,
                              decision=decision.id)  # fmt: skip
            said += [decision, ordered]
    return said


def restarts(said: Sequence[Decision | Update]) -> list[Decision]:
    """The decisions of `news`."""
    return [one for one in said if isinstance(one, Decision)]


def _unneeded(update: Update, ledger: Ledger, now_s: float) -> list[Update]:
    """A rollback that no restart ran, because the job was not restarted after all."""
    recovery = ledger.recoveries.get(update.decision)
    if recovery is not None and recovery.state not in ENDED:
        return []
    why = "the job was not rolled back" if recovery is None else recovery.reason
    return [changed(update, "failed", why, now_s)]


def _settled(update: Update, ledger: Ledger, now_s: float) -> list[Update]:
    recovery = ledger.recoveries.get(update.decision)
    if recovery is None:
        decision = ledger.decisions.get(update.decision)
        if decision is not None and decision.state not in NOT_ASKED:
            return []
        why = "its restart was never begun" if decision is None else decision.reason
        return [changed(update, "failed", why, now_s)]
    if recovery.state not in ENDED:
        return []
    if recovery.state == "running" and update.state == "joined" and _restarted(recovery, update):
        return [changed(
            update, "running", "its steps are not compared yet", now_s, ran_at=now_s,
            next_job=recovery.next_job,
        )]  # fmt: skip
    if recovery.state == "running" and not update.urgent and update.forced_at > now_s:
        why = "the restart was not needed; it joins the next one"
        return [changed(update, "waiting", why, now_s, decision="", command="", joined_at=None)]
    return [changed(update, "failed", f"its restart: {recovery.reason}", now_s)]


def _restarted(recovery: Recovery, update: Update) -> bool:
    return recovery.stopped and not recovery.dry_run and recovery.id == update.decision


def _restart(update: Update, settings: ActSettings, now_s: float) -> Decision:
    """A person's own, as an isolation by hand is: budgets do not bind it, the audit says who."""
    names = ", ".join(f"{kind} {version}" for kind, version in sorted(update.versions.items()))
    verdict = Verdict(
        action="restart", reason=f"update {update.id} by {update.by}: {names}", targets=[],
        when="now", at=now_s, rung=UPDATE_RUNG,
    )  # fmt: skip
    made = Decision(
        id="", incident="", rev=0, at=now_s, verdict=verdict, mode="approve", rails=[],
        state="approved", reason=verdict.reason, by=update.by, job=update.job,
        expires_at=now_s + settings.command_s,
    )  # fmt: skip
    return msgspec.structs.replace(made, id=decision_id(update.id, verdict))
