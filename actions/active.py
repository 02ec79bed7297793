"""The active instance: reads incidents, answers people, writes decisions, has them carried out."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

import msgspec

from actions.carrying import Carrying
from actions.controls import control_of, controls
from actions.desk import Desk, Question, Reply
from actions.feed import IncidentFeed
from actions.metrics import ActMetrics
from actions.notices import notice, stranger
from actions.outside import Outside
from actions.ports import LooksAtOnce, Teller
from actions.rules import rules_of
from actions.service import ActionService, Asked
from actions.site import Site, changes, running
from actions.undone import UndoneWatch, warning
from actions.update_pages import UpdatePages
from actions.updating import news
from actions.view import shown
from telemetry.actions import (
    ActionRecord,
    Command,
    Decision,
    Lease,
    RecoveryState,
    Request,
    SiteFacts,
    Update,
    UpdateState,
)
from telemetry.errors import PublishError, SourceUnavailable
from telemetry.findings import Incident, stable_id
from telemetry.ports import Clock
from telemetry.records import Control
from telemetry.settings import ActSettings

REFUSALS_PER_MINUTE = 60  # a flood of forged tokens must not fill the audit
HOUSEKEEPING_S = 60.0
RETELL_S = 3_600.0
OF_INCIDENTS = frozenset({"ack", "snooze", "false_alarm", "tried"})
OF_UPDATES = frozenset({"ack", "snooze"})  # which are paged under their own ids

_log = logging.getLogger("nodewarden.act")


class Active:
    """See above. Raises Fenced and PublishError, after which it is of no use any more."""

    def __init__(
        self, service: ActionService, outside: Outside, desk: Desk, settings: ActSettings,
        clock: Clock, metrics: ActMetrics, instance: str,
    ) -> None:  # fmt: skip
        self._service, self._ledger = service, service.ledger
        self._outside, self._desk = outside, desk
        self._settings, self._clock, self._metrics = settings, clock, metrics
        self._instance = instance
        self._feed = IncidentFeed(outside.incidents, clock, metrics)
        service.place_of = self._feed.place_of
        self._since_snapshot = 0
        self._said_site: Site | None = None
        self._refusals: list[float] = []
        self._untold: list[Control] = []
        self._housekept_s = clock.monotonic_s()
        looks = outside.looks or LooksAtOnce(outside.executor)
        self._undone = UndoneWatch(looks, service.ledger, clock)
        self._update_pages = UpdatePages(service.ledger, outside.teller)
        self._carrying = Carrying(
            service, outside, self._feed, clock, metrics, instance, self._commit,
            self._untold.append,
        )  # fmt: skip

    # -- its life

    def start(self, partitions: Sequence[int]) -> None:
        """Say that we are the active one and what we go by, and read incidents of these partitions.

        What the engine was lately told of people and steps is told once more: it knows each by its
        place in the stream of the instance that it came through.
        """
        since_s = self._clock.time_s() - RETELL_S
        self._untold += controls(self._ledger, since_s)
        lease = Lease(
            at=self._clock.time_s(), instance=self._instance, epoch=self._ledger.epoch + 1
        )
        rules = rules_of(self._settings, self._outside.version, lease.at)
        known = self._ledger.rules
        is_news = known is None or msgspec.structs.replace(known, at=rules.at) != rules
        self._commit([lease, rules] if is_news else [lease])
        self._feed.start(partitions)
        self._desk.open = True
        self._metrics.active.set(1)
        _log.info("active instance=%s epoch=%d", self._instance, lease.epoch)

    def step(self, wait_s: float) -> None:
        """One round; the site stays as it is at its start."""
        self._outside.view.look()
        self._read_incidents(wait_s)
        self._answer_people()
        self._tell_engine()
        self._end_what_is_late()
        self._follow_updates()
        self._carrying.round()
        self._notice_undone()
        self._keep_house()

    def stop(self) -> None:
        """Nobody is answered any more."""
        self._desk.close()
        self._metrics.active.set(0)

    def _end_what_is_late(self) -> None:
        """Who was told of an incident hears too that in time nothing was done about it."""
        late = self._service.due(self._clock.time_s())
        self._commit(late)
        told = {one.incident: self._feed.known.get(one.incident) for one in late}
        if self._outside.teller is None or not late:
            return
        for incident in told.values():
            if incident is not None:
                self._tell(incident, self._outside.teller)
        self._save_told()

    # -- incidents

    def _read_incidents(self, wait_s: float) -> None:
        told = self._feed.poll(wait_s)
        made = [decision for one, place in told for decision in self._decided(one, place)]
        if made:
            self._outside.point("decision.before")
            self._commit(made)
            self._outside.point("decision.after")
        if told and self._outside.teller is not None:
            for incident, _ in told:
                self._tell(incident, self._outside.teller)
            self._save_told()

    def _decided(self, incident: Incident, source: tuple[int, int]) -> list[Decision]:
        """The new decisions; the next one knows of them, and nobody else before the commit."""
        if source[1] < self._ledger.positions.get(source[0], 0) or self._is_old(incident):
            return []
        made = self._service.incident(incident, source, self._clock.time_s())
        for decision in made:
            self._ledger.take(decision)
        return made

    def _tell(self, incident: Incident, teller: Teller) -> None:
        """Who was told hears the end too, whatever was decided since."""
        is_open = incident.closed_at is None and not incident.merged_into
        if is_open and self._ledger.snoozed.get(incident.id, 0.0) > self._clock.time_s():
            return
        decisions = self._ledger.of_incident(incident.id)
        told = [one for one in decisions if self._outside.tells(one)]
        if told:
            teller.take(incident, told[-1])

    def _save_told(self) -> None:
        if self._outside.teller is None:
            return
        try:
            self._outside.teller.save()
        except SourceUnavailable as error:  # it stays to be saved
            _log.error("told_unsaved error=%s", error)

    def _is_old(self, incident: Incident) -> bool:
        """Over before anybody of us ever looked: nothing is left to decide."""
        first_at = self._ledger.first_at
        return incident.closed_at is not None and first_at is not None \
            and incident.closed_at < first_at  # fmt: skip

    # -- people

    def _answer_people(self) -> None:
        for question in self._desk.take():
            try:
                reply = self._reply(question)
            except PublishError:
                question.reply.set_result(Reply(503, {"error": "the log did not take it"}))
                raise
            question.reply.set_result(reply)

    def _reply(self, question: Question) -> Reply:
        asked, now_s = question.asked, self._clock.time_s()
        if asked.verb == "read" and not asked.problem:
            return shown(asked.target, self._ledger, self._feed.known)
        if not asked.problem and asked.verb in OF_INCIDENTS and not self._knows(asked):
            unknown = f"no decision and no incident {asked.target}"
            asked = msgspec.structs.replace(asked, problem=unknown)
        said, request = self._service.request(asked, now_s)
        self._metrics.requests.labels(request.verb, str(request.accepted).lower()).inc()
        if not request.accepted and not self._may_audit_refusal():
            self._metrics.unaudited.inc()
        else:
            self._commit(said)
        if request.control is not None:
            self._untold.append(control_of(request))
        if request.accepted and request.verb == "ack" and self._outside.teller is not None:
            self._outside.teller.acknowledge(request.target, request.by)
            self._save_told()
        if request.accepted:
            decided = [one for one in said if isinstance(one, Decision)]
            updates = [one for one in said if isinstance(one, Update)]
            return Reply(200, {
                "request": _plain(request), "decisions": _plain(decided),
                "updates": _plain(updates), "warning": self._warning(request),
                "notice": notice(
                    request.verb, dry_run=self._settings.dry_run, paused=self._ledger.paused,
                    command_s=self._settings.command_s, running=asked.running,
                ),
            })  # fmt: skip
        missing = request.reason.startswith("no decision")
        return Reply(question.status or (404 if missing else 409), {"error": request.reason})

    def _warning(self, request: Request) -> str:
        """What a person should know of the node or job that was named."""
        said = [stranger(request.verb, request.target, self._outside.view.site.places)]
        if request.verb == "release":
            said.append(warning(request.target, self._feed.known.values()))
        return "; ".join(one for one in said if one)

    def _knows(self, asked: Asked) -> bool:
        if asked.target in self._feed.known or self._ledger.find(asked.target) is not None:
            return True
        updates = self._ledger.versions.all() if asked.verb in OF_UPDATES else []
        return any(one.id == asked.target for one in updates)

    def _may_audit_refusal(self) -> bool:
        now_s = self._clock.monotonic_s()
        self._refusals = [at for at in self._refusals if now_s - at < 60.0]
        if len(self._refusals) >= REFUSALS_PER_MINUTE:
            return False
        self._refusals.append(now_s)
        return True

    def _tell_engine(self) -> None:
        """Never in our transactions: their marks would take offsets of the telemetry."""
        while self._untold:
            record = msgspec.structs.replace(self._untold[0], sent_at=self._clock.time_s())
            try:
                self._outside.control(record)
            except PublishError as error:
                _log.warning("control_unsent error=%s", error)
                return
            del self._untold[0]

    def _notice_undone(self) -> None:
        """A person who gave a node back in the scheduler has spoken, as if by us."""
        for request in self._undone.news(self._feed.known):
            self._commit([request])
            if request.control is not None:
                self._untold.append(control_of(request))
            self._metrics.requests.labels(request.verb, "true").inc()
            _log.warning("undone node=%s %s", request.target, request.note)

    # -- the log

    def _commit(self, records: Sequence[ActionRecord]) -> None:
        if not records:
            return
        if any(isinstance(one, Decision | Command) for one in records):
            records = [*self._news_of_site(), *records]
        self._outside.log.commit(records)
        for record in records:
            self._ledger.take(record)
            if isinstance(record, Decision):
                self._metrics.decisions.labels(record.state).inc()
        self._since_snapshot += len(records)

    def _news_of_site(self) -> list[SiteFacts]:
        """What the rails were told and the log does not have yet: it goes before the decision.

        Where the commit fails nothing is ever committed again, so it may count as said.
        """
        site = self._outside.view.site
        if site is self._said_site:  # a storm of commands compares no sites
            return []
        self._said_site = site
        return changes(self._ledger.site, site, self._clock.time_s())

    def _keep_house(self) -> None:
        self._metrics.paused.set(self._ledger.paused)
        self._count_recoveries()
        now_s, wall_s = self._clock.monotonic_s(), self._clock.time_s()
        if self._since_snapshot >= self._settings.snapshot_records:
            name = stable_id("snapshot", self._instance, f"{wall_s!r}")
            self._outside.log.commit(self._ledger.parts(name, wall_s))
            self._since_snapshot = 0
        if now_s - self._housekept_s < HOUSEKEEPING_S:
            return
        self._housekept_s = now_s
        self._ledger.forget(
            wall_s - self._settings.keep_s, self._feed.open_incidents(),
            in_force=self._undone.in_force(), running=running(self._outside.view.site),
            now_s=wall_s,
        )  # fmt: skip
        self._feed.forget(wall_s)
        waiting = sum(one.state == "waiting" for one in self._ledger.decisions.values())
        self._metrics.waiting.set(waiting)

    def _follow_updates(self) -> None:
        said = news(self._ledger, self._settings, self._outside.compared, self._clock.time_s())
        self._commit(said)
        for one in said:
            if isinstance(one, Update):
                level = logging.ERROR if one.state in ("differs", "failed") else logging.INFO
                _log.log(level, "update id=%s job=%s state=%s reason=%s", one.id, one.job,
                         one.state, one.reason)  # fmt: skip
        if self._update_pages.tell(self._clock.time_s()):
            self._save_told()

    def _count_recoveries(self) -> None:
        newest = Counter(one.state for one in self._ledger.versions.newest_of_all())
        for update_state in get_args(UpdateState):
            self._metrics.updates.labels(update_state).set(newest[update_state])
        counted = Counter(one.state for one in self._ledger.recoveries.values())
        for state in get_args(RecoveryState):
            self._metrics.recoveries.labels(state).set(counted[state])


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)
