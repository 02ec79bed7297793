"""Pages people where bringing a job back ended with nobody but a person to go on.

Each is an incident of its own to whom it is told, beside the one that it came of: that one may
close while the job still stands. It is over when a person acknowledges that incident, or when a
later recovery of the job brought it back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec

from actions.ledger import Ledger
from actions.ports import Teller
from telemetry.actions import Decision, Recovery
from telemetry.errors import SourceUnavailable
from telemetry.findings import Incident, stable_id

_log = logging.getLogger("nodewarden.act")


class Escalations:
    """Tells each once, and once more when it is over; an instance that takes over tells again."""

    def __init__(
        self, ledger: Ledger, teller: Teller | None, time_s: Callable[[], float]
    ) -> None:  # fmt: skip
        self._ledger, self._teller, self._time_s = ledger, teller, time_s
        self._told: dict[str, bool] = {}  # recovery -> whether it was told as over

    def tell(self, incidents: Mapping[str, Incident]) -> None:
        """Those of which people do not know yet. Nobody is told of a dry run."""
        escalated = self._ledger.escalated()
        said = False
        for recovery in escalated:
            over_at = self._over_at(recovery)
            if self._told.get(recovery.id) == (over_at is not None):
                continue
            if recovery.id not in self._told:
                _log.error("escalated job=%s reason=%s", recovery.job, recovery.reason)
            self._told[recovery.id] = over_at is not None
            said = self._say(recovery, incidents.get(recovery.incident), over_at) or said
        self._told = {one.id: self._told[one.id] for one in escalated}
        if said:
            self.save()

    def save(self) -> None:
        """Keep what was told."""
        if self._teller is None:
            return
        try:
            self._teller.save()
        except SourceUnavailable as error:  # it stays to be saved
            _log.error("told_unsaved error=%s", error)

    def _say(
        self, recovery: Recovery, incident: Incident | None, over_at: float | None
    ) -> bool:  # fmt: skip
        decision = self._ledger.decisions.get(recovery.id)
        if self._teller is None or decision is None or incident is None or recovery.dry_run:
            return False
        told = escalation(recovery, incident, over_at)
        self._teller.take(told, _paging(decision, told))
        return True

    def _over_at(self, recovery: Recovery) -> float | None:
        acks = [
            one.at for one in self._ledger.requests.values()
            if one.verb == "ack" and one.accepted and one.at >= recovery.since
            and one.target in (recovery.incident, recovery.id)
        ]  # fmt: skip
        back = [
            one.since for one in self._ledger.recoveries.values()
            if one.job == recovery.job and one.state == "running" and one.stopped
            and one.since >= recovery.since
        ]  # fmt: skip
        return min(acks + back, default=None)


def escalation(recovery: Recovery, incident: Incident, over_at: float | None = None) -> Incident:
    """The incident as which it is told: it says what is wrong, and where it came from."""
    job = f"job {recovery.job}" if recovery.job else "what was to be done"
    left = recovery.history[-1].state if recovery.history else recovery.state
    reason = f"{job} is a person's now, it was left in {left}: {recovery.reason}"
    verdict = msgspec.structs.replace(
        incident.verdict, action="page", reason=reason, targets=[], at=recovery.since,
        when="now", rung="escalated", recheck_at=None, step=None, final_cause=None,
    )  # fmt: skip
    return msgspec.structs.replace(
        incident, id=stable_id("escalation", recovery.id), rev=0 if over_at is None else 1,
        opened_at=recovery.since, closed_at=over_at, merged_into="", severity="critical",
        evidence=[], verdict=verdict, verdicts=[verdict],
    )  # fmt: skip


def _paging(decision: Decision, told: Incident) -> Decision:
    """What was decided, as far as it is told: a person is asked, whatever rails said."""
    return msgspec.structs.replace(
        decision, incident=told.id, verdict=told.verdict, rails=[], reason=told.verdict.reason
    )
