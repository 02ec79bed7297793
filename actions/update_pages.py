"""Tells people of updates that changed what is learned or how fast, or that did not come about.

Each is an incident of its own to whom it is told, under the update's id. It is over when a person
acknowledges that, or when other versions are asked for: until then it is the job's newest word.
"""

from __future__ import annotations

from collections.abc import Iterator

from actions.ledger import Ledger
from actions.ports import Teller
from actions.reruns import NOT_FINITE
from telemetry.actions import Update
from telemetry.findings import Cause, Incident, Kind, Verdict
from telemetry.records import Severity


class UpdatePages:
    """Tells each once, and once more when it is over; an instance that takes over tells again."""

    def __init__(self, ledger: Ledger, teller: Teller | None) -> None:
        self._ledger, self._teller = ledger, teller
        self._told: dict[str, bool] = {}  # update -> whether it was told as over

    def tell(self, now_s: float) -> bool:
        """Those of which people do not know yet; whether there was any. Nobody is told of a dry
        run, of what a person denied, or of a restart that is paged as a person's already.
        """
        if self._teller is None:
            return False
        told, said = dict[str, bool](), False
        for update, newer_at in self._cases():
            over_at = self._over_at(update, newer_at)
            is_over = over_at is not None
            snoozed = not is_over and self._ledger.snoozed.get(update.id, 0.0) > now_s
            if self._told.get(update.id) != is_over and not snoozed:
                self._teller.take(page(update, over_at))
                self._told[update.id], said = is_over, True
            if update.id in self._told:
                told[update.id] = self._told[update.id]
        self._told = told
        return said

    def _cases(self) -> Iterator[tuple[Update, float | None]]:
        """And when a newer update of the same job was asked for; None where none was."""
        before: Update | None = None
        for update in self._ledger.versions.all():  # job by job, oldest first
            if before is not None and self._is_told(before):
                yield before, update.asked_at if update.job == before.job else None
            before = update
        if before is not None and self._is_told(before):
            yield before, None

    def _is_told(self, update: Update) -> bool:
        if update.state == "differs":
            return True
        if update.state != "failed":
            return False
        decision = self._ledger.decisions.get(update.decision)
        if decision is not None and decision.state == "denied":
            return False
        recovery = self._ledger.recoveries.get(update.decision)
        return recovery is None or not (recovery.dry_run or recovery.state == "escalated")

    def _over_at(self, update: Update, newer_at: float | None) -> float | None:
        if update.id not in self._ledger.acked:  # no search for what nobody acknowledged
            return newer_at
        acked = [
            one.at for one in self._ledger.requests.values()
            if one.verb == "ack" and one.accepted and one.target == update.id
        ]  # fmt: skip
        return min([*acked, *([] if newer_at is None else [newer_at])], default=update.at)


def page(update: Update, over_at: float | None = None) -> Incident:
    """The incident as which it is told.

    A number that is none any more is critical: the job learns nothing. The rest can wait until
    somebody looks at it.
    """
    bad = [one for one in update.compared if one.differs]
    cause: Cause = "user_code" if update.state == "differs" else "unknown"
    severity: Severity = "critical" if any(o.worst >= NOT_FINITE for o in bad) else "warning"
    names = ", ".join(f"{kind} {version}" for kind, version in sorted(update.versions.items()))
    reason = f"update {update.id} of job {update.job} ({names}) {update.state}: {update.reason}"
    verdict = Verdict(
        action="page", reason=reason, targets=[], when="now", at=update.at, rung="update"
    )
    return Incident(
        id=update.id, rev=0 if over_at is None else 1, scope=f"job:{update.job}",
        opened_at=update.at, closed_at=over_at, job=update.job, cause=cause,
        kind=_kind(update), severity=severity, confidence=1.0, suspects=[],
        evidence=[],  # the numbers stand in the reason, which is then the summary
        verdict=verdict, verdicts=[verdict],
    )  # fmt: skip


def _kind(update: Update) -> Kind:
    if update.state != "differs":
        return "user_error"
    learns = {one.quantity for one in update.compared if one.differs} - {"throughput"}
    return "loss_anomaly" if learns else "job_slow"
