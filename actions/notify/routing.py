"""The routing tree: which receivers are told of an incident, and in which group. Decides only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from actions.notify.labels import CHANGING, Labeller, Places, nowhere
from actions.notify.matchers import Labels, Matcher, all_match, parse_matchers
from actions.notify.settings import NotifySettings, ReceiverSettings, RouteSettings
from actions.notify.text import dedup_key
from telemetry.actions import Decision
from telemetry.errors import SettingsError
from telemetry.findings import Incident
from telemetry.records import Severity

SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")
QUIET_RAILS = frozenset({"maintenance", "shadow"})  # what only is recorded
DEPTH_MAX, ROUTES_MAX = 16, 2_000


@dataclass(frozen=True, slots=True)
class Timing:
    """How a route paces what it tells; seconds."""

    group_by: tuple[str, ...] = ("cluster", "scope", "kind")
    wait_s: float = 5.0
    interval_s: float = 60.0
    repeat_s: float = 14_400.0
    keep_open_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """One receiver is told, in the group that `key` names; `path` is the way through the tree."""

    receiver: str
    group: dict[str, str]
    key: str
    timing: Timing
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Node:
    name: str
    receiver: str
    matchers: tuple[Matcher, ...]
    timing: Timing
    goes_on: bool
    children: tuple[_Node, ...]


class Router:
    """Raises SettingsError, one line, where the tree cannot be meant."""

    def __init__(self, settings: NotifySettings, cluster: str, places: Places = nowhere) -> None:
        self.settings = settings
        self._labeller = Labeller(settings, cluster, places)
        self._count = 0
        self._root = self._node(settings.route, "route", "", Timing(), 0)
        if settings.route.matchers or settings.route.continue_:
            raise SettingsError("route: the root takes everything; matchers belong to its routes")
        _check_fallbacks(settings.receivers)
        for name, receiver in settings.receivers.items():
            _check_receiver(name, receiver)
        self._check_paging(self._root, frozenset(SEVERITIES))

    def labels(self, incident: Incident, decision: Decision | None) -> dict[str, str]:
        """What routes go by."""
        return self._labeller.labels(incident, decision)

    def completed(self, labels: dict[str, str]) -> dict[str, str]:
        """Labels that somebody made up, with those that the site adds."""
        return self._labeller.completed(labels)

    def route(self, incident: Incident, decision: Decision | None) -> list[Delivery]:
        """Who is told; nobody where the decision is quiet."""
        if decision is not None and is_quiet(decision):
            return []
        return self.deliveries(self.labels(incident, decision))

    def deliveries(self, labels: Labels) -> list[Delivery]:
        """Each receiver once, in the order of the tree."""
        found: dict[str, Delivery] = {}
        for path in _ends(self._root, labels, ()):
            receiver = path[-1].receiver
            if receiver and receiver not in found:
                found[receiver] = self._delivery(path, labels)
        return list(found.values())

    def _delivery(self, path: tuple[_Node, ...], labels: Labels) -> Delivery:
        end = path[-1]
        names = end.timing.group_by
        if self.settings.receivers[end.receiver].kind == "alertmanager":
            names = ("cluster", "incident")  # it groups by itself
        group = {name: labels.get(name, "") for name in names}
        way = tuple(node.name for node in path)
        return Delivery(end.receiver, group, dedup_key(group), end.timing, way)

    def _node(
        self, route: RouteSettings, where: str, receiver: str, above: Timing, depth: int
    ) -> _Node:
        self._count += 1
        if depth > DEPTH_MAX or self._count > ROUTES_MAX:
            raise SettingsError(f"{where}: over {ROUTES_MAX} routes, or deeper than {DEPTH_MAX}")
        mine = route.receiver or receiver
        if mine and mine not in self.settings.receivers:
            known = ", ".join(sorted(self.settings.receivers)) or "none is defined"
            raise SettingsError(f"{where}: no receiver {mine!r}; receivers: {known}")
        timing = _timing(route, above)
        if changing := CHANGING.intersection(timing.group_by):
            raise SettingsError(f"{where}.group_by: {min(changing)} changes while it lasts")
        children = tuple(
            self._node(child, f"{where}.routes[{number}]", mine, timing, depth + 1)
            for number, child in enumerate(route.routes)
        )
        matchers = parse_matchers(route.matchers, f"{where}.matchers")
        return _Node(where, mine, matchers, timing, route.continue_, children)

    def _check_paging(self, node: _Node, severities: frozenset[Severity]) -> None:
        """Two ways that page for one severity wake two people, and nobody knows who has it."""
        asked = [matcher for matcher in node.matchers if matcher.name == "severity"]
        left = frozenset(one for one in severities if all_match(asked, {"severity": one}))
        receiver = self.settings.receivers.get(node.receiver)
        for severity in sorted(left) if receiver is not None and _pages(receiver) else ():
            pager = self.settings.pager_of(severity)
            assert receiver is not None
            if pager != receiver.kind:
                raise SettingsError(
                    f"{node.name}: receiver {node.receiver!r} pages by {receiver.kind}, and the "
                    f"pager of severity {severity} is {pager}; one way pages for a severity"
                )
        for child in node.children:
            self._check_paging(child, left)


def is_quiet(decision: Decision) -> bool:
    """Whether nobody is told: of a verdict of nothing, of maintenance, of a rule in shadow mode."""
    quiet = any(rail.name in QUIET_RAILS and not rail.passed for rail in decision.rails)
    return quiet or decision.verdict.action == "none"


def _ends(node: _Node, labels: Labels, above: tuple[_Node, ...]) -> Iterator[tuple[_Node, ...]]:
    """The ways to the deepest routes that take it."""
    path = (*above, node)
    taken = False
    for child in node.children:
        if all_match(child.matchers, labels):
            taken = True
            yield from _ends(child, labels, path)
            if not child.goes_on:
                break
    if not taken:
        yield path


def _timing(route: RouteSettings, above: Timing) -> Timing:
    def own(value: float | None, inherited: float) -> float:
        return inherited if value is None else value

    return Timing(
        above.group_by if route.group_by is None else route.group_by,
        own(route.group_wait_s, above.wait_s),
        own(route.group_interval_s, above.interval_s),
        own(route.repeat_interval_s, above.repeat_s),
        own(route.keep_open_s, above.keep_open_s),
    )


def _pages(receiver: ReceiverSettings) -> bool:
    return receiver.kind == "pagerduty" or (receiver.kind == "alertmanager" and receiver.paging)


def _check_receiver(name: str, receiver: ReceiverSettings) -> None:
    where = f"receivers.{name}"
    if receiver.kind == "pagerduty":
        if bool(receiver.routing_key) == bool(receiver.routing_key_file):
            raise SettingsError(f"{where}: set routing_key_file or routing_key, one of them")
    else:
        if receiver.routing_key or receiver.routing_key_file:
            raise SettingsError(f"{where}: {receiver.kind} has no routing key")
        if bool(receiver.url) == bool(receiver.url_file):
            raise SettingsError(f"{where}: set url_file or url, one of them")
    if receiver.url and receiver.url_file:
        raise SettingsError(f"{where}: set url_file or url, not both")


def _check_fallbacks(receivers: dict[str, ReceiverSettings]) -> None:
    for name, receiver in receivers.items():
        if receiver.fallback and receiver.fallback not in receivers:
            raise SettingsError(f"receivers.{name}.fallback: no receiver {receiver.fallback!r}")
        seen, at = {name}, receiver.fallback
        while at:
            if at in seen:
                raise SettingsError(f"receivers.{name}.fallback: it leads back to {at}")
            seen.add(at)
            at = receivers[at].fallback if at in receivers else ""
