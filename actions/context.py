"""What the rails read, put together from the ledger and from what is known of the site.

Pure: the same ledger, site and time give the same context, so that a decision can be made again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from actions.budgets import charges
from actions.ledger import Ledger
from actions.site import Site, sizes_of
from telemetry.actions import Decision, RailContext, Used
from telemetry.findings import ISOLATING
from telemetry.settings import ActSettings

__all__ = ["Site", "rail_context", "sizes_of"]

HOUR_S, DAY_S = 3_600.0, 86_400.0
OURS = "nodewarden"  # who drained a node, where it was us
FRESH_S = 120.0  # what was measured longer ago is not known any more


def rail_context(ledger: Ledger, site: Site, settings: ActSettings, now_s: float) -> RailContext:
    """See above.

    What is older than `keep_s` is left out, whether the ledger has forgotten it by now or not.
    """
    rails, since_s = settings.rails, now_s - settings.keep_s
    measured = site.measured_at is not None and now_s - site.measured_at <= FRESH_S
    taken = list(_taken_out(ledger, settings.dry_run, since_s))
    first_at = ledger.first_at
    return RailContext(
        used=_used(taken, site, now_s),
        places=site.places,
        attempts=dict(Counter(
            node for decision, at_s in taken if now_s - at_s <= rails.attempts_window_s
            for node in decision.verdict.targets
        )),
        acted_at=_acted_at(ledger, since_s),
        booted_at=site.booted_at,
        protected=site.protected,
        drained_by={node: who for node, who in site.drained_by.items() if who != OURS},
        undone_at={node: at for node, at in ledger.released.items() if at >= since_s},
        windows=site.windows,
        sizes=site.sizes,
        nodes=site.nodes if measured else None,
        blind_nodes=site.blind_nodes if measured else None,
        telemetry_age_s=_age(site.telemetry_at, now_s),
        listing_age_s=_age(site.listing_at, now_s),
        paused=ledger.paused,
        first_start=first_at is None or now_s - first_at < settings.first_observe_s,
        breaker_open=_breaker_was_open(ledger, since_s),
        recent=ledger.wanted.since(now_s - rails.breaker_window_s),
    )  # fmt: skip


def _taken_out(ledger: Ledger, dry_run: bool, since_s: float) -> Iterator[tuple[Decision, float]]:
    """What took nodes out, may have, or will: and when. A real service does not count dry runs."""
    for decision in ledger.approved():
        if decision.verdict.action not in ISOLATING or decision.at < since_s:
            continue
        drains = [one for one in ledger.commands_of(decision.id) if one.step in ("", "drain")]
        if not drains:
            yield decision, decision.at
            continue
        found = [ledger.outcomes.get(one.id) for one in drains]
        # Of several nodes some may have gone before one failed: then all of them count.
        undone = len(decision.verdict.targets) == 1 and all(
            one is not None and one.status in ("failed", "refused") for one in found
        )
        if not undone and (dry_run or not drains[-1].dry_run):
            yield decision, drains[-1].intent_at


def _acted_at(ledger: Ledger, since_s: float) -> dict[str, float]:
    """Node -> when something was last done to it."""
    found: dict[str, float] = {}
    for command, _ in ledger.done_commands():
        decision = ledger.decisions.get(command.decision)
        if decision is None or decision.at < since_s:
            continue
        for node in command.targets:
            found[node] = max(found.get(node, command.intent_at), command.intent_at)
    return found


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


def _breaker_was_open(ledger: Ledger, since_s: float) -> bool:
    """As the newest decision that asked it found it."""
    for decision in ledger.of_breaker():
        if decision.at < since_s:
            continue
        for rail in decision.rails:
            if rail.name == "breaker":
                return not rail.passed
    return False


def _age(at_s: float | None, now_s: float) -> float | None:
    return None if at_s is None else max(now_s - at_s, 0.0)
