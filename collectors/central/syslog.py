"""The syslog receiver as a source of the central collector."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from msgspec import structs

from collectors.agent.counts import Counts
from collectors.central.background import begin
from collectors.central.hosts import Hosts
from collectors.central.source import Said, Stream
from collectors.central.syslog_lines import SyslogLines
from collectors.central.syslog_server import SyslogServer
from telemetry.ports import Clock
from telemetry.records import Event, Rejected

LINES_MAX = 5_000  # of one turn of the loop
COUNT_S = 1.0
SENDERS_SHOWN = 1_000


class SyslogSource:
    """Its server has a thread; lines are read in the loop's."""

    def __init__(
        self, server: SyslogServer, lines: SyslogLines, hosts: Callable[[], Hosts],
        names_s: float, counts: Counts, clock: Clock,
    ) -> None:  # fmt: skip
        """`hosts` is called in a thread and raises nothing."""
        self._server, self._lines, self._hosts = server, lines, hosts
        self._names_s, self._counts, self._clock = names_s, counts, clock
        self._started_at = clock.time_s()
        self._asked: Future[Hosts] | None = None
        self._has_asked = False  # before it, lines wait: whose they are is not known
        self._names_due_s = self._count_due_s = clock.monotonic_s()
        server.start()

    def streams(self) -> dict[Stream, int]:
        """None: what was not received is gone."""
        return {}

    def poll(self) -> Said | None:
        """What the lines say that came since."""
        self._ask_names()
        now_s = self._clock.time_s()
        lines = self._server.take(LINES_MAX if self._has_asked else 0)
        said = [*self._lines.read(lines, now_s), *self._lines.settle(now_s)]
        for sender, count in self._lines.refused.items():
            self._server.drop(sender, "host", count)
        self._lines.refused.clear()
        if lines:
            self._counts.succeeded("syslog", now_s)
        if self._clock.monotonic_s() >= self._count_due_s:
            self._count()
        return self._said(said) if said else None

    def reached(self, ticket: int) -> None:
        """Nothing is kept."""

    def settle(self, safe: int) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Stop receiving."""
        self._server.close()
        self._count()

    def finish(self) -> Said | None:
        """Stop receiving, and what was received until then and waits."""
        self._server.close()
        said: list[Event | Rejected] = []
        now_s = self._clock.time_s()
        while lines := self._server.take(LINES_MAX):
            said += self._lines.read(lines, now_s)
        said += self._lines.settle(now_s, everything=True)
        return self._said(said) if said else None

    def _said(self, said: list[Event | Rejected]) -> Said:
        found = Said()
        for one in said:
            if isinstance(one, Rejected):
                found.rejected.append(one)
            else:
                found.records.append(structs.replace(one, started_at=self._started_at))
                self._counts.add("syslog_events", 1, one.source)
        self._counts.add("rejected", len(found.rejected), "syslog")
        return found

    def _ask_names(self) -> None:
        if self._asked is not None and self._asked.done():
            self._lines.rename(self._asked.result())
            self._asked, self._has_asked = None, True
        if self._asked is None and self._clock.monotonic_s() >= self._names_due_s:
            self._names_due_s = self._clock.monotonic_s() + self._names_s
            self._asked = begin("inventory", self._hosts)

    def _count(self) -> None:
        self._count_due_s = self._clock.monotonic_s() + COUNT_S
        counts, (now, waiting, connections) = self._counts, self._server.counts()
        for transport, count in now.received.items():
            counts.totals["syslog_received", transport] = count
        for reason, count in now.dropped.items():
            counts.totals["syslog_dropped", reason] = count
        for sender, count in now.dropped_of.most_common(SENDERS_SHOWN):
            counts.totals["syslog_dropped_of", sender] = count
        counts.set("syslog_taken", now.taken)
        counts.set("syslog_kernel_dropped", now.kernel_dropped)
        counts.set("syslog_refused", now.refused)
        counts.set("syslog_connections", connections)
        counts.set("syslog_waiting", waiting)
        counts.set("syslog_clock", self._lines.unbelieved)
