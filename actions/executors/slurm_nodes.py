"""Draining nodes and giving them back. A foreign drain is neither overwritten nor taken off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from actions.executors.slurm_port import (
    NODE_NAME,
    CallTime,
    NodeSeen,
    SlurmController,
    checked_nodes,
)
from actions.executors.slurm_reason import owned, part, written
from actions.executors.slurm_said import Did, patiently, told
from telemetry.actions import Command
from telemetry.errors import SourceUnavailable
from telemetry.ports import Clock
from telemetry.slurm_words import reason_class

OURS = "nodewarden"  # who drained a node, where it was us
SOMEBODY = "somebody"
LOOKS_S = (0.05, 0.1, 0.3, 0.6, 1.0)  # between looks at what was changed
# What slurmctld itself writes on a node that is down: nobody's words are lost when we write ours.
_OF_SLURM = frozenset({"not_responding", "rebooted"})
Judge = Callable[[str, NodeSeen], Did | None]


class SlurmNodes:
    """See above. Its methods raise SourceUnavailable where Slurm cannot be seen beforehand."""

    def __init__(
        self, control: SlurmController, prefixes: Sequence[str], clock: Clock, time: CallTime
    ) -> None:
        """`prefixes` of reasons that are ours; drains get the first."""
        self._control, self._prefixes = control, tuple(prefixes)
        self._clock, self._time = clock, time

    def seen(self, names: Sequence[str]) -> dict[str, NodeSeen]:
        """Nodes by the name they were asked for; those that Slurm does not have are left out."""
        usable = [name for name in dict.fromkeys(names) if NODE_NAME.fullmatch(name)]
        found = dict(self._asked(usable)) if usable else {}
        others = {name: _spellings(name) for name in usable if name not in found}
        asked = sorted({one for spelled in others.values() for one in spelled})
        return found | _spelled(others, self._asked(asked)) if asked else found

    def _asked(self, names: Sequence[str]) -> Mapping[str, NodeSeen]:
        return patiently(lambda: self._control.nodes(names), self._clock, self._time)

    def holder(self, node: NodeSeen) -> str:
        """Who drained it; "" where nobody did, "somebody" where Slurm does not say."""
        if not node.is_drained:
            return ""
        ours = owned(node.reason, self._prefixes) is not None and "FAIL" not in node.state.flags
        return OURS if ours else node.reason_by or SOMEBODY

    def drain(self, names: Sequence[str], command: Command) -> list[Did]:
        """Drain those that are in service. Raises ValueError where one is no node's name."""
        text = written(self._prefixes[0], command.fault, command.incident or command.decision)
        return self._changed(
            names, self._may_drain, lambda wanted: self._control.drain(wanted, text),
            lambda name, node: self._drained(name, node, "is drained"),
        )  # fmt: skip

    def undrain(self, names: Sequence[str], command: Command) -> list[Did]:
        """Give back those that we drained. Raises ValueError where one is no node's name."""
        return self._changed(
            names, lambda name, node: self._may_release(name, node, command),
            self._control.undrain, _released,
        )  # fmt: skip

    def _changed(
        self, names: Sequence[str], before: Judge, change: Callable[[Sequence[str]], str],
        after: Judge,
    ) -> list[Did]:  # fmt: skip
        """Change those of which `before` has nothing to say, until `after` has, of each."""
        checked_nodes(names)
        found = self.seen(names)
        said = {name: before(name, found[name]) for name in names if name in found}
        wanted = [name for name, settled in said.items() if settled is None]
        if wanted:
            answer = told(lambda: change([found[name].name for name in wanted]))
            seen = self._once(wanted) if answer.silence else self._looked(wanted, after)
            for name in wanted:
                node = seen.get(name)
                is_so = after(name, node) if node is not None else None
                how = f"{name} is {node.state.text}" if node else f"nobody sees how {name} is"
                said[name] = is_so or answer.undone(how)
        return [said.get(name) or _gone(name) for name in dict.fromkeys(names)]

    def _looked(self, names: Sequence[str], after: Judge) -> dict[str, NodeSeen]:
        """The nodes once all are as they should be, or after the last look."""
        found = self._once(names)
        for wait_s in LOOKS_S:
            if len(found) == len(names) and all(after(*one) is not None for one in found.items()):
                break
            self._clock.sleep(min(wait_s, self._time.spare_s()))
            found = self._once(names) or found
        return found

    def _once(self, names: Sequence[str]) -> dict[str, NodeSeen]:
        try:
            return self.seen(names)
        except SourceUnavailable:
            return {}  # the change was made, or not: its outcome says that nobody knows

    # -- judges

    def _may_drain(self, name: str, node: NodeSeen) -> Did | None:
        """What there is to say where it must not be drained, or need not."""
        if not node.is_known:
            return _unreadable(name, node)
        drained = self._drained(name, node, "is drained already")
        is_down = node.state.base == "DOWN" and bool(node.reason)
        if drained is None and is_down and reason_class(node.reason) not in _OF_SLURM:
            return Did("refused", f"{name} is down{_by(node)}: left alone")
        return drained

    def _drained(self, name: str, node: NodeSeen, how: str) -> Did | None:
        holder = self.holder(node)
        if not holder:
            return None
        if holder == OURS:
            return Did("done", f"{name} {how}: {node.reason}")
        return Did("refused", f"{name} is drained{_by(node)}: left alone")

    def _may_release(self, name: str, node: NodeSeen, command: Command) -> Did | None:
        if not node.is_known:
            return _unreadable(name, node)
        if not node.is_drained:
            return Did("done", f"{name} is not drained: there is nothing to take off")
        ours = owned(node.reason, self._prefixes)
        if ours is None or self.holder(node) != OURS:
            return Did("refused", f"{name} is drained{_by(node)}: left alone")
        if command.incident and ours.incident != part(command.incident):
            why = f"for {ours.incident} and not for {command.incident}"
            return Did("refused", f"{name} is drained {why}: left alone")
        return None


def _released(name: str, node: NodeSeen) -> Did | None:
    return None if node.is_drained else Did("done", f"{name} is given back: {node.state.text}")


def _gone(name: str) -> Did:
    return Did("failed", f"target gone: Slurm has no node {name}")


def _unreadable(name: str, node: NodeSeen) -> Did:
    return Did("refused", f"{name} is {node.state.text or 'of no state'}, which nobody here knows")


def _by(node: NodeSeen) -> str:
    """Who took it out, and why."""
    who = f" by {node.reason_by}" if node.reason_by else ""
    return f"{who}: {' '.join(node.reason.split())[:200]!r}" if node.reason else who


def _spellings(name: str) -> list[str]:
    """How Slurm may call what others call by its full name, or in capitals."""
    bare = name.rstrip(".")
    short = bare.partition(".")[0]
    return [one for one in dict.fromkeys((bare, bare.lower(), short, short.lower()))
            if one != name and NODE_NAME.fullmatch(one)]  # fmt: skip


def _spelled(
    others: Mapping[str, Sequence[str]], known: Mapping[str, NodeSeen]
) -> dict[str, NodeSeen]:
    """Of each name its one node. Raises SourceUnavailable where it may be several."""
    found: dict[str, NodeSeen] = {}
    for name, spelled in others.items():
        nodes = {known[one].name: known[one] for one in spelled if one in known}
        if len(nodes) > 1:
            raise SourceUnavailable(f"{name} may be any of {', '.join(sorted(nodes))}")
        if nodes:
            found[name] = next(iter(nodes.values()))
    return found
