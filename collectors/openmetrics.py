"""OpenMetrics text with timestamps, as `promtool tsdb dump-openmetrics` writes it. Pure.

Such a dump is ordered by series: thousands of lines that differ only in value and time. They are
taken as one run, at the speed of C; a run with a broken line is read again line by line, so that
the line costs only itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from collectors.series import (
    SERIES,
    SERIES_BYTES_MAX,
    STEP_COLUMNS,
    Series,
    number,
    read_series,
)
from collectors.series_arrays import FloatArray, clean
from telemetry.codec import AT_MAX_S, AT_MIN_S, rejected
from telemetry.metrics import recognise
from telemetry.records import Rejected

LINE_BYTES_MAX = 65_536
SERIES_MAX = 400_000  # remembered; beyond it they are read anew
RUN_LINES_MAX = 500_000
STAMPS_MAX = 2_000_000  # time stamps kept as text, to be recognised in the next series
FEED_BYTES = 262_144  # what fits the cache beside its lines


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Consecutive samples of one series.

    times    shape (n,), Unix seconds, in the file's order; the same object where the next series
             has the same stamps
    values   shape (n,), in the catalogue's unit, NaN where there is no usable value
    """

    series: Series
    times: FloatArray
    values: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Stamps:
    suffixes: list[bytes]
    times: FloatArray


class OpenMetricsParser:
    """Bytes of one file in, runs and rejected lines out.

    blanked   (metric name, reason) -> samples that became null
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._tail = b""
        self._overlong = False
        self._lines: list[bytes] = []
        self._first_line = 1  # the number of self._lines[0]
        self._series: dict[bytes, Series | str | None] = {}
        self._stamps: dict[bytes, _Stamps] = {}
        self._stamps_kept = 0
        self.blanked: Counter[tuple[str, str]] = Counter()
        self.samples = 0

    def feed(self, data: bytes) -> Iterator[Run | Rejected]:
        """What the next bytes hold; the last run waits for more of itself."""
        for at in range(0, len(data), FEED_BYTES):
            yield from self._feed(data[at : at + FEED_BYTES])

    def _feed(self, data: bytes) -> Iterator[Run | Rejected]:
        pieces = (self._tail + data).split(b"\n")
        self._tail = pieces.pop()
        if self._overlong and pieces:
            pieces[0] = b""
            self._overlong = False
        self._lines += pieces
        yield from self._read(last=False)
        if len(self._tail) > LINE_BYTES_MAX:
            if not self._overlong:
                yield self._reject("line too long", self._tail, len(self._lines))
            self._tail, self._overlong = b"", True

    def finish(self, whole: bool = True) -> Iterator[Run | Rejected]:
        """The rest; with `whole` false the file was cut and a last line without its end is left."""
        if self._tail and whole and not self._overlong:
            self._lines.append(self._tail)
        self._tail = b""
        yield from self._read(last=True)

    def _read(self, last: bool) -> Iterator[Run | Rejected]:
        lines, at = self._lines, 0
        while at < len(lines):
            line = lines[at]
            if not line or line[0] == 35 or line.isspace():
                at += 1
                continue
            found = SERIES.match(line, 0, SERIES_BYTES_MAX)
            if found is None or len(line) > LINE_BYTES_MAX:
                yield self._reject("no series name", line, at)
                at += 1
                continue
            name = found[1]
            text = name.decode()
            known = recognise(text) is not None or text in STEP_COLUMNS
            prefix = found[0] if known else line[: found.end(1) + 1]
            end = _run_end(lines, at, prefix)
            if end == len(lines) and not last and end - at < RUN_LINES_MAX:
                break
            if known:
                yield from self._run(found, at, end)
            at = end
        self._first_line += at
        del lines[:at]

    def _run(self, found: re.Match[bytes], at: int, end: int) -> Iterator[Run | Rejected]:
        series = self._known(found)
        if isinstance(series, str):
            for place in range(at, end):
                yield self._reject(series, self._lines[place], place)
            return
        if series is None:
            return
        lines = self._lines[at:end]
        tails = list(map(bytes.removeprefix, lines, repeat(found[0])))
        read = self._fast(tails)
        if read is None:
            yield from self._slowly(lines, at)
            return
        times, values = read
        yield Run(series, times, self._clean(series, values))

    def _fast(self, tails: list[bytes]) -> tuple[FloatArray, FloatArray] | None:
        """Times and values of "value time" lines, None where any line is something else."""
        if b"_" in b"".join(tails):
            return None  # Python takes 1_000 for a number, nobody else does
        stamp = tails[0].partition(b" ")[2]
        stamps = self._stamps.get(stamp)
        if stamps is not None and len(stamps.suffixes) == len(tails):
            texts = map(bytes.removesuffix, tails, stamps.suffixes)
            try:
                return stamps.times, np.fromiter(map(float, texts), np.float64, len(tails))
            except ValueError:
                pass  # other stamps, or a broken line: the next way tells
        values, _, ends = zip(*map(bytes.partition, tails, repeat(b" ")), strict=True)
        try:
            times = np.fromiter(map(float, ends), np.float64, len(tails))
            numbers = np.fromiter(map(float, values), np.float64, len(tails))
        except ValueError:
            return None
        if not (float(times.min()) >= AT_MIN_S and float(times.max()) < AT_MAX_S):
            return None
        return self._remember(stamp, ends, times), numbers

    def _remember(self, stamp: bytes, ends: tuple[bytes, ...], times: FloatArray) -> FloatArray:
        """Keep the stamps: the target's next series has the same ones."""
        if len(ends) < 8:
            return times
        old = self._stamps.pop(stamp, None)
        if old is not None:
            self._stamps_kept -= len(old.suffixes)
        while self._stamps and self._stamps_kept + len(ends) > STAMPS_MAX:
            self._stamps_kept -= len(self._stamps.pop(next(iter(self._stamps))).suffixes)
        self._stamps[stamp] = _Stamps([b" " + end for end in ends], times)
        self._stamps_kept += len(ends)
        return times

    def _slowly(self, lines: list[bytes], at: int) -> Iterator[Run | Rejected]:
        """Line by line; neighbours of one series still make one run."""
        series: Series | None = None
        times: list[float] = []
        values: list[float | None] = []
        for place, line in enumerate(lines, at):
            read = self._line(line)
            if isinstance(read, str):
                yield self._reject(read, line, place)
            elif read is not None:
                if read[0] is not series and series is not None:
                    yield self._made(series, times, values)
                    times, values = [], []
                series = read[0]
                times.append(read[1])
                values.append(read[2])
        if series is not None:
            yield self._made(series, times, values)

    def _made(self, series: Series, times: list[float], values: list[float | None]) -> Run:
        cleaned = self._clean(series, np.array(values, dtype=np.float64))  # None becomes NaN
        texts = np.array([value is None for value in values])
        count = int(np.count_nonzero(texts))
        if count:
            self.blanked[_name(series), "text"] += count
            if series.metric is None:
                cleaned[texts] = np.nan  # missing, which a NaN loss is not
            else:
                self.blanked[series.metric.name, "nan"] -= count
                self.blanked = +self.blanked
        return Run(series, np.array(times), cleaned)

    def _line(self, line: bytes) -> tuple[Series, float, float | None] | str | None:
        """One sample, its value None where it is a text; why there is none; None where not ours."""
        if not line or line[0] == 35 or line.isspace():
            return None
        found = SERIES.match(line, 0, SERIES_BYTES_MAX)
        if found is None or len(line) > LINE_BYTES_MAX:
            return "no series name"
        series = self._known(found)
        if not isinstance(series, Series):
            return series
        words = line[found.end() :].split(b" # ", 1)[0].rsplit(maxsplit=1)
        if len(words) != 2:
            return "no time stamp"
        at_s = number(words[1])
        if at_s is None or not AT_MIN_S <= at_s < AT_MAX_S:
            return "no time stamp"
        return series, at_s, number(words[0])

    def _known(self, found: re.Match[bytes]) -> Series | str | None:
        """The series, why it cannot be used, or None where the name is not ours."""
        key = found[0]
        if key in self._series:
            return self._series[key]
        if len(self._series) >= SERIES_MAX:
            self._series.clear()
        made = self._series[key] = read_series(found[1].decode(), found[2] or b"")
        return made

    def _clean(self, series: Series, values: FloatArray) -> FloatArray:
        self.samples += len(values)
        if series.metric is None:
            # Of a loss NaN is news, not a gap: infinity stands for it until the step is made.
            return np.where(np.isfinite(values), values, np.inf)
        return clean(series.metric, values, self.blanked)

    def _reject(self, reason: str, line: bytes, place: int) -> Rejected:
        return rejected(reason, line, f"{self._place}:{self._first_line + place}")


def _name(series: Series) -> str:
    return series.column if series.metric is None else series.metric.name


def _run_end(lines: list[bytes], at: int, prefix: bytes) -> int:
    """The first line after `at` that does not start with `prefix`, found by galloping.

    Where series are mixed it may lie too far; whoever reads the run notices.
    """
    good, step = at, 1
    while good + step < len(lines) and lines[good + step].startswith(prefix):
        good += step
        step *= 2
    bad = min(good + step, len(lines))
    while bad - good > 1:
        middle = (good + bad) // 2
        if lines[middle].startswith(prefix):
            good = middle
        else:
            bad = middle
    return bad
