"""Notices that somebody took a drain of ours off: a person's word, and it wins.

Asks the scheduler itself: its inventory comes late, and could still show how things were before.
Nobody waits for its answer, and what was drained or given back meanwhile is judged by the next one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from actions.context import OURS
from actions.ledger import Ledger
from actions.ports import Looks
from telemetry.actions import Command, Outcome, Preconditions, Recovery, Request
from telemetry.errors import SourceUnavailable
from telemetry.findings import ISOLATING, Incident, stable_id
from telemetry.ports import Clock

EVERY_S, EVERY_MAX_S = 10.0, 160.0  # between looks; longer where nobody answers
NODES_MAX = 500  # of one look, those that went last; those that are surely out before others
BY = "scheduler"  # nobody says who it was
DRAINED = frozenset({"DRAIN", "DRAINED", "DRAINING", "FAIL"})


class Drain(NamedTuple):
    """What took a node out; not `certain`: it may have, which has to be seen first."""

    command: Command
    certain: bool


class UndoneWatch:
    """See above; of the active instance."""

    def __init__(self, looks: Looks, ledger: Ledger, clock: Clock) -> None:
        self._looks, self._ledger, self._clock = looks, ledger, clock
        self._every_s = EVERY_S
        self._next_s = clock.monotonic_s()
        self._asked: dict[str, Drain] = {}  # of the look that is under way
        self._seen: dict[str, str] = {}  # node that was seen to be out by us -> by what command

    def news(self, incidents: Mapping[str, Incident]) -> list[Request]:
        """A release for each node that was given back meanwhile, as if a person had asked for it.

        incidents  by id: an open one about such a node is named
        """
        if not self._asked and self._clock.monotonic_s() >= self._next_s:
            self._ask()
        seen = self._answer() if self._asked else None
        if seen is None:
            return []
        asked, self._asked = self._asked, {}
        # A drain that was made meanwhile is none that the look could have seen undone.
        now = {node: one for node, one in drains(self._ledger).items() if asked.get(node) == one}
        ours = self._were_out(now, seen)
        now_s = self._clock.time_s()
        return [
            Request(
                id=stable_id("undone", node, ours[node].id), at=now_s, by=BY, role=None,
                verb="release", target=node, accepted=True,
                reason=f"somebody took our drain off {node} in the scheduler",
                note=warning(node, incidents.values()), control=place,
            )
            for node, place in zip(given_back(ours, seen), self._places(), strict=False)
        ]  # fmt: skip

    def in_force(self) -> set[str]:
        """Decisions by which a node is out: as long as it is, its end is to be noticed."""
        return {
            one.command.decision for node, one in drains(self._ledger).items()
            if one.certain or self._seen.get(node) == one.command.id
        }  # fmt: skip

    def _ask(self) -> None:
        found = sorted(drains(self._ledger).items(), key=lambda one: one[1].certain)
        self._asked = dict(found[-NODES_MAX:])
        self._next_s = self._clock.monotonic_s() + self._every_s
        if self._asked:
            self._looks.ask(list(self._asked))

    def _answer(self) -> Preconditions | None:
        """How they are; None while nobody answers."""
        try:
            seen = self._looks.answer()
        except SourceUnavailable:
            self._asked = {}
            self._every_s = min(2.0 * self._every_s, EVERY_MAX_S)
            self._next_s = self._clock.monotonic_s() + self._every_s
            return None
        if seen is not None:
            self._every_s = EVERY_S
            self._next_s = self._clock.monotonic_s() + self._every_s
        return seen

    def _were_out(self, now: Mapping[str, Drain], seen: Preconditions) -> dict[str, Command]:
        """Those that were out by us for certain, or were seen to be."""
        self._seen = {node: name for node, name in self._seen.items() if node in now}
        for node, one in now.items():
            if seen.owners.get(node) == OURS:
                self._seen[node] = one.command.id
        return {
            node: one.command for node, one in now.items()
            if one.certain or self._seen.get(node) == one.command.id
        }  # fmt: skip

    def _places(self) -> Iterator[tuple[float, int] | None]:
        """Where each stands in our stream of Control records."""
        first = self._ledger.next_control()
        number = 0
        while True:
            yield None if first is None else (first[0], first[1] + number)
            number += 1


def drains(ledger: Ledger) -> dict[str, Drain]:
    """Nodes that we drained, or may have, and nobody was known to give back since."""
    out: dict[str, Drain] = {}
    for command in ledger.all_commands():
        outcome = ledger.outcomes.get(command.id)
        if outcome is None or command.dry_run:
            continue
        certain = _is_so(outcome, ledger.recoveries.get(command.decision))
        may_be = certain or _may_be_so(command, outcome)
        for node in command.targets:
            if certain and (command.action == "release" or command.step == "undrain"):
                out.pop(node, None)
            elif may_be and command.action in ISOLATING and command.step in ("", "drain"):
                before = out.get(node)
                if certain or before is None or not before.certain:
                    out.pop(node, None)  # the newest is the last
                    out[node] = Drain(command, certain)
    return {
        node: one for node, one in out.items()
        if ledger.released.get(node, float("-inf")) < one.command.intent_at
    }  # fmt: skip


def held(ledger: Ledger) -> dict[str, Command]:
    """Those of them that are out for certain: by what command."""
    return {node: one.command for node, one in drains(ledger).items() if one.certain}


def _is_so(outcome: Outcome, recovery: Recovery | None) -> bool:
    """Of a recovery it was seen, whatever the call said; else what it said has to do."""
    if recovery is None:
        return outcome.status == "done"
    return recovery.out and outcome.status in ("done", "unknown")


def _may_be_so(command: Command, outcome: Outcome) -> bool:
    """What was not refused for a single node may have been done to some."""
    return outcome.status in ("done", "unknown") or len(command.targets) > 1


def readmitted(ledger: Ledger, job: str, excluded: Collection[str]) -> list[str]:
    """Nodes that we once kept the job from, and that are not out any more: else a job that was
    restarted a few times would have no nodes left.
    """
    if not job:
        return []
    once = {
        node
        for command, _ in ledger.done_commands()
        if command.job == job and command.step in ("", "restart") and not command.dry_run
        for node in command.exclude
    }
    return sorted(once - set(held(ledger)) - set(excluded))


def given_back(ours: Collection[str], seen: Preconditions) -> list[str]:
    """Those that are seen to be in service again. What is not seen, or not said, is unknown."""
    return [
        node
        for node in ours
        if seen.states.get(node) and seen.owners.get(node) == ""
        and not DRAINED & set(seen.states[node].upper().split("+"))
    ]  # fmt: skip


def warning(node: str, incidents: Iterable[Incident]) -> str:
    """Which open incidents are about the node; "" where none is."""
    still = [
        one.id
        for one in incidents
        if one.closed_at is None and not one.merged_into
        and (node in one.verdict.targets or any(node == of.node for of in one.suspects))
    ]  # fmt: skip
    more = f" and {len(still) - 8} more" if len(still) > 8 else ""
    return f"{node} still has open incidents: {', '.join(still[:8])}{more}" if still else ""
