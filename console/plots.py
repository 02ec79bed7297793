"""Geometry of the report's plots: values in, SVG path data, ticks and markers out.

The template draws what is said here; nothing here is markup. The plotting area is WIDTH by `height`
units and is stretched to the page; labels are placed in percent so that they keep their size.
A missing value breaks the line: it is never drawn as 0 and never bridged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from console.axes import Axis, Tick, drawable, time_axis, value_axis
from console.model import MetricPlot, StepPlot, Values
from console.text import clock, name, number

WIDTH = 1_000
STEP_HEIGHT = 110
METRIC_HEIGHT = 190
POINTS_MAX = 600  # buckets a curve; a screen shows no more
GAP_INTERVALS = 3.0  # longer than this many usual intervals without a sample is a gap
CLIP_FACTOR = 2.0  # a step this much above the 95th percentile is a pause, not the scale

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """SVG path data and the style class it is drawn with."""

    style: str
    path: str


@dataclass(frozen=True, slots=True)
class Marker:
    """A vertical line at `share` of the width; its label stands in its own row above the plot."""

    style: str
    share: float
    label: str
    row: int


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot, ready to be drawn; `about` says it in words for who cannot see it."""

    title: str
    unit: str
    about: str
    height: int
    curves: tuple[Curve, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    markers: tuple[Marker, ...]
    legend: tuple[tuple[str, str], ...]
    day: str
    note: str = ""

    @property
    def rows(self) -> int:
        """How many rows of marker labels it needs."""
        return max((marker.row + 1 for marker in self.markers), default=0)


def shared_time(metric: MetricPlot | None, steps: StepPlot | None) -> Axis | None:
    """The time axis of both plots, None where neither has a sample time."""
    times = [t for plot in (metric, steps) if plot is not None for t in plot.times if drawable(t)]
    if not times:
        return None
    marks = (metric.onset, metric.verdict_at) if metric is not None else ()
    times += [mark for mark in marks if mark is not None and drawable(mark)]
    return time_axis(min(times), max(times))


def metric_plot(plot: MetricPlot, x: Axis, day: str) -> Plot | None:
    """The suspect against its peers; None where there is nothing to draw."""
    high = plot.direction == "high"
    bound = plot.band_upper if high else plot.band_lower
    drawn = (plot.suspect, plot.peers_low, plot.peers_high, bound)
    y = _value_range(drawn)
    if y is None:
        return None
    canvas = _Canvas(x, y, METRIC_HEIGHT, _gap_s(plot.times))
    curves = (
        Curve("peers", canvas.band(plot.times, plot.peers_low, plot.peers_high)),
        Curve("median", canvas.line(plot.times, plot.peers_median)),
        Curve("mean", canvas.line(plot.times, plot.band_mean)),
        Curve("bound", canvas.line(plot.times, bound)),
        Curve("suspect", canvas.line(plot.times, plot.suspect)),
    )
    sign = "λ+2δ" if high else "λ-2δ"
    where = "above" if high else "below"
    subject = " ".join(name(part) for part in (plot.node, plot.entity) if part)
    legend = [
        ("suspect", subject),
        ("peers", f"range of {plot.peers:,} peers"),
        ("median", "median of the peers"),
        ("mean", "λ, mean of the group"),
        ("bound", f"{sign}, {where} it is abnormal"),
    ]
    there = {curve.style for curve in curves if curve.path}
    return Plot(
        title=name(plot.metric), unit=name(plot.unit),
        about=_metric_words(plot, subject, sign, bound), height=METRIC_HEIGHT,
        curves=tuple(curve for curve in curves if curve.path), x_ticks=x.ticks, y_ticks=y.ticks,
        markers=_markers(x, ("onset", plot.onset), plot.verdict_at),
        legend=tuple(item for item in legend if item[0] in there), day=day,
    )  # fmt: skip


def step_plot(plot: StepPlot, x: Axis, day: str, verdict_at: float | None = None) -> Plot | None:
    """The job's step time; None where there is nothing to draw."""
    values = sorted(v for v in plot.step_time_s if v is not None and drawable(v))
    if not values:
        return None
    reference = plot.reference_s if drawable(plot.reference_s) else None
    usual = max(values[int(0.95 * (len(values) - 1))], reference or 0.0)
    top = values[-1] if values[-1] <= CLIP_FACTOR * usual else usual
    y = value_axis(min(values[0], top if reference is None else reference), top, ticks_max=4)
    canvas = _Canvas(x, y, STEP_HEIGHT, _gap_s(plot.times))
    reference_path = "" if reference is None else canvas.level(reference)
    curves = (
        Curve("reference", reference_path),
        Curve("step", canvas.line(plot.times, plot.step_time_s)),
    )
    above = sum(1 for value in values if value > y.high)
    note = f"{above:,} longer, up to {values[-1]:.3g} s: drawn at the top edge" if above else ""
    legend = [("step", "step time of the job")]
    if reference is not None:
        legend.append(("reference", f"before: {number(reference)} s"))
    about = f"Step time between {number(values[0])} and {number(values[-1])} s"
    return Plot(
        title="step time", unit="seconds", about=about + (f". {note}" if note else "."),
        height=STEP_HEIGHT, curves=tuple(curve for curve in curves if curve.path),
        x_ticks=x.ticks, y_ticks=y.ticks,
        markers=_markers(x, ("slow", plot.slow_onset), verdict_at),
        legend=tuple(legend), day=day, note=note,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Canvas:
    """Turns values into path data; a stretch longer than `gap_s` without a sample is left open."""

    x: Axis
    y: Axis
    height: int
    gap_s: float

    def at(self, time: float, value: float) -> str:
        return f"{self.x.share(time) * WIDTH:.1f} {(1 - self.y.share(value)) * self.height:.1f}"

    def level(self, value: float) -> str:
        return f"M{self.at(self.x.low, value)}L{self.at(self.x.high, value)}"

    def line(self, times: Sequence[float], values: Values) -> str:
        """One subpath a segment; a lone sample is a dot (a line of no length, round caps)."""
        parts = []
        for segment in segments(times, values, self.gap_s):
            points = [self.at(t, v) for t, v in segment]
            parts.append("M" + "L".join(points if len(points) > 1 else points * 2))
        return "".join(parts)

    def band(self, times: Sequence[float], low: Values, high: Values) -> str:
        """One closed subpath for each stretch in which both edges are there."""
        both = [
            None if a is None or b is None or not (drawable(a) and drawable(b)) else (a, b)
            for a, b in zip(low, high, strict=True)
        ]
        lows = segments(times, [None if e is None else e[0] for e in both], self.gap_s, "low")
        highs = segments(times, [None if e is None else e[1] for e in both], self.gap_s, "high")
        parts = []
        for under, over in zip(lows, highs, strict=True):
            points = [self.at(t, v) for t, v in over] + [self.at(t, v) for t, v in reversed(under)]
            parts.append("M" + "L".join(points) + "Z")
        return "".join(parts)


def segments(
    times: Sequence[float], values: Values, gap_s: float, keep: str = "both"
) -> Iterator[list[Point]]:
    """Runs of (time, value) without a hole, thinned to about POINTS_MAX buckets over all.

    keep   what stands for a bucket of many samples: its "low", its "high" or "both"
    """
    size = max(1, -(-len(times) // POINTS_MAX))
    run: list[Point] = []
    for time, value in zip(times, values, strict=True):
        if value is None or not drawable(value) or not drawable(time):
            if run:
                yield _thinned(run, size, keep)
            run = []
            continue
        if run and time - run[-1][0] > gap_s:
            yield _thinned(run, size, keep)
            run = []
        run.append((time, value))
    if run:
        yield _thinned(run, size, keep)


def _thinned(run: list[Point], size: int, keep: str) -> list[Point]:
    if size == 1:
        return run
    kept: list[Point] = []
    for start in range(0, len(run), size):
        bucket = run[start : start + size]
        low, high = min(bucket, key=lambda p: p[1]), max(bucket, key=lambda p: p[1])
        if keep == "both":
            kept += sorted({low, high})
        else:  # at the bucket's start, so that both edges of a band have the same times
            kept.append((bucket[0][0], low[1] if keep == "low" else high[1]))
    return kept


def _gap_s(times: Sequence[float]) -> float:
    steps = [b - a for a, b in pairwise(times) if b > a]
    return GAP_INTERVALS * median(steps) if steps else float("inf")


def _value_range(columns: Sequence[Values]) -> Axis | None:
    values = [v for column in columns for v in column if v is not None and drawable(v)]
    return value_axis(min(values), max(values)) if values else None


def _markers(
    x: Axis, began: tuple[str, float | None], verdict_at: float | None
) -> tuple[Marker, ...]:
    wanted = (("onset", *began), ("verdict", "verdict", verdict_at))
    there = [
        (style, word, at)
        for style, word, at in wanted
        if at is not None and drawable(at) and x.low <= at <= x.high
    ]
    return tuple(
        Marker(style, x.share(at), f"{word} {clock(at)}", row)
        for row, (style, word, at) in enumerate(there)
    )


def _metric_words(plot: MetricPlot, subject: str, sign: str, bound: Values) -> str:
    def edge(values: Values, pick: str) -> str:
        seen = [v for v in values if v is not None and drawable(v)]
        if not seen:
            return "not known"
        return number(max(seen) if pick == "high" else min(seen))

    unit, last = name(plot.unit), next((v for v in reversed(bound) if v is not None), None)
    return (
        f"{subject}: worst {edge(plot.suspect, plot.direction)} {unit}; "
        f"peers {edge(plot.peers_low, 'low')} to {edge(plot.peers_high, 'high')}; "
        f"{sign} at the end {number(last)}."
    )
