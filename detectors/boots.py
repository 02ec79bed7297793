"""When each node booted last, as boot ids and the boot clock say: a reboot is a way out of a state.

What happens in the minutes after a boot is the boot: links train, drivers load, counters jump.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detectors.base import FloatArray, Tick
from telemetry.records import Event

BOOT_TIME = "host_boot_time_seconds"
NODES_MAX = 20_000
SAME_BOOT_S = 30.0  # the kernel's boot clock moves a little as time is set


class Boots:
    """node -> (boot id, boot time); both "" and None where nobody said."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, float | None]] = {}
        # The newest tick's clocks: nearly all ticks repeat them. A cache, no state.
        self._same: tuple[tuple[str, ...], FloatArray] = ((), np.empty(0))

    def of_event(self, event: Event) -> bool:
        """Take the event's boot id in; whether the node booted anew."""
        if not event.boot_id or not event.node:
            return False
        known = self._known.get(event.node)
        if known is None or known[0] in ("", event.boot_id):
            self._keep(event.node, event.boot_id, None if known is None else known[1])
            return False
        # The boot clock of `of_tick` may have told of the same boot already; it is the better time.
        self._keep(event.node, event.boot_id, event.at)
        return True

    def of_tick(self, tick: Tick) -> list[str]:
        """Take the hosts' boot clocks in; the nodes that booted anew, in the tick's order."""
        names = [metric.name for metric in tick.watched_metrics]
        if BOOT_TIME not in names:
            return []
        booted_s = tick.watched[names.index(BOOT_TIME), :, 0]
        if self._same[0] == tick.nodes and np.array_equal(self._same[1], booted_s, equal_nan=True):
            return []
        self._same = (tick.nodes, booted_s.copy())
        fresh: list[str] = []
        for column in np.flatnonzero(~np.isnan(booted_s)).tolist():
            node, at_s = tick.nodes[column], float(booted_s[column])
            known = self._known.get(node, ("", None))
            if known[1] is not None and at_s <= known[1] + SAME_BOOT_S:
                continue
            if known[1] is not None:
                fresh.append(node)
            self._keep(node, known[0], at_s)
        return fresh

    def settling(self, node: str, at_s: float, grace_s: float) -> bool:
        """Whether the node booted so shortly before `at_s` that nothing is to be judged yet."""
        booted_s = self._known.get(node, ("", None))[1]
        return booted_s is not None and 0.0 <= at_s - booted_s < grace_s

    def _keep(self, node: str, boot_id: str, booted_s: float | None) -> None:
        if node not in self._known and len(self._known) >= NODES_MAX:
            del self._known[next(iter(self._known))]
        self._known[node] = (boot_id, booted_s)

    def snapshot(self) -> Any:
        """Plain rows."""
        return [[node, *said] for node, said in self._known.items()]

    def restore(self, rows: Any) -> None:
        """Resume from `snapshot()`."""
        self._known = {node: (boot_id, booted_s) for node, boot_id, booted_s in rows}
        self._same = ((), np.empty(0))
