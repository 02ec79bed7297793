"""Nodes that come back: who was blamed again and again within 30 days.

Signals after Meta's RSC study (HPCA'25, "lemon nodes"): different jobs, Xids, how often out,
failures of jobs. Its limits are not published; ours are below.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping

import msgspec

from actions.accounting.stories import Story
from telemetry.accounts import Lemon
from telemetry.findings import Kind
from telemetry.records import Event

LEMON_S = 30 * 86_400.0
LEMON_JOBS = 3  # so many different jobs that a node was blamed for make it a lemon
LEMON_INCIDENTS = 4  # or so many incidents
SHOWN_INCIDENTS = 2  # fewer are no repetition
LEMONS_MAX = 200
NODES_MAX = 50_000
LINES_MAX = 20_000


class Xids:
    """Xid lines per node and day, each once; None where no kernel log was read."""

    def __init__(self) -> None:
        self.is_read = False
        self._days: OrderedDict[str, dict[int, int]] = OrderedDict()
        self._seen: OrderedDict[tuple[str, str, float, int], None] = OrderedDict()

    def take(self, event: Event, at: float) -> None:
        """One event; a line that was read twice counts once."""
        self.is_read = True
        if event.type != "xid" or not event.node:
            return
        place = event.seq if event.kmsg_seq is None else event.kmsg_seq
        key = (
            event.node,
            event.boot_id,
            event.started_at if event.kmsg_seq is None else 0.0,
            place,
        )
        if key in self._seen:
            return
        self._seen[key] = None
        if len(self._seen) > LINES_MAX:
            self._seen.popitem(last=False)
        days = self._days.setdefault(event.node, {})
        day = int(at // 86_400.0)
        days[day] = days.get(day, 0) + 1
        if len(days) > 64:
            del days[min(days)]
        if len(self._days) > NODES_MAX:
            self._days.popitem(last=False)

    def count(self, node: str, from_s: float, to_s: float) -> int | None:
        """How many in the days from the one of `from_s` on."""
        if not self.is_read:
            return None
        days = self._days.get(node, {})
        return sum(n for day, n in days.items() if from_s // 86_400.0 <= day <= to_s // 86_400.0)


class _Blame(msgspec.Struct):
    incidents: int = 0
    jobs: set[str] = set()
    failures: int = 0
    kinds: set[Kind] = set()
    last_at: float = 0.0


def lemons(
    stories: Iterable[Story], interrupting: Collection[str], isolated: Mapping[str, int] | None,
    xids: Xids, to_s: float,
) -> list[Lemon]:  # fmt: skip
    """Nodes that were blamed twice or more in the 30 days before `to_s`, the worst first.

    stories       without false alarms
    interrupting  ids of the incidents that interrupted their job
    isolated      node -> how often it was taken out in that time; None where nobody knows
    """
    from_s = to_s - LEMON_S
    found: dict[str, _Blame] = {}
    for story in stories:
        if not from_s <= story.opened_at <= to_s:
            continue
        for node in story.blamed:
            blame = found.setdefault(node, _Blame(jobs=set(), kinds=set()))
            blame.incidents += 1
            blame.failures += story.id in interrupting
            blame.kinds.add(story.kind)
            blame.last_at = max(blame.last_at, story.opened_at)
            if story.job:
                blame.jobs.add(story.job)
    rows = [
        Lemon(
            node=node, incidents=one.incidents, jobs=len(one.jobs), failures=one.failures,
            kinds=sorted(one.kinds), last_at=one.last_at,
            isolated=None if isolated is None else isolated.get(node, 0),
            xids=xids.count(node, from_s, to_s),
            is_lemon=len(one.jobs) >= LEMON_JOBS or one.incidents >= LEMON_INCIDENTS,
        )
        for node, one in found.items()
        if one.incidents >= SHOWN_INCIDENTS
    ]  # fmt: skip
    rows.sort(key=lambda row: (-row.is_lemon, -row.jobs, -row.incidents, row.node))
    return rows[:LEMONS_MAX]
