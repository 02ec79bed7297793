"""What others say of the site, and how it stands in the log: as what changed.

Pure. The rails read a `Site` as it was at the start of a round; `changes` are in the log before the
first decision that rests on it, and a `SiteBook` makes the same site of them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import msgspec

from telemetry.actions import Measured, SiteFacts, Where, Window

NAMES_MAX = 3_000  # node names in one record: at most some 800 kB

Value = TypeVar("Value")


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What others say of the site; times are Unix seconds, None where nobody said.

    places        node -> where it stands; `sizes` are `sizes_of` it
    drained_by    node -> who drained it, us too
    protected     nodes that the inventory protects
    windows       maintenance windows that the scheduler or the pager say
    booted_at     node -> its last boot
    nodes, blind_nodes, telemetry_at   as the engine's workers say, at `measured_at`
    listing_at    when the scheduler last gave a whole listing
    """

    places: dict[str, Where] = {}
    sizes: dict[str, int] = {}
    drained_by: dict[str, str] = {}
    protected: list[str] = []
    windows: list[Window] = []
    booted_at: dict[str, float] = {}
    nodes: int | None = None
    blind_nodes: int | None = None
    telemetry_at: float | None = None
    measured_at: float | None = None
    listing_at: float | None = None


class SiteView:
    """The site as one round of the service sees it: it does not change within the round.

    read  the site as it is now
    """

    def __init__(self, read: Callable[[], Site] = Site) -> None:
        self._read, self._seen = read, Site()
        self.site = Site()

    def look(self) -> None:
        """From here on it is as it is now."""
        seen = self._read()
        if seen is not self._seen:
            self._seen, self.site = seen, canonical(seen)


def canonical(site: Site) -> Site:
    """The same, as it comes out of the log again. `sizes` are worked out where they are not."""
    return msgspec.structs.replace(
        site, sizes=site.sizes or sizes_of(site.places), protected=sorted(set(site.protected)),
        windows=_joined(site.windows),
    )  # fmt: skip


def sizes_of(places: Mapping[str, Where]) -> dict[str, int]:
    """Scope -> how many nodes it has."""
    sizes: Counter[str] = Counter()
    for place in places.values():
        named = (("rack", place.rack), ("leaf", place.leaf), ("pool", place.pool))
        sizes.update(f"{kind}:{name}" for kind, name in named if name)
        if place.job:
            sizes[f"job:{place.job}"] += 1
    return dict(sizes)


def running(site: Site) -> set[str] | None:
    """Jobs that run on a node; None where nobody lists any node."""
    return {place.job for place in site.places.values() if place.job} if site.places else None


def changes(before: Site, after: Site, at: float) -> list[SiteFacts]:
    """The records that make `after` of `before`, both canonical; none where nothing changed.

    Each holds at most NAMES_MAX names, so that all of a large site fit into several.
    """
    moved: dict[Where, list[str]] = {}
    for node, place in after.places.items():
        if before.places.get(node) != place:
            moved.setdefault(place, []).append(node)
    found = [
        *(SiteFacts(at=at, places=part) for part in _packed(moved)),
        *(SiteFacts(at=at, gone=part)
          for part in _cut(sorted(before.places.keys() - after.places.keys()))),
        *(SiteFacts(at=at, drained_by=dict(part))
          for part in _cut(_differing(before.drained_by, after.drained_by))),
        *(SiteFacts(at=at, booted_at=dict(part))
          for part in _cut(_differing(before.booted_at, after.booted_at))),
        *(SiteFacts(at=at, protected=dict(part)) for part in _cut(_protected(before, after))),
        *_window_facts(before.windows, after.windows, at),
    ]  # fmt: skip
    if _measured(before) != _measured(after):
        found.append(SiteFacts(at=at, measured=_measured(after)))
    return list(_fewer(found))


class SiteBook:
    """The site as far as the log has said it."""

    def __init__(self) -> None:
        self._places: dict[str, Where] = {}
        self._sizes: dict[str, int] | None = {}
        self._drained_by: dict[str, str] = {}
        self._booted_at: dict[str, float] = {}
        self._protected: set[str] = set()
        self._windows: list[Window] = []
        self._measured = Measured()
        self._site: Site | None = Site()

    def take(self, facts: SiteFacts) -> None:
        """The next record."""
        for node in facts.gone:
            self._places.pop(node, None)
        for place, nodes in facts.places:
            self._places.update(dict.fromkeys(nodes, place))
        if facts.places or facts.gone:
            self._sizes = None
        _update(self._drained_by, facts.drained_by)
        _update(self._booted_at, facts.booted_at)
        for node, held in facts.protected.items():
            (self._protected.add if held else self._protected.discard)(node)
        windows = self._windows if facts.windows is None else facts.windows
        self._windows = [*windows, *facts.more_windows]
        self._measured = self._measured if facts.measured is None else facts.measured
        self._site = None

    @property
    def site(self) -> Site:
        """What all of them make; later records do not change it."""
        if self._sizes is None:
            self._sizes = sizes_of(self._places)
        if self._site is None:
            self._windows = _joined(self._windows)
            self._site = Site(
                places=dict(self._places), sizes=self._sizes, drained_by=dict(self._drained_by),
                protected=sorted(self._protected), windows=self._windows,
                booted_at=dict(self._booted_at), **msgspec.structs.asdict(self._measured),
            )  # fmt: skip
        return self._site


def _fewer(found: Sequence[SiteFacts]) -> Iterator[SiteFacts]:
    """Few small changes are one record."""
    if sum(_names(one) for one in found) > NAMES_MAX:
        yield from found
    elif found:
        whole = found[0]
        for one in found[1:]:
            fields = {
                name: value for name, value in msgspec.structs.asdict(one).items()
                if value != getattr(_NOTHING, name) and name != "at"
            }  # fmt: skip
            whole = msgspec.structs.replace(whole, **fields)
        yield whole


def _names(facts: SiteFacts) -> int:
    windows = [*(facts.windows or ()), *facts.more_windows]
    return (
        sum(1 + len(nodes) for _, nodes in facts.places) + len(facts.gone)
        + len(facts.drained_by) + len(facts.protected) + len(facts.booted_at)
        + sum(1 + len(window.nodes) for window in windows)
    )  # fmt: skip


def _packed(moved: Mapping[Where, list[str]]) -> Iterator[list[tuple[Where, list[str]]]]:
    """Places with their nodes, a place in several parts where it has many."""
    part: list[tuple[Where, list[str]]] = []
    room = NAMES_MAX
    for place, nodes in moved.items():
        for piece in _cut(nodes, NAMES_MAX - 1):
            if 1 + len(piece) > room:
                yield part
                part, room = [], NAMES_MAX
            part.append((place, piece))
            room -= 1 + len(piece)
    if part:
        yield part


def _window_facts(
    before: Sequence[Window], after: Sequence[Window], at: float
) -> Iterator[SiteFacts]:
    if before == after:
        return
    pieces = [
        msgspec.structs.replace(window, nodes=nodes)
        for window in after
        for nodes in (_cut(window.nodes, NAMES_MAX - 1) if window.nodes else [[]])
    ]
    part: list[Window] = []
    room, first = NAMES_MAX, True
    for piece in pieces:
        if 1 + len(piece.nodes) > room:
            yield _windows(part, at, first)
            part, room, first = [], NAMES_MAX, False
        part.append(piece)
        room -= 1 + len(piece.nodes)
    yield _windows(part, at, first)


def _windows(part: list[Window], at: float, first: bool) -> SiteFacts:
    return SiteFacts(at=at, windows=part) if first else SiteFacts(at=at, more_windows=part)


def _joined(windows: Iterable[Window]) -> list[Window]:
    """One window once, with the nodes of all its pieces; one for all nodes stays one."""
    found: dict[tuple[str, float, float, bool], Window] = {}
    for window in windows:
        key = (window.name, window.since, window.until, bool(window.nodes))
        known = found[key].nodes if key in found else []
        nodes = list(dict.fromkeys([*known, *window.nodes]))
        found[key] = msgspec.structs.replace(window, nodes=nodes)
    return list(found.values())


def _protected(before: Site, after: Site) -> list[tuple[str, bool]]:
    was, now = set(before.protected), set(after.protected)
    return [(node, node in now) for node in sorted(was ^ now)]


def _differing(
    before: Mapping[str, Value], after: Mapping[str, Value]
) -> list[tuple[str, Value | None]]:
    moved: list[tuple[str, Value | None]] = [
        (name, value) for name, value in after.items() if before.get(name) != value
    ]
    return moved + [(name, None) for name in before if name not in after]


def _update(known: dict[str, Value], said: Mapping[str, Value | None]) -> None:
    for name, value in said.items():
        if value is None:
            known.pop(name, None)
        else:
            known[name] = value


def _cut(values: Iterable[Value], most: int = NAMES_MAX) -> Iterator[list[Value]]:
    rest = iter(values)
    while piece := list(islice(rest, most)):
        yield piece


def _measured(site: Site) -> Measured:
    return Measured(
        nodes=site.nodes, blind_nodes=site.blind_nodes, telemetry_at=site.telemetry_at,
        measured_at=site.measured_at, listing_at=site.listing_at,
    )  # fmt: skip


_NOTHING = SiteFacts(at=0.0)
