"""The kernel's lines: from /dev/kmsg, else from journald, else none until one can be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from collectors.agent.counts import Counts
from collectors.agent.journal import Journal, JournalPosition
from collectors.agent.kmsg import Kmsg, KmsgPosition
from collectors.agent.patience import Patience
from collectors.agent.positions import PositionFile, Settling
from telemetry.errors import SourceUnavailable
from telemetry.ports import Clock
from telemetry.records import Event, Rejected

POLL_S = 0.1  # where nobody tells that there is something to read


@dataclass(frozen=True, slots=True)
class KernelPaths:
    """`kmsg` and `journalctl` "" are not used; `state` None keeps no positions and reads the boot
    from its start."""

    kmsg: str
    journalctl: str
    state: Path | None


class KernelSource:
    """One of both, and its position."""

    def __init__(
        self, paths: KernelPaths, node: str, boot_id: str, counts: Counts, clock: Clock
    ) -> None:
        self._paths, self._node, self._boot_id = paths, node, boot_id
        self._counts, self._clock = counts, clock
        self._kmsg: Kmsg | None = None
        self._journal: Journal | None = None
        self._kmsg_settling: Settling[KmsgPosition] | None = None
        self._journal_settling: Settling[JournalPosition] | None = None
        if paths.state is not None:
            self._kmsg_settling = Settling(PositionFile(paths.state / "kmsg.json", KmsgPosition))
            self._journal_settling = Settling(
                PositionFile(paths.state / "journal.json", JournalPosition)
            )
        self._patience = Patience()
        self._lost_before = 0  # by rings that were opened before this one
        self.notes: list[str] = []

    def file(self) -> int | None:
        """What to wait for; None where only polling tells."""
        return self._kmsg.file if self._kmsg is not None and self._kmsg.wakes else None

    @property
    def is_read(self) -> bool:
        """Whether everything that was there has been read; of the journal nobody knows."""
        return self._journal is None and (self._kmsg is None or self._kmsg.whole)

    def wait_s(self) -> float:
        """How long `poll` can wait when nothing wakes us."""
        source = self._kmsg or self._journal
        if source is not None and (source.waits or not source.whole):
            return POLL_S
        return POLL_S if self.file() is None and source is not None else 1.0

    def poll(self) -> list[Event | Rejected]:
        """What was printed since."""
        source = self._kmsg or self._journal or self._opened()
        if source is None:
            return []
        try:
            said = source.poll()
        except SourceUnavailable as error:
            self._failed(error)
            said = source.finish()
            self.close()
            return said
        if source.whole:
            self._counts.succeeded("kernel", self._clock.time_s())
        self._counts.add("events", sum(isinstance(one, Event) for one in said), "kernel")
        self._count_lost()
        return said

    def reached(self, ticket: int) -> None:
        """Everything that was polled lies behind this ticket of the sink."""
        if self._kmsg is not None and self._kmsg_settling is not None:
            self._kmsg_settling.reached(ticket, self._kmsg.position())
        elif self._journal is not None and self._journal_settling is not None:
            self._journal_settling.reached(ticket, self._journal.position())

    def settle(self, settled: int) -> None:
        """Save how far we are."""
        if self._kmsg_settling is not None:
            self._kmsg_settling.settle(settled)
        if self._journal_settling is not None:
            self._journal_settling.settle(settled)

    def finish(self) -> list[Event | Rejected]:
        """What waited for further lines; at the end."""
        source = self._kmsg or self._journal
        return source.finish() if source is not None else []

    def close(self) -> None:
        """Give the source back; `poll` opens one again."""
        if self._kmsg is not None:
            self._lost_before += self._kmsg.lost
            self._kmsg.close()
        if self._journal is not None:
            self._journal.close()
        self._kmsg, self._journal = None, None

    def _opened(self) -> Kmsg | Journal | None:
        now_s = self._clock.monotonic_s()
        if not (self._paths.kmsg or self._paths.journalctl) or not self._patience.is_over(now_s):
            return None
        try:
            if self._paths.kmsg:
                self._kmsg = self._open_kmsg()
                self._patience.worked()
                return self._kmsg
        except SourceUnavailable as error:
            self._failed(error)
        if self._paths.journalctl:
            self.notes.append(f"kernel lines come from {self._paths.journalctl}")
            saved: JournalPosition | None = JournalPosition("", "")
            if self._journal_settling is not None:
                saved = self._journal_settling.file.load()
            self._journal = Journal(
                self._paths.journalctl, self._node, self._boot_id, saved, self._clock
            )
        return self._journal

    def _open_kmsg(self) -> Kmsg:
        saved: KmsgPosition | None = KmsgPosition("", -1)
        if self._kmsg_settling is not None:
            saved = self._kmsg_settling.file.load()
        return Kmsg(Path(self._paths.kmsg), self._node, self._boot_id, saved, self._clock)

    def _failed(self, error: SourceUnavailable) -> None:
        self._counts.add("errors", 1, "kernel")
        self._patience.failed(self._clock.monotonic_s())
        self.notes.append(str(error))

    def _count_lost(self) -> None:
        lost = self._lost_before + (self._kmsg.lost if self._kmsg is not None else 0)
        self._counts.set("kmsg_lost", lost)
