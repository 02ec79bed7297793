"""How much may go: budgets by scope and time, and the breaker for when a rule runs wild."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from actions.rail_rules import NOWHERE, QUARANTINE, UNUSED, Question, where
from telemetry.actions import Rail, RailContext
from telemetry.findings import Verdict
from telemetry.settings import RailSettings

_A = {"hour": "an hour", "day": "a day"}


def charges(verdict: Verdict, job: str, context: RailContext) -> dict[str, int]:
    """Scope -> nodes that the verdict takes from its budget; what the ledger has to count too.

    A quarantine of a whole job has a budget of its own, "quarantine". A node whose rack, leaf or
    pool nobody knows counts in the cluster's at least.
    """
    if verdict.step == "quarantine":
        return {QUARANTINE: len(verdict.targets)}
    found: Counter[str] = Counter()
    for node in verdict.targets:
        found.update(where(context, node))
    if job and verdict.targets:
        found[f"job:{job}"] = len(verdict.targets)
    return dict(found)


def budgets(asked: Question) -> Iterator[Rail]:
    """Each scope's nodes within an hour and within a day, this verdict's too."""
    for scope, added in sorted(charges(asked.verdict, asked.incident.job, asked.context).items()):
        used = asked.context.used.get(scope, UNUSED)
        for span, before, most in zip(
            ("hour", "day"), (used.hour, used.day), limits(scope, asked.settings), strict=True
        ):
            words = f"{before} used and {added} wanted of {most} in {_A[span]}"
            yield Rail(f"budget {scope} {span}", before + added <= most, words)


def budgets_kept(asked: Question) -> Iterator[Rail]:
    """Right before the act: what was approved meanwhile, this decision too, is within the budgets.

    Several may have been decided before any of them counted, or approved by a person at once.
    """
    for scope in sorted(charges(asked.verdict, asked.incident.job, asked.context)):
        used = asked.context.used.get(scope, UNUSED)
        for span, spent, most in zip(
            ("hour", "day"), (used.hour, used.day), limits(scope, asked.settings), strict=True
        ):
            yield Rail(f"budget {scope} {span}", spent <= most, f"{spent} of {most} in {_A[span]}")


def limits(scope: str, settings: RailSettings) -> tuple[int, int]:
    """(a scope's nodes in an hour, in a day)."""
    held = settings.quarantine_nodes_per_day
    by_kind = {
        "job": (settings.job_nodes_per_hour, settings.job_nodes_per_day),
        "rack": (settings.rack_nodes_per_hour, settings.rack_nodes_per_day),
        "leaf": (settings.leaf_nodes_per_hour, settings.leaf_nodes_per_day),
        "pool": (settings.pool_nodes_per_hour, settings.pool_nodes_per_day),
        "cluster": (settings.cluster_nodes_per_hour, settings.cluster_nodes_per_day),
        QUARANTINE: (held, held),
    }
    return by_kind[scope.partition(":")[0]]


def breaker(asked: Question) -> Iterator[Rail]:
    """Closed where a rule wants few out; open it lets no node go. Releases do not ask it.

    A quarantine is one decision about many nodes, which a person takes: only others open it.
    """
    targets = asked.verdict.targets if asked.verdict.step != "quarantine" else ()
    is_open, words = breaker_open(asked.context, asked.settings, targets)
    yield Rail("breaker", not is_open, words)


def breaker_open(
    context: RailContext, settings: RailSettings, targets: Iterable[str] = ()
) -> tuple[bool, str]:
    """Whether it is open, and why.

    targets  wanted out too, beside those of `context.recent`

    It opens at `breaker_nodes`, or at `breaker_share` of a rack, leaf, pool or job of which the
    size is known; once open it closes only at `breaker_close_nodes`.
    """
    added = {node for node in targets if node not in context.recent}
    wanted = len(context.recent) + len(added)
    count = f"{wanted} nodes wanted out in {settings.breaker_window_s:g} s"
    if wanted >= settings.breaker_nodes:  # with fewer than that it can be asked who they are
        return True, f"{count}, it opens at {settings.breaker_nodes}"
    nodes = chain(context.recent, added)
    for scope, of_it in sorted(Counter(_scopes(context, nodes)).items()):
        size = context.sizes.get(scope)
        if size and of_it >= max(settings.breaker_share_nodes_min, settings.breaker_share * size):
            most = 100.0 * settings.breaker_share
            return True, f"{of_it} of {size} nodes of {scope} wanted out, it opens at {most:g} %"
    if context.breaker_open and wanted > settings.breaker_close_nodes:
        return True, f"{count}; it is open and closes at {settings.breaker_close_nodes}"
    return False, f"{count}, it opens at {settings.breaker_nodes}"


def _scopes(context: RailContext, nodes: Iterable[str]) -> Iterator[str]:
    for node in nodes:
        yield from where(context, node)
        job = context.places.get(node, NOWHERE).job
        if job:
            yield f"job:{job}"
