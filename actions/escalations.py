"""Pages people where carrying a decision out ended with nobody but a person to go on.

Each is an incident of its own to whom it is told, beside the one that it came of: that one may
close while the job still stands. It is over when a person acknowledges that incident, or when a
later recovery of the job brought it back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from actions.ledger import Ledger
from actions.metrics import ActMetrics
from actions.ports import Teller
from telemetry.actions import Command, Decision, Outcome, Recovery, Request
from telemetry.errors import SourceUnavailable
from telemetry.findings import Incident, stable_id

_log = logging.getLogger("nodewarden.act")


@dataclass(frozen=True, slots=True)
class Case:
    """What a person has to look at.

    id     of the decision
    job    that is brought back; "" where it is about nodes alone
    since  when it became a person's
    """

    id: str
    incident: str
    job: str
    since: float
    reason: str


class Escalations:
    """Tells each once, and once more when it is over; an instance that takes over tells again."""

    def __init__(
        self, ledger: Ledger, teller: Teller | None, metrics: ActMetrics
    ) -> None:  # fmt: skip
        self._ledger, self._teller, self._metrics = ledger, teller, metrics
        self._told: dict[str, bool] = {}  # case -> whether it was told as over

    def tell(self, incidents: Mapping[str, Incident]) -> None:
        """Those of which people do not know yet. Nobody is told of a dry run."""
        cases = list(self._cases())
        acks = self._acks() if cases else []
        said = False
        for case in cases:
            over_at = self._over_at(case, acks)
            if self._told.get(case.id) == (over_at is not None):
                continue
            if case.id not in self._told:
                _log.error("escalated decision=%s reason=%s", case.id, case.reason)
            self._told[case.id] = over_at is not None
            said = self._say(case, incidents.get(case.incident), over_at) or said
        self._told = {one.id: self._told[one.id] for one in cases}
        self._metrics.escalations.set(sum(not is_over for is_over in self._told.values()))
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

    def _cases(self) -> Iterator[Case]:
        for recovery in self._ledger.escalated():
            if not recovery.dry_run:
                yield _of_job(recovery)
        for command, done in self._ledger.done_commands():
            alone = not command.step and command.incident and not command.dry_run
            if done.status == "unknown" and alone:
                yield _of_nodes(command, done)

    def _say(
        self, case: Case, incident: Incident | None, over_at: float | None
    ) -> bool:  # fmt: skip
        decision = self._ledger.decisions.get(case.id)
        if incident is None and decision is not None and not case.incident:
            incident = _of_no_incident(case, decision)
        if self._teller is None or decision is None or incident is None:
            return False
        told = escalation(case, incident, over_at)
        self._teller.take(told, _paging(decision, told))
        return True

    def _acks(self) -> list[Request]:
        """One search for all cases: there are many requests, and a round every moment."""
        return [one for one in self._ledger.requests.values() if one.verb == "ack" and one.accepted]

    def _over_at(self, case: Case, acks: Sequence[Request]) -> float | None:
        acked = [
            one.at for one in acks
            if one.at >= case.since and one.target in (case.incident, case.id)
        ]  # fmt: skip
        back = [
            one.since for one in self._ledger.recoveries.values()
            if case.job in one.jobs and one.state == "running" and one.stopped
            and one.since >= case.since
        ]  # fmt: skip
        return min(acked + back, default=None)


def escalation(case: Case, incident: Incident, over_at: float | None = None) -> Incident:
    """The incident as which it is told: it says what is wrong, and where it came from."""
    verdict = msgspec.structs.replace(
        incident.verdict, action="page", reason=case.reason, targets=[], at=case.since,
        when="now", rung="escalated", recheck_at=None, step=None, final_cause=None,
    )  # fmt: skip
    return msgspec.structs.replace(
        incident, id=stable_id("escalation", case.id), rev=0 if over_at is None else 1,
        opened_at=case.since, closed_at=over_at, merged_into="", severity="critical",
        evidence=[], verdict=verdict, verdicts=[verdict],
    )  # fmt: skip


def _of_job(recovery: Recovery) -> Case:
    before = f" (before {recovery.job})" if recovery.next_job else ""
    job = f"job {recovery.job_now}{before}" if recovery.job else "what was to be done"
    left = recovery.history[-1].state if recovery.history else recovery.state
    reason = f"{job} is a person's now, it was left in {left}: {recovery.reason}"
    return Case(recovery.id, recovery.incident, recovery.job_now, recovery.since, reason)


def _of_nodes(command: Command, done: Outcome) -> Case:
    what = " ".join([command.action, *command.targets])
    reason = f"nobody can tell whether it was done: {what}: {done.reason}"
    return Case(command.decision, command.incident, "", done.at, reason)


def _of_no_incident(case: Case, decision: Decision) -> Incident:
    """What a person asked for has none: the job stands all the same."""
    return Incident(
        id=case.id, rev=0, scope=f"job:{case.job}", opened_at=case.since, closed_at=None,
        job=case.job, cause="unknown", kind="job_hang", severity="critical", confidence=1.0,
        suspects=[], evidence=[], verdict=decision.verdict, verdicts=[decision.verdict],
    )  # fmt: skip


def _paging(decision: Decision, told: Incident) -> Decision:
    """What was decided, as far as it is told: a person is asked, whatever rails said."""
    return msgspec.structs.replace(
        decision, incident=told.id, verdict=told.verdict, rails=[], reason=told.verdict.reason
    )
