"""The site's Prometheus as a source: a page at a time, the next one when the last is settled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future

from msgspec import structs

from collectors.agent.counts import Counts
from collectors.agent.patience import Patience
from collectors.agent.positions import PositionFile
from collectors.central.api import NotPrometheus, PrometheusApi
from collectors.central.background import begin
from collectors.central.hosts import Hosts
from collectors.central.pages import Pages
from collectors.central.position import Position, Stream
from collectors.central.reader import PageReader, Read
from collectors.central.source import Said
from collectors.central.source import Stream as StreamId
from telemetry.errors import SettingsError, SourceUnavailable
from telemetry.ports import Clock
from telemetry.records import Gpu, Hardware, Record
from telemetry.settings import PrometheusSettings

HARDWARE = "hardware"
HARDWARE_S = 600.0  # hardware is said again
FIRST_S, LONGEST_S = 2.0, 30.0  # between two tries


class PrometheusSource:
    """Its thread reads a page and makes records of it; `poll` hands them to the loop.

    expected   source -> the interval that the engine is set to, for a warning
    """

    def __init__(
        self, api: PrometheusApi, settings: PrometheusSettings, file: PositionFile[Position] | None,
        hosts: Callable[[], Hosts], expected: Callable[[str], float], counts: Counts, clock: Clock,
    ) -> None:  # fmt: skip
        """`hosts` is called in the thread and raises nothing. Raises SettingsError."""
        self._api, self._settings, self._file = api, settings, file
        self._hosts, self._expected, self._counts, self._clock = hosts, expected, counts, clock
        self._pages = Pages()
        self._reader = PageReader(api, settings, clock, self._rename)
        self._patience = Patience(FIRST_S, LONGEST_S)
        self._reading: Future[tuple[Read, list[Record]] | None] | None = None
        self._due_s = clock.monotonic_s()
        self._started_at = self._process_at = clock.time_s()
        self._numbers: Counter[tuple[str, str]] = Counter()
        self._until_ms: int | None = None
        self._start_ms: int | None = None
        self._primed = True
        self._page: Read | None = None  # told, and not settled
        self._ticket: int | None = None
        self._worked = self._more = False
        self._named: Hosts | None = None
        self._hardware: dict[str, list[Gpu]] = {}
        self._hardware_due_s = clock.monotonic_s()
        self._warned: dict[str, float] = {}
        if file is not None:
            self._restore(file.load())

    def streams(self) -> dict[StreamId, int]:
        """Those of the process before."""
        return {(*stream, self._started_at): seq for stream, seq in self._numbers.items()}

    @property
    def is_idle(self) -> bool:
        """Everything that was old enough has been read, told and settled."""
        under_way = self._more or self._reading is not None or self._page is not None
        return self._worked and not under_way

    def poll(self) -> Said | None:
        """The page that is whole now; else the next one is begun when its time has come."""
        if self._page is not None:
            return None
        if self._reading is None:
            self._begin()
            return None
        if not self._reading.done():
            return None
        reading, self._reading = self._reading, None
        try:
            found = reading.result()
        except SourceUnavailable as error:
            return self._failed(error)
        self._patience.worked()
        self._worked = True
        self._counts.succeeded("prometheus", self._clock.time_s())
        self._due_s = self._clock.monotonic_s() + self._settings.poll_s
        if found is None:
            self._more = False
            return None
        return self._said(*found)

    def reached(self, ticket: int) -> None:
        """The page that is told ends with this ticket."""
        if self._page is not None and self._ticket is None:
            self._ticket = ticket

    def settle(self, safe: int) -> None:
        """With its page settled the position goes on."""
        if self._page is None or self._ticket is None or safe < self._ticket:
            return
        self._until_ms = self._start_ms = self._page.end_ms
        self._more = self._page.more
        if self._more:
            self._due_s = self._clock.monotonic_s()
        self._page = self._ticket = None
        self._save()

    def finish(self) -> Said | None:
        """Nothing: a page under way is read again."""
        return None

    def close(self) -> None:
        """Leave; a question under way is not waited for."""

    def _begin(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s >= self._due_s and self._patience.is_over(now_s):
            self._counts.add("prometheus_polls")
            self._reading = begin("prometheus", self._read)

    def _read(self) -> tuple[Read, list[Record]] | None:
        """In the thread: a page and its records."""
        if not self._primed and self._until_ms is not None:
            self._pages.prime(self._reader.past(self._until_ms), self._until_ms / 1_000)
            self._primed = True
        read = self._reader.next(self._start_ms, self._until_ms)
        if read is None:
            return None
        since_s = (read.start_ms if self._until_ms is None else self._until_ms) / 1_000
        return read, self._pages.page(read.samples, read.end_ms / 1_000, since_s)

    def _rename(self) -> None:
        hosts = self._hosts()
        if hosts == self._named:
            return
        self._named = hosts
        self._pages.rename(hosts.names(), hosts.jobs)

    def _said(self, read: Read, records: list[Record]) -> Said:
        self._page, self._ticket = read, None
        said = Said(self._hardware_records(read.end_ms / 1_000), read.samples.rejected, read.notes)
        for record in records:
            self._numbers[record.node, record.source] += 1
            said.records.append(structs.replace(record, started_at=self._started_at))
        said.notes += self._warnings()
        self._count(read)
        return said

    def _hardware_records(self, at_s: float) -> list[Record]:
        """Of nodes whose GPUs changed, and of all now and then; its streams begin with us."""
        now_s = self._clock.monotonic_s()
        again = now_s >= self._hardware_due_s
        if again:
            self._hardware_due_s = now_s + HARDWARE_S
            self._hardware = {}
        made: list[Record] = []
        for node, gpus in self._pages.gpus.nodes():
            if self._hardware.get(node) != gpus:
                self._hardware[node] = gpus
                made.append(self._hardware_record(node, gpus, at_s))
        return made

    def _hardware_record(self, node: str, gpus: list[Gpu], at_s: float) -> Hardware:
        return Hardware(
            at=at_s, node=node, source=HARDWARE, started_at=self._process_at, seq=0, gpus=gpus
        )  # fmt: skip

    def _warnings(self) -> list[str]:
        """What the engine's settings should be, where they are not."""
        notes = []
        for source, interval_s in self._pages.intervals().items():
            expected_s = self._expected(source)
            if not expected_s or self._warned.get(source) == interval_s:
                continue
            self._warned[source] = interval_s
            if interval_s != expected_s:
                key = f"engine.ticks.interval_s.{source}"
                notes.append(
                    f"{source} is scraped every {interval_s:g} s, and {key} is {expected_s:g}:"
                    f" set it to {interval_s:g}"
                )
        return notes

    def _count(self, read: Read) -> None:
        counts, pages = self._counts, self._pages
        counts.add("prometheus_samples", read.samples.count)
        counts.add("rejected", read.samples.broken, "prometheus")
        counts.add("prometheus_gap_seconds", round(read.gap_ms / 1_000))
        counts.add("prometheus_left_out", read.left_out)
        counts.set("prometheus_nameless", pages.nameless)
        counts.set("prometheus_beyond", pages.beyond)
        counts.set("prometheus_behind_seconds", round(self._clock.time_s() - read.end_ms / 1_000))

    def _failed(self, error: SourceUnavailable) -> Said:
        if isinstance(error, NotPrometheus) and not self._worked:
            raise SettingsError(str(error)) from error
        self._counts.add("errors", 1, "prometheus")
        self._patience.failed(self._clock.monotonic_s())
        return Said(notes=[f"{error}; tried again, and caught up later"])

    def _restore(self, saved: Position | None) -> None:
        if saved is None:
            return
        self._started_at, self._primed = saved.started_at, False
        self._until_ms, self._start_ms = saved.until_ms, min(saved.held_ms, saved.until_ms)
        for stream in saved.streams:
            self._numbers[stream.node, stream.source] = stream.seq
        told = [
            (s.node, s.source, s.at_s, s.is_joined) for s in saved.streams if s.at_s is not None
        ]
        self._pages.restore(told, saved.intervals)

    def _save(self) -> None:
        """A full disk is said; after a restart more is read again, and counts as repeats."""
        if self._file is None or self._until_ms is None:
            return
        held_s = self._pages.held_s()
        held_ms = self._until_ms if held_s is None else int(held_s * 1_000) - 1
        told = {(node, source): (at, joined) for node, source, at, joined in self._pages.told()}
        streams = [
            Stream(node, source, seq, *told.get((node, source), (None, False)))
            for (node, source), seq in self._numbers.items()
        ]
        position = Position(
            self._started_at, self._until_ms, held_ms, self._pages.intervals(), streams
        )
        try:
            self._file.save(position)
        except SourceUnavailable:
            self._counts.add("errors", 1, "state")
