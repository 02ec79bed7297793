"""What the rails read, put together from the ledger and from what is known of the site.

Pure: the same ledger, site and time give the same context, so that a decision can be made again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from actions.budgets import charges
from actions.ledger import Ledger
from telemetry.actions import Decision, RailContext, Used, Where, Window
from telemetry.findings import ISOLATING
from telemetry.settings import ActSettings

HOUR_S, DAY_S = 3_600.0, 86_400.0
OURS = "nodewarden"  # who drained a node, where it was us
FRESH_S = 120.0  # what was measured longer ago is not known any more


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


def rail_context(ledger: Ledger, site: Site, settings: ActSettings, now_s: float) -> RailContext:
    """See above."""
    rails = settings.rails
    measured = site.measured_at is not None and now_s - site.measured_at <= FRESH_S
    taken = list(_taken_out(ledger, settings.dry_run))
    first_at = ledger.first_at
    return RailContext(
        used=_used(taken, site, now_s),
        places=site.places,
        attempts=dict(Counter(
            node for decision, at_s in taken if now_s - at_s <= rails.attempts_window_s
            for node in decision.verdict.targets
        )),
        acted_at={
            node: command.intent_at for command, _ in ledger.done_commands()
            for node in command.targets
        },
        booted_at=site.booted_at,
        protected=site.protected,
        drained_by={node: who for node, who in site.drained_by.items() if who != OURS},
        undone_at=dict(ledger.released),
        windows=site.windows,
        sizes=site.sizes,
        nodes=site.nodes if measured else None,
        blind_nodes=site.blind_nodes if measured else None,
        telemetry_age_s=_age(site.telemetry_at, now_s),
        listing_age_s=_age(site.listing_at, now_s),
        paused=ledger.paused,
        first_start=first_at is None or now_s - first_at < settings.first_observe_s,
        breaker_open=_breaker_was_open(ledger),
        recent={
            node: at for node, at in ledger.wanted.items()
            if at > now_s - rails.breaker_window_s
        },
    )  # fmt: skip


def _taken_out(ledger: Ledger, dry_run: bool) -> Iterator[tuple[Decision, float]]:
    """What took nodes out, may have, or will: and when. A real service does not count dry runs."""
    for decision in ledger.approved():
        if decision.verdict.action not in ISOLATING:
            continue
        command = ledger.command_of(decision.id)
        if command is None:
            yield decision, decision.at
            continue
        outcome = ledger.outcomes.get(command.id)
        undone = outcome is not None and outcome.status in ("failed", "refused")
        if not undone and (dry_run or not command.dry_run):
            yield decision, command.intent_at


def _used(taken: list[tuple[Decision, float]], site: Site, now_s: float) -> dict[str, Used]:
    where = RailContext(places=site.places)
    hour: Counter[str] = Counter()
    day: Counter[str] = Counter()
    for decision, at_s in taken:
        if now_s - at_s <= DAY_S:
            charged = charges(decision.verdict, decision.job, where)
            day.update(charged)
            if now_s - at_s <= HOUR_S:
                hour.update(charged)
    return {scope: Used(hour[scope], count) for scope, count in day.items()}


def sizes_of(places: Mapping[str, Where]) -> dict[str, int]:
    """Scope -> how many nodes it has."""
    sizes: Counter[str] = Counter()
    for place in places.values():
        named = (("rack", place.rack), ("leaf", place.leaf), ("pool", place.pool))
        sizes.update(f"{kind}:{name}" for kind, name in named if name)
        if place.job:
            sizes[f"job:{place.job}"] += 1
    return dict(sizes)


def _breaker_was_open(ledger: Ledger) -> bool:
    """As the newest decision that asked it found it."""
    for decision in reversed(ledger.decisions.values()):
        for rail in decision.rails:
            if rail.name == "breaker":
                return not rail.passed
    return False


def _age(at_s: float | None, now_s: float) -> float | None:
    return None if at_s is None else max(now_s - at_s, 0.0)
