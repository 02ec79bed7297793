"""What the telemetry says of jobs that are to be restarted: whether they end steps, checkpoints.

Read in a thread of its own, and only while somebody asks: from a while before the first question
on, then what comes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

import msgspec

from actions.ports import JobFacts
from telemetry.archive_line import ArchiveLine
from telemetry.codec import decode
from telemetry.errors import SourceUnavailable
from telemetry.ports import Clock, LogReader
from telemetry.records import Steps
from telemetry.topics import TELEMETRY

EVERY_S = 1.0
POLL_S = 0.2
POLLS_MAX = 200  # of one round: what is left is read in the next
BACK = 20_000  # offsets of a partition that are read before the end
ASKED_S = 60.0  # so long after the last question a job is still followed
STEP_MIN_S, STEP_MAX_S, STEPS = 30.0, 60.0, 3.0  # three steps without one: it does not progress
JOBS_MAX = 100
PENDING_MAX_S = 5.0  # nothing waits longer for the first answer

_log = logging.getLogger("nodewarden.act")


class _Known(msgspec.Struct):
    """Of one job; times are Unix seconds; the first two are of a clock that never goes back."""

    asked_s: float
    pending_until_s: float
    stepped_at: float | None = None
    step_s: float = 0.0
    checkpoint_at: float | None = None
    saves: bool = False  # a checkpoint began, and nothing was said since

    def take(self, said: Steps) -> None:
        """A checkpoint with its time is whole; one without begins, until the next step ends."""
        times = [one for one in said.step_time_s if one is not None]
        begins = said.step_kind == "checkpoint" and not times
        if (said.step_kind == "checkpoint" and times) or (self.saves and not begins):
            self.checkpoint_at = max(self.checkpoint_at or 0.0, said.at)
        self.saves = begins
        if self.stepped_at is None or said.at > self.stepped_at:
            self.stepped_at, self.step_s = said.at, max(times, default=0.0)


class JobsReader:
    """`facts` is asked by the service's loop, `run` is the thread.

    reader  makes a reader of the telemetry; partitions: of the live shards
    site    what the inventory knows of a job
    """

    def __init__(
        self, reader: Callable[[], LogReader], partitions: Sequence[int],
        site: Callable[[str], JobFacts], clock: Clock,
    ) -> None:  # fmt: skip
        self._make, self._partitions = reader, list(partitions)
        self._site, self._clock = site, clock
        self._lock = threading.Lock()
        self._jobs: dict[str, _Known] = {}
        self._reader: LogReader | None = None

    def facts(self, job: str) -> JobFacts:
        """As far as they are known by now; the first question has no answer yet."""
        facts = self._site(job)
        if not job:
            return facts
        now_s = self._clock.monotonic_s()
        with self._lock:
            if job not in self._jobs and len(self._jobs) >= JOBS_MAX:
                return facts
            known = self._jobs.setdefault(job, _Known(now_s, now_s + PENDING_MAX_S))
            known.asked_s = now_s
            return msgspec.structs.replace(
                facts, progresses=self._progresses(known), checkpoint_at=known.checkpoint_at,
                pending=now_s < known.pending_until_s,
            )  # fmt: skip

    def run(self, stop: threading.Event) -> None:
        """Until `stop`."""
        while not stop.wait(EVERY_S):
            self.refresh()
        self._leave()

    def refresh(self) -> None:
        """Read what there is of the jobs that are asked for."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            self._jobs = {
                name: one for name, one in self._jobs.items() if now_s - one.asked_s <= ASKED_S
            }
            asked = list(self._jobs.values())
        if not asked:
            self._leave()
            return
        try:
            self._read(anew=any(now_s < one.pending_until_s for one in asked))
            with self._lock:
                for one in asked:
                    one.pending_until_s = now_s
        except SourceUnavailable as error:
            _log.warning("steps_unread error=%s", error)
            self._leave()

    def _read(self, *, anew: bool) -> None:
        """To the end; `anew`, for a job of which nothing was read yet, from a while before it."""
        if self._reader is None or anew:
            self._reader = self._reader or self._make()
            places = [(TELEMETRY, number) for number in self._partitions]
            bounds = self._reader.bounds(places)
            self._reader.assign({
                place: max(first, end - BACK) for place, (first, end) in bounds.items()
            })  # fmt: skip
        for _ in range(POLLS_MAX):
            lines = self._reader.poll(POLL_S)
            if not lines:
                return
            for line in lines:
                self._take(line)

    def _take(self, line: ArchiveLine) -> None:
        if dict(line.headers).get("kind", b"steps") != b"steps" or line.value is None:
            return
        record = decode(line.value, f"{line.topic}/{line.partition}@{line.offset}")
        if not isinstance(record, Steps):
            return
        with self._lock:
            known = self._jobs.get(record.job)
            if known is not None:
                known.take(record)

    def _progresses(self, known: _Known) -> bool | None:
        """None where no step of it was read."""
        if known.stepped_at is None:
            return None
        most_s = min(max(STEPS * known.step_s, STEP_MIN_S), STEP_MAX_S)
        return self._clock.time_s() - known.stepped_at <= most_s

    def _leave(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
