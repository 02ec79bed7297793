"""The kernel's ring buffer, /dev/kmsg, into events: nothing missed, nothing told twice.

Every record has a number. On a boot that is new to us the ring is read from its start: what was
printed before the agent ran is news. On the same boot it goes on behind the saved number. On the
very first start only what is printed from now on counts. Numbers that are skipped were overwritten
before we came: they are reported as lost.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import structs

from collectors.kernel.times import Clock as KernelClock
from collectors.kernel.times import wall_time
from collectors.kernel_log import KernelEvent, KernelLog
from telemetry.errors import SourceUnavailable
from telemetry.ports import Clock
from telemetry.records import Event, Rejected

SOURCE = "kernel"
LOST = "records_lost"  # class of the event that tells of a gap
RECORD_BYTES = 8_192  # the kernel's longest record; a smaller buffer is refused with EINVAL
READS_MAX = 2_000  # of one poll: a storm must not starve the other sources
TAIL_BYTES_MAX = 65_536
HOLD_S = 0.1  # an event that waits for the next line waits so long when nobody speaks
HOLD_MAX_S = 5.0  # and so long when everybody does

_HEAD = re.compile(rb"\d{1,5},(\d{1,19}),\d{1,18},[^;\n]{0,256};")


class KmsgPosition(msgspec.Struct, frozen=True):
    """The newest record that was read, of which boot; -1 where that boot had none."""

    boot_id: str
    seq: int


class Kmsg:
    """The ring buffer of one boot, or a file that holds such records.

    lost    records that were overwritten before they were read
    whole   everything that was there has been read
    """

    def __init__(
        self, path: Path, node: str, boot_id: str, saved: KmsgPosition | None, clock: Clock
    ) -> None:
        """Raises SourceUnavailable where the ring cannot be read."""
        self._node, self._boot_id, self._clock = node, boot_id, clock
        self._path = path
        try:
            # A pipe that is also open for writing never ends.
            access = os.O_RDWR if path.is_fifo() else os.O_RDONLY
            self.file = os.open(path, access | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise SourceUnavailable(f"{path}: {error.strerror}") from error
        self._log = KernelLog(str(path), KernelClock(boot_s=self._boot_s()))
        self._seq = saved.seq if saved is not None and saved.boot_id == boot_id else -1
        self._told_seq = self._seq  # up to here no event waits for further lines
        self._silent = saved is None  # the first start of all: what is there is history
        self._fresh = False  # what is read now was printed just now
        self._tail = b""
        self._wanted = True  # lines below a record belong to it
        self._fed_s: float | None = None  # when lines last came that an event may wait behind
        self._held_s = 0.0  # when the first of these came
        self.lost = 0
        self.whole = False

    @property
    def waits(self) -> bool:
        """Whether `poll` should be called soon although nothing was printed."""
        return self._fed_s is not None

    def position(self) -> KmsgPosition:
        """Behind all whose events were told."""
        return KmsgPosition(self._boot_id, self._told_seq)

    @property
    def wakes(self) -> bool:
        """Whether the system tells when there is something to read; of a plain file it does not."""
        return not stat.S_ISREG(os.fstat(self.file).st_mode)

    def poll(self) -> list[Event | Rejected]:
        """What was printed since; never waits."""
        self.whole = False
        self._log.clock.boot_s = self._boot_s()
        said: list[Event | Rejected] = []
        for _ in range(READS_MAX):
            data = self._read()
            if data is None:
                continue
            if not data:
                self.whole = True
                break
            said += self._take(data)
        if self.whole:
            self._silent = False
            self._fresh = True
        if self._is_quiet():
            said += self.finish()
        return said

    def finish(self) -> list[Event | Rejected]:
        """What waited for further lines."""
        said = list(self._events(self._log.finish()))
        self._fed_s, self._told_seq = None, self._seq
        return said

    def close(self) -> None:
        """Give the file back."""
        os.close(self.file)

    def _read(self) -> bytes | None:
        """One record, or a piece of a file; empty when there is no more, None to read on."""
        try:
            return os.read(self.file, RECORD_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            if error.errno == errno.EPIPE:  # overwritten under us: the next number tells how many
                return None
            raise SourceUnavailable(f"{self._path}: {error.strerror}") from error

    def _take(self, data: bytes) -> Iterator[Event | Rejected]:
        whole, newline, tail = (self._tail + data).rpartition(b"\n")
        self._tail = tail[:TAIL_BYTES_MAX]
        if not newline:
            return
        kept: list[bytes] = []
        for line in whole.split(b"\n"):
            found = _HEAD.match(line)
            if found is not None:
                self._wanted, gap = self._counted(int(found[1]))
                if gap is not None:
                    yield from self._feed(kept)
                    kept = []
                    yield gap
            if self._wanted:
                kept.append(line)
        yield from self._feed(kept)

    def _feed(self, lines: list[bytes]) -> Iterator[Event | Rejected]:
        if not lines:
            return
        now_s = self._clock.monotonic_s()
        if self._fed_s is None:
            self._held_s = now_s
        self._fed_s = now_s
        yield from self._events(self._log.feed(b"\n".join([*lines, b""])))

    def _counted(self, seq: int) -> tuple[bool, Event | None]:
        """Whether the record is to be read, and the gap before it."""
        if seq <= self._seq:
            return False, None
        missing = seq - self._seq - 1
        first = self._seq + 1
        self._seq = seq
        if self._silent:
            return False, None
        if missing <= 0:
            return True, None
        self.lost += missing
        return True, self._gap(first, missing)

    def _gap(self, first: int, missing: int) -> Event:
        """Under the first lost number, which no other event can have."""
        return Event(
            at=self._clock.time_s(), node=self._node, source=SOURCE, started_at=0.0, seq=0,
            boot_id=self._boot_id, type="os", class_=LOST, severity="info", kmsg_seq=first,
            text=f"lost {missing} kernel records, from number {first}: overwritten before they"
            " were read", details={"lost": missing},
        )  # fmt: skip

    def _is_quiet(self) -> bool:
        """Whether nothing will join what was told, or it has waited long enough."""
        if self._fed_s is None:
            self._told_seq = self._seq
            return False
        now_s = self._clock.monotonic_s()
        return now_s - self._held_s >= HOLD_MAX_S or (self.whole and now_s - self._fed_s >= HOLD_S)

    def _events(self, said: Iterator[KernelEvent | Rejected]) -> Iterator[Event | Rejected]:
        for one in said:
            yield self._placed(one) if isinstance(one, KernelEvent) else one

    def _placed(self, said: KernelEvent) -> Event:
        now_s, boot_s = self._clock.time_s(), self._log.clock.boot_s
        at_s = now_s
        if said.at_s is not None and boot_s is not None:
            at_s, _ = wall_time(said.at_s - boot_s, boot_s, now_s, fresh=self._fresh)
        return structs.replace(said.event(self._node, at_s), boot_id=self._boot_id)

    def _boot_s(self) -> float:
        """When the kernel's clock stood at 0, by the wall clock as it is now."""
        return self._clock.time_s() - self._clock.monotonic_s()
