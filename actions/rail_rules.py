"""The rails, one function each: what it checks of a verdict, with its numbers.

What nobody knows never lets anything pass: unknown is neither healthy nor allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from actions.windows import calendar, covering, named
from telemetry.actions import Rail, RailContext, Used, Where
from telemetry.findings import ACTING, ISOLATING, Incident, Verdict
from telemetry.settings import RailSettings

QUARANTINE, CLUSTER = "quarantine", "cluster"
NOWHERE, UNUSED = Where(), Used()
# What a rail that says no does: nothing happens; it is only observed; a person is asked first.
Effect = Literal["refuse", "observe", "approve"]


@dataclass(frozen=True, slots=True)
class Question:
    """One verdict before the rails; `now_s` is the service's."""

    verdict: Verdict
    incident: Incident
    context: RailContext
    settings: RailSettings
    now_s: float

    @property
    def isolates(self) -> bool:
        """Whether nodes would go."""
        return self.verdict.action in ISOLATING

    @property
    def kind(self) -> str:
        """The action, under the name that has a mode: a quarantine has its own."""
        return QUARANTINE if self.verdict.step == "quarantine" else self.verdict.action

    @property
    def nodes(self) -> list[str]:
        """The nodes that the incident is about: targets, suspects, and who told of it."""
        told = {line.node for line in self.incident.evidence}
        named = {suspect.node for suspect in self.incident.suspects}
        return sorted((told | named | set(self.verdict.targets)) - {""})


Rule = Callable[[Question], Iterator[Rail]]


def incident_open(asked: Question) -> Iterator[Rail]:
    """An incident that is over needs no act any more, nor one in which a step worked."""
    incident = asked.incident
    worked = next((said for said in incident.verdicts if said.final_cause), None)
    if worked is not None and worked.at >= asked.verdict.at:
        yield Rail("incident", False, f"a step worked already: {worked.reason}")
    elif incident.merged_into:
        yield Rail("incident", False, f"the incident was merged into {incident.merged_into}")
    elif incident.closed_at is not None:
        ago_s = asked.now_s - incident.closed_at
        yield Rail("incident", False, f"the incident was closed {ago_s:.0f} s ago")
    else:
        yield Rail("incident", True, "the incident is open")


def maintenance(asked: Question) -> Iterator[Rail]:
    """In a window nothing is done; where it covers all of the incident's nodes nobody is paged."""
    windows = [*calendar(asked.settings.maintenance), *asked.context.windows]
    window, outside = covering(windows, asked.nodes, asked.now_s)
    if window is None:
        known = f"{len(windows)} known windows"
        yield Rail("maintenance", True, f"none of {known} is open for its nodes")
        return
    until = f"maintenance window {window.name}, {window.until - asked.now_s:.0f} s to go"
    if not outside:
        yield Rail("maintenance", False, until)
        return
    inside = sorted(set(asked.verdict.targets) - set(outside))
    yield Rail("maintenance", True, f"{until}, but {len(outside)} of its nodes are outside")
    if inside:
        yield Rail("maintenance of a target", False, f"{', '.join(inside)}: {until}")


def paused(asked: Question) -> Iterator[Rail]:
    """The kill switch."""
    on = asked.context.paused
    yield Rail("pause", not on, "a person paused everything" if on else "not paused")


def first_start(asked: Question) -> Iterator[Rail]:
    """Without a past nobody knows what was done before: look on for a while."""
    first = asked.context.first_start
    words = "the ledger is empty or new: nothing is known of what was done before"
    yield Rail("first start", not first, words if first else "the ledger has a past")


def shadow(asked: Question) -> Iterator[Rail]:
    """A new rule is recorded and does nothing, nor does what rests on a new detector alone."""
    rules, rung = set(asked.settings.shadow), asked.verdict.rung
    grounds = {line.detector for line in asked.incident.evidence}
    if rung in rules:
        yield Rail("shadow", False, f"the rung {rung!r} is in shadow mode")
    elif grounds and grounds <= rules:
        yield Rail("shadow", False, f"it rests on {', '.join(sorted(grounds))}, in shadow mode")
    else:
        yield Rail("shadow", True, f"not in shadow mode ({len(rules)} rules are)")


def verdict_fresh(asked: Question) -> Iterator[Rail]:
    """An old verdict speaks of a world that moved on."""
    age_s, most_s = asked.now_s - asked.verdict.at, asked.settings.verdict_max_s
    yield Rail("fresh verdict", age_s <= most_s, f"{age_s:.0f} s old, at most {most_s:g} s")


def telemetry_fresh(asked: Question) -> Iterator[Rail]:
    """Neither old readings nor an old listing say what is true now."""
    context, settings = asked.context, asked.settings
    yield _age("fresh telemetry", context.telemetry_age_s, settings.telemetry_max_s)
    yield _age("fresh listing", context.listing_age_s, settings.listing_max_s)


def _age(name: str, age_s: float | None, most_s: float) -> Rail:
    if age_s is None:
        return Rail(name, False, f"nobody knows how old it is, at most {most_s:g} s")
    return Rail(name, age_s <= most_s, f"{age_s:.0f} s old, at most {most_s:g} s")


def coverage(asked: Question) -> Iterator[Rail]:
    """With too many blind nodes nothing is automatic."""
    nodes, blind = asked.context.nodes, asked.context.blind_nodes
    most = 100.0 * asked.settings.blind_share_max
    if not nodes or blind is None:
        yield Rail("coverage", False, f"nobody knows how many nodes are blind, at most {most:g} %")
        return
    share = blind / nodes
    words = f"{blind} of {nodes} nodes blind ({100.0 * share:.0f} %), at most {most:g} %"
    yield Rail("coverage", share <= asked.settings.blind_share_max, words)


def protected(asked: Question) -> Iterator[Rail]:
    """Some nodes never go."""
    never = {*asked.context.protected, *named(asked.settings.protected, "protected")}
    held = [node for node in asked.verdict.targets if node in never]
    words = f"{', '.join(held)} is protected" if held else f"none of {len(never)} protected nodes"
    yield Rail("protected", not held, words)


def others_drain(asked: Question) -> Iterator[Rail]:
    """Who else drained a node owns it."""
    drained = asked.context.drained_by
    held = [f"{node} by {drained[node]}" for node in asked.verdict.targets if drained.get(node)]
    words = f"drained already: {', '.join(held)}" if held else "nobody else drained it"
    yield Rail("others' drain", not held, words)


def undone(asked: Question) -> Iterator[Rail]:
    """A person who released a node knows better."""
    yield _since(asked, "undone by a person", asked.context.undone_at, asked.settings.undo_s)


def settled(asked: Question) -> Iterator[Rail]:
    """After a boot much looks broken that is not."""
    yield _since(asked, "settled after boot", asked.context.booted_at, asked.settings.settle_s)


def cooled(asked: Question) -> Iterator[Rail]:
    """What was just done must have had time to help."""
    yield _since(asked, "cooldown", asked.context.acted_at, asked.settings.cooldown_s)


def _since(asked: Question, name: str, times: dict[str, float], least_s: float) -> Rail:
    """No target for which the last time is less than `least_s` ago; one never had is fine."""
    ages = [(asked.now_s - times[node], node) for node in asked.verdict.targets if node in times]
    if not ages:
        return Rail(name, True, f"never, at least {least_s:g} s ago is wanted")
    age_s, node = min(ages)
    words = f"{node} {age_s:.0f} s ago, at least {least_s:g} s is wanted"
    return Rail(name, age_s >= least_s, words)


def attempts(asked: Question) -> Iterator[Rail]:
    """A node that keeps coming back broken is a person's."""
    settings = asked.settings
    counts = [(asked.context.attempts.get(node, 0), node) for node in asked.verdict.targets]
    count, node = max(counts, default=(0, ""))
    words = (
        f"{node or 'nobody'} was taken out {count} times in {settings.attempts_window_s:g} s, "
        f"fewer than {settings.attempts_max} are wanted"
    )
    yield Rail("attempts", count < settings.attempts_max, words)


def acts(asked: Question) -> bool:
    """Whether anything would be done."""
    return asked.verdict.action in ACTING or asked.verdict.action == "diagnose"


def where(context: RailContext, node: str) -> Iterator[str]:
    """The scopes that a node counts in, the cluster last."""
    place = context.places.get(node, NOWHERE)
    named = (("rack", place.rack), ("leaf", place.leaf), ("pool", place.pool))
    yield from (f"{kind}:{name}" for kind, name in named if name)
    yield CLUSTER
