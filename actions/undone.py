"""Notices that somebody took a drain of ours off: a person's word, and it wins.

Asks the scheduler itself: its inventory comes late, and could still show how things were before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from actions.ledger import Ledger
from actions.ports import Executor
from telemetry.actions import Command, Preconditions, Request
from telemetry.errors import SourceUnavailable
from telemetry.findings import ISOLATING, Incident, stable_id
from telemetry.ports import Clock

EVERY_S, EVERY_MAX_S = 10.0, 160.0  # between looks; longer where nobody answers
NODES_MAX = 500  # of one look, those that went last
BY = "scheduler"  # nobody says who it was
DRAINED = frozenset({"DRAIN", "DRAINED", "DRAINING", "FAIL"})


class UndoneWatch:
    """See above; of the active instance."""

    def __init__(self, executor: Executor, ledger: Ledger, clock: Clock) -> None:
        self._executor, self._ledger, self._clock = executor, ledger, clock
        self._every_s = EVERY_S
        self._next_s = clock.monotonic_s()

    def news(self, incidents: Mapping[str, Incident]) -> list[Request]:
        """A release for each node that was given back meanwhile, as if a person had asked for it.

        incidents  by id: an open one about such a node is named
        """
        if self._clock.monotonic_s() < self._next_s:
            return []
        ours = dict(list(held(self._ledger).items())[-NODES_MAX:])
        seen = self._seen(ours) if ours else Preconditions()
        self._next_s = self._clock.monotonic_s() + self._every_s
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

    def _seen(self, nodes: Collection[str]) -> Preconditions:
        """How they are; nothing where nobody answers."""
        try:
            seen = self._executor.observe(list(nodes))
        except SourceUnavailable:
            self._every_s = min(2.0 * self._every_s, EVERY_MAX_S)
            return Preconditions()
        self._every_s = EVERY_S
        return seen

    def _places(self) -> Iterator[tuple[float, int] | None]:
        """Where each stands in our stream of Control records."""
        first = self._ledger.next_control()
        number = 0
        while True:
            yield None if first is None else (first[0], first[1] + number)
            number += 1


def held(ledger: Ledger) -> dict[str, Command]:
    """Nodes that we drained, and nobody was known to give back since: by what command."""
    out: dict[str, Command] = {}
    for command, outcome in ledger.done_commands():
        recovery = ledger.recoveries.get(command.decision)
        # Of a recovery it was seen, whatever the call said; else what it said has to do.
        is_so = outcome.status == "done" if recovery is None else recovery.out
        if command.dry_run or not is_so:
            continue
        for node in command.targets:
            if command.action == "release" or command.step == "undrain":
                out.pop(node, None)
            elif command.action in ISOLATING and command.step in ("", "drain"):
                out.pop(node, None)  # the newest is the last
                out[node] = command
    return {
        node: command
        for node, command in out.items()
        if ledger.released.get(node, float("-inf")) < command.intent_at
    }


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
