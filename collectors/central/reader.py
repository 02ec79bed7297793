"""Reads one page of a Prometheus at a time: which names, which stretch, in how many questions.

Runs in a thread of its own; hands out pages that are whole, or says why there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from collectors.central.api import PrometheusApi, TooMuch
from collectors.central.pages import Samples
from collectors.gauge_events import FORM_OF, WINDOW_S
from collectors.prometheus_runs import RunReader
from collectors.series import STEP_COLUMNS
from telemetry.errors import SourceUnavailable
from telemetry.metrics import recognise
from telemetry.ports import Clock
from telemetry.records import Rejected
from telemetry.settings import PrometheusSettings

PAGE_MIN_MS = 10_000  # below it the names are divided, not the time
SAMPLES_MAX = 10_000_000  # of one page, in memory
NAMES_BACK_S = 3_600.0
NAMES_RETRY_S = 15.0  # while there is no name that we know


@dataclass(slots=True)
class Read:
    """What lies in (start, end], or in (start, end] of a smaller page than was asked for.

    gap_ms  so much before `start_ms` is lost: it lies behind the look-back
    notes   sentences for the operator
    more    there is more to read at once
    """

    start_ms: int
    end_ms: int
    samples: Samples
    gap_ms: int = 0
    notes: list[str] = field(default_factory=list)
    more: bool = False
    left_out: int = 0


class PageReader:
    """Asks one server. `families` are the names that it has, by source."""

    def __init__(
        self, api: PrometheusApi, settings: PrometheusSettings, clock: Clock,
        renamed: Callable[[], None],
    ) -> None:  # fmt: skip
        """`renamed` is called when the names were asked for again, before the page is read."""
        self._api, self._settings, self._clock = api, settings, clock
        self._renamed = renamed
        self._runs = RunReader(api.url)
        self._names_due_s = -1.0
        self._page_ms = int(settings.page_s * 1_000)
        self.families: dict[str, list[str]] = {}

    def next(self, start_ms: int | None, told_ms: int | None) -> Read | None:
        """The page after `start_ms`, None without one where nothing is old enough yet.

        start_ms   everything up to it was read; None: nothing was
        told_ms    Xids and steps were told up to it
        Raises SourceUnavailable.
        """
        end_ms = int((self._api.time_s() - self._settings.delay_s) * 1_000)
        gap_ms = 0
        if start_ms is None:
            start_ms = end_ms - int(self._settings.first_s * 1_000)
        oldest_ms = end_ms - int(self._settings.lookback_s * 1_000)
        if start_ms < oldest_ms and told_ms is not None:
            gap_ms, start_ms = oldest_ms - start_ms, oldest_ms
        if end_ms <= max(start_ms, told_ms or start_ms):
            return None
        self._ask_names(end_ms)
        return self._page(start_ms, end_ms, gap_ms)

    def past(self, end_ms: int) -> Samples:
        """Xid gauges and steps before `end_ms`, from which a new process learns what was told."""
        self._ask_names(end_ms)
        names = [
            name
            for names in self.families.values()
            for name in names
            if name in STEP_COLUMNS or _is_xid(name)
        ]
        samples = Samples()
        if names:
            start_ms = end_ms - int(WINDOW_S * 1_000)
            self._ask(names, start_ms, end_ms, samples, [])
        return samples

    def _ask_names(self, end_ms: int) -> None:
        now_s = self._clock.monotonic_s()
        if now_s < self._names_due_s:
            return
        end_s = end_ms / 1_000
        back_s = max(NAMES_BACK_S, self._settings.first_s, self._settings.lookback_s)
        self.families = self._api.families(end_s - back_s, end_s + self._settings.delay_s)
        self._page_ms = int(self._settings.page_s * 1_000)
        self._renamed()
        names_s = self._settings.names_s
        if not any(self.families.values()):  # exporters that start after us are seen soon
            names_s = min(names_s, NAMES_RETRY_S)
        self._names_due_s = now_s + names_s

    def _page(self, start_ms: int, end_ms: int, gap_ms: int) -> Read:
        while True:
            stop_ms = min(end_ms, start_ms + self._page_ms)
            try:
                read = self._whole(start_ms, stop_ms)
            except TooMuch:
                self._page_ms = max(self._page_ms // 2, PAGE_MIN_MS // 2)
                continue
            read.gap_ms, read.more = gap_ms, stop_ms < end_ms
            if gap_ms:
                read.notes.append(
                    f"{self._api.url}: {gap_ms / 1_000:.0f} s were missed and are not read:"
                    " they lie behind prometheus.lookback_s"
                )
            return read

    def _whole(self, start_ms: int, end_ms: int) -> Read:
        """Raises TooMuch where the page can be made smaller."""
        read = Read(start_ms, end_ms, Samples())
        for names in self.families.values():
            if end_ms - start_ms > PAGE_MIN_MS:
                self._parse(self._api.samples(names, start_ms, end_ms), read.samples)
            else:
                read.left_out += self._ask(names, start_ms, end_ms, read.samples, read.notes)
        return read

    def _ask(
        self, names: Sequence[str], start_ms: int, end_ms: int, samples: Samples, notes: list[str]
    ) -> int:
        """The names together, else in halves; how many are too large even alone."""
        try:
            self._parse(self._api.samples(names, start_ms, end_ms), samples)
        except TooMuch as error:
            if len(names) == 1:
                notes.append(f"{names[0]} is left out: {error}; narrow prometheus.match")
                return 1
            half = len(names) // 2
            return sum(
                self._ask(part, start_ms, end_ms, samples, notes)
                for part in (names[:half], names[half:])
            )
        return 0

    def _parse(self, answer: bytes, samples: Samples) -> None:
        """Raises TooMuch where the page has as many samples as it may have."""
        if samples.count > SAMPLES_MAX:
            raise TooMuch(f"{self._api.url}: more than {SAMPLES_MAX} samples in one page")
        for found in self._runs.read(answer):
            if isinstance(found, Rejected) and "answered" in found.reason:
                raise SourceUnavailable(f"{self._api.url}: {found.reason}")
            samples.take([found])


def _is_xid(name: str) -> bool:
    metric = recognise(name)
    return metric is not None and metric.name in FORM_OF
