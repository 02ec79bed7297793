"""Syslog lines of many hosts into events: who speaks, and through which reader. No I/O.

A line is its host's, as the message names it, in the inventory's spelling; where it names none that
anybody knows, the sender's address may. Lines of hosts that are no nodes may be a switch's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import tzinfo

from collectors.central.hosts import Hosts
from collectors.jobs import Wiring
from collectors.kernel.events import KernelEvent
from collectors.kernel.times import DRIFT_MAX_S, Clock
from collectors.kernel_log import KernelLog
from collectors.names import NodeNames
from collectors.switch.log import SwitchLog
from telemetry.codec import name_fault
from telemetry.records import Event, Rejected

OLD_MAX_S = 86_400.0  # what a relay has kept for longer is told as of now
HELD_S = 1.0  # a line that others may belong to waits for them so long
ZONE_S = 900.0  # clocks that are wrong by their zone are off by a multiple of it
ZONE_MAX_S = 50_400.0
ZONE_SLACK_S = 60.0
_NO_HOSTS = frozenset({"-", "localhost", "localhost.localdomain", "kernel:", "127.0.0.1", "::1"})

_STAMP = (
    rb"(?:[A-Z][a-z]{2} {1,2}\d{1,2} (?:\d{4} )?|\d{4} [A-Z][a-z]{2} {1,2}\d{1,2} "
    rb"|\d{4}-\d\d-\d\d[T ])\d\d:\d\d:\d\d[^ ]{0,32}"
)
_HEAD = re.compile(
    rb"(?:<\d{1,3}>)?(?:1 [^ ]{1,64} ([^ ]{1,255}) |(?:: ?)?" + _STAMP + rb" ([^ ]{1,255}) )"
)
_ZONED = re.compile(rb"T\d\d:\d\d:\d\d[.,\d]{0,12}(?:Z|[+-]\d\d:?\d\d)")


class _Nearest(Clock):
    """A yearless time is the nearest to now, whatever the line before said."""

    def _kept(self, whole_s: float | None, fraction: str | None) -> float | None:
        at_s = super()._kept(whole_s, fraction)
        self.last_s = None
        return at_s


@dataclass(slots=True)
class _Host:
    """One that speaks: a node of the inventory, a switch, or a name that nobody knows."""

    name: str
    is_node: bool
    is_switch: bool
    kernel: KernelLog
    switch: SwitchLog
    lines: int = 0


@dataclass(slots=True)
class SyslogLines:
    """Lines in, in the order of their coming; events and rejected lines out.

    refused     lines of hosts beyond `hosts_max`, by sender; taken out by whoever reads it
    unbelieved  lines whose own time was not taken
    """

    tz: tzinfo
    hosts_max: int
    wiring: Wiring = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    unbelieved: int = 0
    _known: Hosts = field(default_factory=Hosts)
    _names: NodeNames = field(default_factory=lambda: NodeNames((), ()))
    _hosts: dict[str, _Host] = field(default_factory=dict)
    _spoken: dict[tuple[str, str], str] = field(default_factory=dict)  # (said, sender) -> name
    _quiet: dict[str, float] = field(default_factory=dict)  # name -> when it was heard last

    def rename(self, hosts: Hosts) -> None:
        """Nodes as the inventory has them now."""
        self._known, self._names = hosts, hosts.names()
        self._spoken.clear()
        for host in self._hosts.values():
            host.is_node = host.name in hosts.nodes

    def read(
        self, lines: Iterable[tuple[str, bytes]], now_s: float
    ) -> Iterator[Event | Rejected]:  # fmt: skip
        """(address of the sender, line) pairs that came just now, Unix seconds."""
        pieces: dict[str, list[bytes]] = {}
        for sender, line in lines:
            host = self._host(sender, line)
            if host is None:
                self.refused[sender] = self.refused.get(sender, 0) + 1
                continue
            host.lines += 1
            told = None if host.is_node else self._by_switch(host, line, now_s)
            if told is not None:
                yield told
            elif not host.is_switch:
                pieces.setdefault(host.name, []).append(line.replace(b"\n", b" "))
        for name, said in pieces.items():
            self._quiet[name] = now_s
            yield from self._by_kernel(self._hosts[name], b"\n".join(said) + b"\n", now_s)

    def settle(self, now_s: float, *, everything: bool = False) -> Iterator[Event | Rejected]:
        """What waited for further lines of hosts that have been quiet since."""
        for name, heard_s in list(self._quiet.items()):
            if everything or now_s - heard_s >= HELD_S:
                del self._quiet[name]
                host = self._hosts[name]
                for said in host.kernel.finish():
                    yield self._placed(host, said, now_s)

    def _host(self, sender: str, line: bytes) -> _Host | None:
        found = _HEAD.match(line)
        said = (found[1] or found[2]).decode("utf-8", "replace") if found is not None else ""
        name = self._spoken.get((said, sender))
        if name is None:
            name = self._resolved(said, sender)
            if len(self._spoken) >= 2 * self.hosts_max:
                self._spoken.clear()
            self._spoken[said, sender] = name
        host = self._hosts.get(name)
        if host is not None:
            return host
        is_node = name in self._known.nodes
        if len(self._hosts) >= self.hosts_max and not is_node:
            return None
        clock = _Nearest(tz=self.tz)
        host = self._hosts[name] = _Host(
            name, is_node, name in self.wiring, KernelLog(f"syslog/{name}", clock),
            SwitchLog(f"syslog/{name}", clock),
        )  # fmt: skip
        return host

    def _resolved(self, said: str, sender: str) -> str:
        """The name under which a host's lines are told."""
        if said in self.wiring:
            return said
        said = "" if said in _NO_HOSTS or name_fault("host", said) is not None else said
        for name in (said, sender):
            node = self._names.of_labels({"node": name}) if name else None
            if node is not None and node in self._known.nodes:
                return node
        short = said.partition(".")[0]
        return short if short in self.wiring else said or sender

    def _by_switch(self, host: _Host, line: bytes, now_s: float) -> Event | None:
        host.switch.clock.near_s = now_s
        said = next(host.switch.line(line, host.lines), None)
        if said is None:
            return None
        at_s = self._believed(said.at_s, line, now_s)
        return said.event(host.name, self.wiring.get(host.name, {}), at_s)

    def _by_kernel(self, host: _Host, piece: bytes, now_s: float) -> Iterator[Event | Rejected]:
        host.kernel.clock.near_s = now_s
        for said in host.kernel.feed(piece):
            yield self._placed(host, said, now_s)

    def _placed(self, host: _Host, said: KernelEvent | Rejected, now_s: float) -> Event | Rejected:
        if isinstance(said, Rejected):
            return said
        return said.event(host.name, self._believed(said.at_s, said.text.encode(), now_s))

    def _believed(self, at_s: float | None, line: bytes, now_s: float) -> float:
        """When it was said: the line's own time, or that of its coming where it cannot be right.

        A relay may keep lines for hours, so a past time is taken, unless it names no zone and is
        off by whole quarters of an hour: then its zone is not the one of the settings.
        """
        if at_s is None:
            return now_s
        late_s = now_s - at_s
        if -DRIFT_MAX_S <= late_s <= DRIFT_MAX_S:
            return at_s
        off_s = abs((late_s + ZONE_S / 2.0) % ZONE_S - ZONE_S / 2.0)
        of_zone = late_s < ZONE_MAX_S and off_s < ZONE_SLACK_S and _ZONED.search(line[:96]) is None
        if 0.0 < late_s <= OLD_MAX_S and not of_zone:
            return at_s
        self.unbelieved += 1
        return now_s
