"""Telling: incidents in, calls out; in order of severity, within each receiver's limits.

`take` many, then `save`: only then may the reader of the log say that it has read so far. `step`
again and again, in a thread of its own: it makes the calls, which may take long.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from actions.notify.alertmanager import Alertmanager
from actions.notify.board import Board
from actions.notify.calls import Change, Failure, Item, judged
from actions.notify.channels import Channel
from actions.notify.groups import RANK, Group, asks_inhibition, due, mark
from actions.notify.metrics import NotifyMetrics
from actions.notify.pagerduty import PagerDuty
from telemetry.actions import Decision
from telemetry.errors import SourceUnavailable
from telemetry.findings import Incident
from telemetry.ports import Clock

STEP_S = 1.0
CALLS_MAX = 64  # of a step and a receiver

_log = logging.getLogger("nodewarden.notify")


class Notifier:
    """Safe for two threads: one takes, one steps."""

    def __init__(
        self, board: Board, channels: dict[str, Channel], clock: Clock, metrics: NotifyMetrics
    ) -> None:
        self._board, self._channels = board, channels
        self._clock, self._metrics = clock, metrics
        self._lock = threading.Lock()
        self._orphans()

    def take(self, incident: Incident, decision: Decision | None = None) -> None:
        """A revision of an incident, with what was decided. No I/O."""
        with self._lock:
            self._board.take(incident, decision, self._clock.time_s())

    def acknowledge(self, incident: str, by: str) -> int:
        """Somebody has it: its pages are acknowledged; returns how many those are."""
        with self._lock:
            return self._board.acknowledge(incident, by)

    def changed(self, change_id: str, incident: str, summary: str, targets: Sequence[str]) -> None:
        """A node was isolated or given back: a change event where its incident is told.

        change_id  of the command: the same one is told once
        """
        with self._lock:
            now_s = self._clock.time_s()
            names = self._board.receivers_of(incident) or list(self._channels)
            for name in names:
                channel = self._channels.get(name)
                if channel is None or not isinstance(channel.interface, PagerDuty):
                    continue
                told = {"targets": ", ".join(targets[:200]), "incident": incident}
                source = targets[0] if len(targets) == 1 else "nodewarden"
                change = Change(change_id, name, summary, source, now_s, told, incident)
                known = (name, change_id) in self._board.changes
                if not self._board.change(change) and not known:
                    self._metrics.dropped.labels(name).inc()

    def save(self) -> None:
        """Return when everything that was taken is on disk. Raises SourceUnavailable."""
        with self._lock:
            self._board.save()

    def step(self) -> float:
        """Make the calls that are due and allowed; returns when to come again, seconds."""
        waits_s = [self._serve(channel) for channel in list(self._channels.values())]
        self._try_to_save()
        return max(min([STEP_S, *waits_s]), 0.05)

    def open_pages(self) -> int:
        """Groups that were told and not resolved, and those that wait."""
        with self._lock:
            return sum(self._board.size().values())

    # -- one receiver

    def _serve(self, channel: Channel) -> float:
        with self._lock:
            items = self._look(channel)
            if self._roll_up(channel, items):
                items = self._look(channel)
        wait_s, calls = STEP_S, 0
        while items and calls < CALLS_MAX and self._clock.monotonic_s() >= channel.retry_at_s:
            if not channel.bucket.take():
                wait_s = channel.bucket.wait_s()
                break
            batch, calls = items[: channel.batch], calls + 1
            if self._tell(channel, batch):
                items = items[len(batch) :]
        if not items:
            channel.batch = channel.interface.batch_max
            self._tell_changes(channel)
        self._left(channel, items)
        return wait_s

    def _tell(self, channel: Channel, items: list[Item]) -> bool:
        """One call; whether these items are done with for now."""
        with self._lock:
            now_s = self._clock.time_s()
            said = [item.group.digest for item in items]
            call = channel.interface.call(items, now_s)
        failure = judged(channel.http.post(call))
        with self._lock:
            if failure is None:
                self._worked(channel)
                for item, digest_ in zip(items, said, strict=True):
                    self._told(channel, item, digest_, now_s)
                done = True
            else:
                done = self._failed(channel, items, said, failure)
        self._try_to_save()
        return done

    def _told(self, channel: Channel, item: Item, said: str, now_s: float) -> None:
        group = item.group
        self._metrics.told.labels(channel.name, item.due).inc()
        if item.due == "resolve":
            # Reopened while the call was under way: its page begins anew.
            if not group.is_open:
                self._board.remove(group)
                return
            group.told, group.since, group.fires = "", now_s, 1
            group.acked_by, group.ack_told = "", False
        elif item.due == "acknowledge":
            group.ack_told = True
        else:
            group.told, group.told_at, group.told_digest = "triggered", now_s, said
            if isinstance(channel.interface, PagerDuty) and not group.address:
                group.address = channel.interface.address
                group.routing_key = channel.interface.routing_key
            elif isinstance(channel.interface, Alertmanager):
                group.told_labels, group.old_labels = channel.interface.labels(group), []
        self._board.touch(group)

    def _failed(
        self, channel: Channel, items: list[Item], said: list[str], failure: Failure
    ) -> bool:
        self._metrics.failed.labels(channel.name, failure.reason).inc()
        self._say(channel, failure)
        if not failure.final:
            channel.failed(failure, self._clock.monotonic_s())
            return False
        if len(items) > 1:
            channel.batch = 1  # one of them is the reason; the others are told one by one
            return False
        group = items[0].group
        if items[0].due == "trigger" and not group.minimal:
            group.minimal = True
            self._board.touch(group)
            return False
        self._refused(channel, items[0], said[0])
        return True

    def _refused(self, channel: Channel, item: Item, said: str) -> None:
        """It never will be taken: counted, logged, and the second receiver is told."""
        group = item.group
        self._metrics.refused.labels(channel.name).inc()
        _log.error("notify_refused receiver=%s key=%s event=%s", channel.name, group.key, item.due)
        if item.due == "trigger":
            group.told, group.told_digest = "refused", said
            group.told_at = self._clock.time_s()
            self._back_up(channel, group)
        elif item.due == "acknowledge":
            group.ack_told = True
        else:
            self._board.remove(group)
            return
        self._board.touch(group)

    def _tell_changes(self, channel: Channel) -> None:
        if not isinstance(channel.interface, PagerDuty):
            return
        with self._lock:
            waiting = [c for c in self._board.changes.values()
                       if c is not None and c.receiver == channel.name]  # fmt: skip
        for change in waiting[:CALLS_MAX]:
            if self._clock.monotonic_s() < channel.retry_at_s or not channel.bucket.take():
                return
            failure = judged(channel.http.post(channel.interface.change(change)))
            with self._lock:
                if failure is None:
                    self._worked(channel)
                    self._metrics.told.labels(channel.name, "change").inc()
                else:
                    self._metrics.failed.labels(channel.name, failure.reason).inc()
                    self._say(channel, failure)
                if failure is not None and not failure.final:
                    channel.failed(failure, self._clock.monotonic_s())
                    return
                if failure is not None:
                    self._metrics.refused.labels(channel.name).inc()
                self._board.change_told(change)

    # -- under the lock

    def _look(self, channel: Channel) -> list[Item]:
        """What the receiver is to be told, the most urgent first; what is over is forgotten."""
        now_s, found, over = self._clock.time_s(), [], []
        for group in self._board.groups.get(channel.name, {}).values():
            inhibited = asks_inhibition(group, now_s) and self._is_inhibited(group)
            if mark(group, now_s, inhibited):
                self._board.touch(group)
            if channel.settings.kind == "alertmanager" and group.acked_by:
                group.ack_told = True  # its API knows silences, no acknowledgement
            what = due(group, now_s, inhibited)
            if what == "forget":
                over.append(group)
            elif what is not None:
                found.append(Item(what, group))
        for group in over:
            self._board.remove(group)
        return sorted(found, key=_urgency)

    def _is_inhibited(self, group: Group) -> bool:
        still = [m for m in group.members.values() if m.closed_at is None]
        still = still or list(group.members.values())
        return all(self._board.inhibitor.by(m.incident, m.labels) for m in still)

    def _roll_up(self, channel: Channel, items: list[Item]) -> bool:
        """Too many new pages at once: the minor ones become one."""
        waiting = [item.group for item in items if _is_new(item)]
        if channel.settings.kind == "alertmanager":
            return False
        if len(waiting) <= self._board.settings.storm_pages:
            return False
        minor = [g for g in waiting if g.severity != "critical" and not g.storm and g.is_open]
        count = self._board.roll_up(channel.name, minor, self._clock.time_s())
        if count:
            self._metrics.rolled_up.labels(channel.name).inc(count)
            _log.warning("notify_storm receiver=%s incidents=%d", channel.name, count)
        return count > 0

    def _left(self, channel: Channel, items: list[Item]) -> None:
        """What could not be told: it is measured, and after so many failures in a row the
        fallback is told of it too.
        """
        with self._lock:
            now_s = self._clock.time_s()
            new = [item.group for item in items if _is_new(item)]
            if channel.failures >= channel.settings.fallback_after:
                for group in new:
                    self._back_up(channel, group)
            ages = [now_s - group.since for group in new]
        self._metrics.waiting.labels(channel.name).set(len(ages))
        self._metrics.oldest_s.labels(channel.name).set(max(ages, default=0.0))

    def _back_up(self, channel: Channel, group: Group) -> None:
        if channel.settings.fallback and not group.backed_up:
            self._metrics.fallback.labels(channel.name).inc()
            self._board.back_up(group, channel.settings.fallback, self._clock.time_s())

    def _worked(self, channel: Channel) -> None:
        if channel.said:
            _log.info("notify_works_again receiver=%s", channel.name)
        channel.worked()

    def _say(self, channel: Channel, failure: Failure) -> None:
        """Once, until it is another story."""
        said = f"{failure.reason} {failure.status or ''}".strip()
        if said != channel.said:
            channel.said = said
            _log.error("notify_failed receiver=%s reason=%s", channel.name, said)

    def _try_to_save(self) -> None:
        try:
            self.save()
        except SourceUnavailable as error:  # it stays to be saved; telling goes on
            self._metrics.not_saved.inc()
            _log.error("notify_not_saved error=%s", error)

    def _orphans(self) -> None:
        """Groups of receivers that the settings no longer name."""
        for name in [name for name in self._board.groups if name not in self._channels]:
            heirs = [c for c in self._channels.values() if isinstance(c.interface, PagerDuty)]
            for group in list(self._board.groups[name].values()):
                self._board.remove(group)
                if group.told == "triggered" and group.routing_key and heirs:
                    group.receiver = heirs[0].name  # its resolve still goes where its page is
                    self._board.adopt(group)
                else:
                    _log.warning("notify_receiver_gone receiver=%s key=%s", name, group.key)


def _urgency(item: Item) -> tuple[int, int, bool, float, str]:
    """What nobody knows yet, then news, then what is over; each by severity, then by age."""
    group = item.group
    stage = 0 if _is_new(item) else {"acknowledge": 1, "trigger": 2}.get(item.due, 3)
    return stage, RANK[group.severity], not group.storm, group.since, group.key


def _is_new(item: Item) -> bool:
    """Whether nobody was told of it yet."""
    return item.due == "trigger" and item.group.told != "triggered"
