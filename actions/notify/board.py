"""All groups, and which incident is in which: taken from the log, saved, and handed to sending.

Not safe for threads by itself: `Notifier` holds the lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from actions.notify.calls import Change
from actions.notify.groups import Group, Member, member_of, put, take_out
from actions.notify.inhibition import Inhibitor
from actions.notify.routing import Delivery, Router
from actions.notify.settings import NotifySettings
from actions.notify.store import Known, Place, Store
from actions.notify.text import dedup_key
from telemetry.actions import Decision
from telemetry.findings import Incident

CLOSED_INCIDENTS_MAX = 50_000
CHANGES_MAX = 1_000
STORM_INTERVAL_S, STORM_KEEP_OPEN_S = 60.0, 300.0


class Board:
    """What should be told, and what was."""

    def __init__(self, router: Router, cluster: str, store: Store) -> None:
        self.settings: NotifySettings = router.settings
        self._router, self._cluster, self._store = router, cluster, store
        self.inhibitor = Inhibitor(router.settings)
        state = store.load()
        self._incidents = state.incidents
        self.changes = state.changes
        self.groups: dict[str, dict[str, Group]] = {}  # receiver -> key
        self._where: dict[str, dict[str, str]] = {}  # incident -> receiver -> key
        self._dirty: set[Place] = set()
        self._dirty_incidents: set[str] = set()
        self._dirty_changes: set[Place] = set()
        self._closed: dict[str, None] = {}
        for (receiver, key), group in state.groups.items():
            self.groups.setdefault(receiver, {})[key] = group
            for incident in group.members:
                self._where.setdefault(incident, {})[receiver] = key
        for incident, known in state.incidents.items():
            if known.open:
                self.inhibitor.open(incident, known.labels)
            else:
                self._closed[incident] = None

    # -- what comes from the log

    def take(self, incident: Incident, decision: Decision | None, now_s: float) -> None:
        """A revision of an incident; an older one than is known changes nothing."""
        known = self._incidents.get(incident.id)
        if known is not None and known.rev > incident.rev:
            return
        labels = self._router.labels(incident, decision)
        member = member_of(incident, decision, labels, now_s)
        self._know(member)
        if member.closed_at is None:
            for delivery in self._router.route(incident, decision):
                self._join(delivery, member, now_s)
        for receiver, key in self._where.get(incident.id, {}).items():
            put(self.groups[receiver][key], member, now_s)
            self._dirty.add((receiver, key))

    def acknowledge(self, incident: str, by: str) -> int:
        """Somebody has it; returns how many pages that concerns."""
        places = self._where.get(incident, {})
        for receiver, key in places.items():
            group = self.groups[receiver][key]
            group.acked_by = group.acked_by or by
            self._dirty.add((receiver, key))
        return len(places)

    def change(self, change: Change) -> bool:
        """Something was done; False where that is known, or there is no room."""
        place = (change.receiver, change.id)
        if place in self.changes:
            return False
        waiting = sum(one is not None for one in self.changes.values())
        if waiting >= CHANGES_MAX:
            return False
        self.changes[place] = change
        self._dirty_changes.add(place)
        return True

    def receivers_of(self, incident: str) -> list[str]:
        """Who is told of it."""
        return sorted(self._where.get(incident, {}))

    # -- what sending changes

    def touch(self, group: Group) -> None:
        """It has to be saved again."""
        self._dirty.add((group.receiver, group.key))

    def remove(self, group: Group) -> None:
        """It is over for its receiver."""
        self.groups.get(group.receiver, {}).pop(group.key, None)
        for incident in group.members:
            self._leave(incident, group.receiver, group.key)
        self.touch(group)

    def adopt(self, group: Group) -> None:
        """It has another receiver now."""
        for incident in group.members:
            self._where.setdefault(incident, {}).setdefault(group.receiver, group.key)
        self.groups.setdefault(group.receiver, {}).setdefault(group.key, group)
        self.touch(group)

    def change_told(self, change: Change) -> None:
        """It is kept as told, so that nobody is told again; the oldest of those are forgotten."""
        place = (change.receiver, change.id)
        self.changes[place] = None
        self._dirty_changes.add(place)

    def roll_up(self, receiver: str, groups: Iterable[Group], now_s: float) -> int:
        """These, which nobody was told of, become one page; returns how many incidents."""
        count = 0
        for group in groups:
            self.remove(group)
            for member in group.members.values():
                self._put_in(self._storm(receiver, now_s), member, now_s)
                count += 1
        return count

    def back_up(self, group: Group, second: str, now_s: float) -> None:
        """The second receiver is told too, at once."""
        group.backed_up = True
        self.touch(group)
        alone = self.settings.receivers[second].kind == "alertmanager"
        for member in group.members.values():
            if second in self._where.get(member.incident, {}):
                continue
            labels = {"cluster": self._cluster, "incident": member.incident}
            key = dedup_key(labels) if alone else group.key
            copy = self.groups.setdefault(second, {}).get(key) or Group(
                receiver=second, key=key, labels=labels if alone else group.labels, wait_s=0.0,
                interval_s=group.interval_s, repeat_s=group.repeat_s,
                keep_open_s=group.keep_open_s, since=group.since, storm=group.storm and not alone,
            )  # fmt: skip
            if alone:
                copy.interval_s, copy.repeat_s = 0.0, self.settings.receivers[second].resend_s
            self._put_in(copy, member, now_s)

    # -- saving

    def save(self) -> None:
        """What changed, in one transaction. Raises SourceUnavailable: all of it is kept to save."""
        forgotten = self._forget_changes()
        self._forget_incidents()
        if not (self._dirty or self._dirty_incidents or self._dirty_changes):
            return
        self._store.save(
            {place: self.groups.get(place[0], {}).get(place[1]) for place in self._dirty},
            {name: self._incidents.get(name) for name in self._dirty_incidents},
            {place: self.changes[place] for place in self._dirty_changes if place in self.changes},
            forgotten,
        )
        self._dirty.clear()
        self._dirty_incidents.clear()
        self._dirty_changes.clear()

    def size(self) -> Counter[str]:
        """Groups by receiver."""
        return Counter({receiver: len(groups) for receiver, groups in self.groups.items()})

    def _know(self, member: Member) -> None:
        is_open = member.closed_at is None
        self._incidents[member.incident] = Known(
            rev=member.rev, open=is_open, labels=member.labels if is_open else {}
        )
        self._dirty_incidents.add(member.incident)
        if is_open:
            self.inhibitor.open(member.incident, member.labels)
            self._closed.pop(member.incident, None)
        else:
            self.inhibitor.close(member.incident)
            self._closed[member.incident] = None

    def _join(self, delivery: Delivery, member: Member, now_s: float) -> None:
        receiver = delivery.receiver
        at = self._where.get(member.incident, {}).get(receiver)
        if at is not None:
            grown = self.groups[receiver][at].storm and member.severity == "critical"
            if not grown:
                return
            take_out(self.groups[receiver][at], member.incident, now_s)
            self._leave(member.incident, receiver, at)
            self._dirty.add((receiver, at))
        groups = self.groups.setdefault(receiver, {})
        group = groups.get(delivery.key)
        alone = self.settings.receivers[receiver].kind == "alertmanager"  # the engine bounds these
        if group is None and not alone and len(groups) >= self.settings.groups_max:
            group = self._storm(receiver, now_s)
        self._put_in(group or self._new(delivery, now_s), member, now_s)

    def _new(self, delivery: Delivery, now_s: float) -> Group:
        timing, settings = delivery.timing, self.settings.receivers[delivery.receiver]
        alone = settings.kind == "alertmanager"
        return Group(
            receiver=delivery.receiver, key=delivery.key, labels=delivery.group,
            wait_s=0.0 if alone else timing.wait_s, interval_s=0.0 if alone else timing.interval_s,
            repeat_s=settings.resend_s if alone else timing.repeat_s,
            keep_open_s=timing.keep_open_s, since=now_s,
        )  # fmt: skip

    def _storm(self, receiver: str, now_s: float) -> Group:
        labels = {"cluster": self._cluster, "storm": receiver}
        key = dedup_key(labels)
        return self.groups.setdefault(receiver, {}).get(key) or Group(
            receiver=receiver, key=key, labels=labels, wait_s=0.0, interval_s=STORM_INTERVAL_S,
            repeat_s=0.0, keep_open_s=STORM_KEEP_OPEN_S, since=now_s, storm=True,
        )  # fmt: skip

    def _put_in(self, group: Group, member: Member, now_s: float) -> None:
        self.groups.setdefault(group.receiver, {})[group.key] = group
        put(group, member, now_s)
        if member.incident in group.members:
            self._where.setdefault(member.incident, {})[group.receiver] = group.key
        self.touch(group)

    def _leave(self, incident: str, receiver: str, key: str) -> None:
        places = self._where.get(incident, {})
        if places.get(receiver) == key:
            del places[receiver]
        if not places:
            self._where.pop(incident, None)

    def _forget_incidents(self) -> None:
        while len(self._closed) > CLOSED_INCIDENTS_MAX:
            oldest = next(iter(self._closed))
            del self._closed[oldest]
            self._incidents.pop(oldest, None)
            self._dirty_incidents.add(oldest)

    def _forget_changes(self) -> list[Place]:
        told = [place for place, change in self.changes.items() if change is None]
        forgotten = told[: max(len(told) - CHANGES_MAX, 0)]
        for place in forgotten:
            del self.changes[place]
        return forgotten
