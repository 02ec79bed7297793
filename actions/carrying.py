"""Carries commands out: intent, a look at the world, the call, its outcome; one step at a time.

The order of one command is the whole point: the intent is committed, then the world is looked at
again, then, at most `act_within_s` after the commit by a clock that never goes back, the call is
made, then its outcome is committed. A process that was stopped in between is too late, and fenced.

What takes one command (an isolation, a release) ends with it. What takes several goes from state to
state (`actions.recovery`), each saying of which is in the log with the command or the outcome that
it belongs to: whoever takes over goes on where it stands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from actions.controls import attempt_of, attempted
from actions.escalations import Escalations
from actions.feed import IncidentFeed
from actions.metrics import ActMetrics
from actions.outside import Outside
from actions.recovery.facts import (
    ended,
    exited,
    given_back,
    goes_on,
    over,
    replacements,
    runs,
    stands_still,
)
from actions.recovery.machine import Answer, Look, Order, begin, step
from actions.service import FALSE_ALARM, ActionService, outcome
from actions.undone import readmitted
from actions.updating import carried_over, joined, taken_back
from telemetry.actions import (
    ActionRecord,
    Command,
    Decision,
    Lease,
    Outcome,
    Preconditions,
    Recovery,
)
from telemetry.errors import SourceUnavailable
from telemetry.ports import Clock
from telemetry.records import Control

PASSES_MAX = 8  # of one recovery in a round: no more than there are states

_log = logging.getLogger("nodewarden.act")
Commit = Callable[[Sequence[ActionRecord]], None]


class Carrying:
    """See above. Raises what `commit` raises.

    commit   returns when the records are in the log, and the ledger has them
    untold   takes what the engine is to be told
    """

    def __init__(
        self, service: ActionService, outside: Outside, feed: IncidentFeed, clock: Clock,
        metrics: ActMetrics, instance: str, commit: Commit, untold: Callable[[Control], None],
    ) -> None:  # fmt: skip
        self._service, self._ledger = service, service.ledger
        self._outside, self._feed = outside, feed
        self._settings, self._clock, self._metrics = service.settings, clock, metrics
        self._instance, self._commit, self._untold = instance, commit, untold
        self._escalations = Escalations(service.ledger, outside.teller, metrics)
        self._looked: dict[str, tuple[int, float]] = {}  # recovery -> its revision then, and when
        self._away_until_s = float("-inf")
        self._started_s = clock.monotonic_s()

    def round(self) -> None:
        """Everything that may be done now; nothing before all incidents are known."""
        if not self._feed.caught_up:
            return
        self._take_over_others()
        self._carry_out_decisions()
        live = self._ledger.live_recoveries()
        for recovery in live:
            self._go_on(recovery)
        self._looked = {one.id: self._looked[one.id] for one in live if one.id in self._looked}
        self._escalations.tell(self._feed.known)

    # -- what begins

    def _carry_out_decisions(self) -> None:
        now_s = self._clock.time_s()
        for said in self._service.intents(self._feed.known.get, now_s, self._ledger.epoch):
            if isinstance(said, Decision) and said.state != "approved":
                self._commit([said])
                continue
            targets = said.verdict.targets if isinstance(said, Decision) else said.targets
            found = self._observed(targets, said.job)
            if found is None:
                return  # nothing is begun in a world that nobody sees; in time it expires
            if isinstance(said, Decision):
                self._begin(said, found)
            else:
                fault = self._fault(said.incident)
                self._intend(msgspec.structs.replace(said, preconditions=found, fault=fault), [])

    def _begin(self, decision: Decision, found: Preconditions) -> None:
        settings = self._settings
        recovery = begin(decision, settings.recovery, settings.dry_run, self._clock.time_s())
        back = taken_back(self._ledger.versions, recovery, settings, self._clock.time_s())
        self._pass(msgspec.structs.replace(recovery, run=found.attempt), "begin", back)

    # -- states

    def _go_on(self, recovery: Recovery) -> None:
        """As far as it goes without waiting."""
        for _ in range(PASSES_MAX):
            if not self._is_due(recovery):
                return
            found, seen = self._look(recovery)
            moved, order = step(recovery, seen, self._settings.recovery, self._clock.time_s())
            if order is not None:
                if found is None:
                    return  # no intent without knowing what it rests on
                command = self._command(moved, order, found)
                self._intend(command, [moved, *joined(self._ledger.versions, command)])
            elif moved is not recovery:
                now_s = self._clock.time_s()
                over = carried_over(self._ledger.versions, moved, now_s)
                self._pass(moved, recovery.state, over)
            recovery = self._ledger.recoveries[recovery.id]

    def _is_due(self, recovery: Recovery) -> bool:
        """Whether it is worth a look: it changed, or the last one is a while ago."""
        now_s = self._clock.monotonic_s()
        revision, at_s = self._looked.get(recovery.id, (-1, now_s))
        if revision == recovery.revision and now_s - at_s < self._settings.recovery.look_s:
            return False
        self._looked[recovery.id] = recovery.revision, now_s
        return True

    def _look(self, recovery: Recovery) -> tuple[Preconditions | None, Look]:
        found = self._observed(recovery.targets, recovery.job_now)
        seen = found or Preconditions()
        facts, incidents = self._outside.job(recovery.job_now), self._feed.known
        decision = self._ledger.decisions.get(recovery.id)
        no_more = objection = ""
        if decision is None:
            no_more = "its decision is no longer known"
        elif not recovery.stopped and self._ledger.is_false_alarm(decision):
            no_more = FALSE_ALARM
        elif not recovery.stopped:
            no_more = over(decision, incidents.get(recovery.incident)) or given_back(
                recovery, self._ledger.released
            )
            if not (no_more or self._ledger.paused):
                now_s = self._clock.time_s()
                objection = self._service.against(decision, incidents.get, now_s)
        return found, Look(
            over=no_more, objection=objection, paused=self._ledger.paused,
            busy=self._is_busy(recovery), pending=facts.pending,
            ended=self._ended(recovery, seen),
            exited=exited(seen), runs=runs(seen),
            stands_still=stands_still(recovery.job, incidents.values(), facts),
            checkpoint_at=facts.checkpoint_at, progresses=facts.progresses,
            replacements=replacements(seen, facts), achieved=self._achieved(recovery, found),
        )  # fmt: skip

    def _achieved(self, recovery: Recovery, found: Preconditions | None) -> bool | None:
        """Of its last command. In a world that nobody sees it is not seen to be so."""
        commands = self._ledger.commands_of(recovery.id)
        command = next((one for one in commands if one.id == recovery.command), None)
        if command is None or found is None or recovery.answered is None:
            return False
        if recovery.next_job:
            return goes_on(found, command.exclude)
        began_s = self._clock.monotonic_s()
        try:
            return self._outside.executor.achieved(command, found)
        except SourceUnavailable as error:
            self._is_away(error, began_s)
            return False

    def _is_busy(self, recovery: Recovery) -> bool:
        """Whether another recovery has its hands on the job."""
        return any(
            one.jobs & recovery.jobs and one.id != recovery.id and one.state != "suspect"
            for one in self._ledger.live_recoveries()
        )

    def _ended(self, recovery: Recovery, found: Preconditions) -> str:
        """Why it needs no restart of ours; with versions to run that no restart took along so far,
        others' restarts are none of ours.
        """
        update = self._ledger.versions.pending(recovery.job) if recovery.job else None
        if update is not None and update.decision == recovery.id:
            return ended(msgspec.structs.replace(recovery, run=None), found)
        return ended(recovery, found) or self._restarted_meanwhile(recovery)

    def _restarted_meanwhile(self, recovery: Recovery) -> str:
        """Where no node has to go, any restart of the job since the verdict is as good as ours."""
        decision = self._ledger.decisions.get(recovery.id)
        if recovery.targets or not recovery.job or decision is None:
            return ""
        since_s = min(decision.verdict.at, recovery.began_at)
        others = [
            one for one in self._ledger.recoveries.values()
            if recovery.job in one.jobs and one.id != recovery.id and one.state == "running"
            and one.stopped and one.since >= since_s
        ]  # fmt: skip
        return "another recovery restarted the job meanwhile" if others else ""

    def _command(self, recovery: Recovery, order: Order, found: Preconditions) -> Command:
        return Command(
            id=recovery.command, decision=recovery.id, action=recovery.action,
            targets=recovery.targets, preconditions=found, intent_at=recovery.at,
            expires_at=order.expires_at, incident=recovery.incident, job=recovery.job,
            epoch=self._ledger.epoch, dry_run=recovery.dry_run, step=order.step, mode=order.mode,
            exclude=recovery.targets, fault=self._fault(recovery.incident),
            readmit=readmitted(self._ledger, recovery.job, recovery.targets),
            versions=self._ledger.versions.to_run(recovery.job) if order.step == "restart" else {},
        )  # fmt: skip

    def _fault(self, incident: str) -> str:
        """What the scheduler is told that it is about."""
        known = self._feed.known.get(incident)
        return known.kind if known is not None else "" if incident else "by_hand"

    def _pass(
        self, moved: Recovery, place: str, with_it: Sequence[ActionRecord] = ()
    ) -> None:  # fmt: skip
        """From a state to the next, where no command and no outcome comes with it."""
        self._point(f"{place}.pass.before")
        self._commit([moved, *with_it])
        self._point(f"{place}.pass.after")
        _log.info("recovery id=%s state=%s reason=%s", moved.id, moved.state, moved.reason)

    # -- one command

    def _intend(self, command: Command, with_it: Sequence[ActionRecord]) -> None:
        place = self._place_of(command)
        self._point("intent.before", place)
        self._commit([*with_it, command])
        acknowledged_s = self._clock.monotonic_s()
        self._point("intent.after", place)
        self._act(command, acknowledged_s)

    def _take_over_others(self) -> None:
        """Intents of an instance before us: its call may still be under way for so long."""
        wait_s = self._settings.act_within_s + self._settings.call_timeout_s
        if self._clock.monotonic_s() - self._started_s < wait_s:
            return
        for command in self._ledger.open_commands():
            if command.epoch == self._ledger.epoch or self._clock.monotonic_s() < \
                    self._away_until_s:  # fmt: skip
                continue
            # Saying again who we are proves that nobody has replaced us meanwhile.
            self._commit([Lease(
                at=self._clock.time_s(), instance=self._instance, epoch=self._ledger.epoch
            )])  # fmt: skip
            self._act(command, self._clock.monotonic_s(), foreign=True)

    def _act(self, command: Command, acknowledged_s: float, *, foreign: bool = False) -> None:
        tried = self._tried(command, acknowledged_s, foreign)
        if tried is None:
            return
        done, prevented = tried
        self._finish(command, done, prevented)
        teller = self._outside.teller
        if teller is not None and command.step in ("", "drain") and \
                done.status in ("done", "unknown"):  # fmt: skip
            summary = f"{command.action} {', '.join(command.targets)}: {done.status}"
            teller.changed(command.id, command.incident, summary, command.targets)
            self._escalations.save()

    def _tried(
        self, command: Command, acknowledged_s: float, foreign: bool
    ) -> tuple[Outcome, bool] | None:
        """What became of it, and whether a check prevented the call; None where it is to be
        looked at again, for it may have been done by another.
        """
        now_s, began_s = self._clock.time_s, self._clock.monotonic_s()
        try:
            found = self._outside.executor.observe(command.targets, command.job)
            achieved = self._outside.executor.achieved(command, found)
        except SourceUnavailable as error:
            self._is_away(error, began_s)
            why = f"the targets could not be seen: {error}"
            if foreign and now_s() < command.expires_at:
                return None
            return outcome(command, "unknown" if foreign else "refused", why, now_s()), not foreign
        if foreign and achieved:
            return outcome(command, "done", "found done by the instance before", now_s()), False
        if foreign and achieved is None:
            why = "an instance that is gone may have done it; nobody can read it back"
            return outcome(command, "unknown", why, now_s()), False
        why = self._service.objection(command, found, self._feed.known.get, now_s())
        if why:
            return outcome(command, "refused", why, now_s()), True
        return self._called(command, acknowledged_s)

    def _called(self, command: Command, acknowledged_s: float) -> tuple[Outcome, bool]:
        place = self._place_of(command)
        self._point("act.before", place)
        late_s = self._clock.monotonic_s() - acknowledged_s
        if late_s > self._settings.act_within_s:
            why = f"{late_s:.1f} s after the intent, at most {self._settings.act_within_s:g} s"
            return outcome(command, "refused", why, self._clock.time_s()), True
        try:
            done = self._outside.executor.execute(command)
        except SourceUnavailable as error:
            done = outcome(command, "unknown", f"no answer: {error}", self._clock.time_s())
        self._point("act.after", place)
        return done, False

    def _finish(self, command: Command, done: Outcome, prevented: bool) -> None:
        made = attempt_of(self._ledger, command, done)
        if made is not None:
            done = msgspec.structs.replace(done, control=self._ledger.next_control())
        records: list[ActionRecord] = [done]
        recovery = self._ledger.recoveries.get(command.decision)
        if recovery is not None and recovery.command == command.id:
            answer = Answer(done.status, done.reason, prevented, done.next_job)
            moved, _ = step(recovery, answer, self._settings.recovery, self._clock.time_s())
            records += [moved] if moved is not recovery else []
        place = self._place_of(command)
        self._point("outcome.before", place)
        self._commit(records)
        self._point("outcome.after", place)
        if done.control is not None and made is not None:
            self._untold(attempted(command, done, made))
        self._metrics.outcomes.labels(done.status).inc()
        _log.info("outcome command=%s status=%s reason=%s", done.command, done.status, done.reason)

    # -- the world

    def _observed(self, targets: Sequence[str], job: str) -> Preconditions | None:
        """How they stand; None where nobody says, nor for a while after that."""
        if self._clock.monotonic_s() < self._away_until_s:
            return None
        began_s = self._clock.monotonic_s()
        try:
            found = self._outside.executor.observe(targets, job)
        except SourceUnavailable as error:
            self._is_away(error, began_s)
            return None
        return found if found.job or not job else msgspec.structs.replace(found, job=job)

    def _is_away(self, error: SourceUnavailable, began_s: float) -> None:
        """Not asked again for as long as it took, so that people are answered meanwhile."""
        now_s = self._clock.monotonic_s()
        self._away_until_s = now_s + max(self._settings.recovery.look_s, now_s - began_s)
        _log.warning("world_unseen error=%s", error)

    def _place_of(self, command: Command) -> str:
        recovery = self._ledger.recoveries.get(command.decision)
        return recovery.state if recovery is not None and command.step else ""

    def _point(self, name: str, place: str = "") -> None:
        """Where the work stands: "intent.before", and in a state "stopping.intent.before" too."""
        self._outside.point(name)
        if place:
            self._outside.point(f"{place}.{name}")
