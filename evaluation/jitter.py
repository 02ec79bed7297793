"""How real jobs vary from step to step, measured on their logs and traces, beside our simulator.

    python -m evaluation.jitter LOG... [--traces TSV...]

Logs are Megatron's or DeepSpeed's ("elapsed time per iteration") or MLPerf's ("train_step_timing
in s"); traces are tables with step, dp_rank, pp_rank, tp_rank, forward_ms and backward_ms.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from evaluation.cluster import Cluster
from evaluation.ranks import COMPUTE_SHARE, RankSteps
from evaluation.simulator import STEP_TIME_S
from evaluation.training import Training

MAD_TO_SD = 1.4826
STEPS_MIN = 4
SIMULATED_S = 20_000.0
BOUNDS = (0.005, 0.01, 0.02, 0.05)
_STEP = re.compile(
    r"elapsed.time.per.iteration \(m?s\): ([0-9]{1,9}(?:\.[0-9]{1,6})?)"
    r"|\"train_step_timing in s\": ([0-9]{1,6}(?:\.[0-9]{1,18})?)"
)


class Spread(NamedTuple):
    """Relative deviations: robust sd, and the share beyond each of `BOUNDS` on either side."""

    name: str
    steps: int
    sd: float
    beyond: tuple[float, ...]

    def line(self) -> str:
        """As a row of a Markdown table."""
        shares = " | ".join(f"{100.0 * share:.1f} %" for share in self.beyond)
        return f"| {self.name} | {self.steps} | {100.0 * self.sd:.2f} % | {shares} |"


class Ranks(NamedTuple):
    """Ranks of one stage against their median: lasting offset, noise from step to step."""

    name: str
    ranks: int
    offset_sd: float
    noise_sd: float
    noise_p99: float

    def line(self) -> str:
        """As a row of a Markdown table."""
        parts = (self.offset_sd, self.noise_sd, self.noise_p99)
        return (
            f"| {self.name} | {self.ranks} | "
            + " | ".join(f"{100 * p:.2f} %" for p in parts)
            + " |"
        )


def step_times(text: str) -> list[float]:
    """The step times that a log prints, without the first, which is slow by nature."""
    return [float(one or other) for one, other in _STEP.findall(text)][1:]


def spread(name: str, series: Iterable[Sequence[float]]) -> Spread:
    """Deviations from each series' own median, pooled."""
    off = [value / median(times) - 1.0 for times in series for value in times]
    sizes = sorted(abs(value) for value in off)
    beyond = tuple(sum(size > bound for size in sizes) / len(sizes) for bound in BOUNDS)
    return Spread(name, len(off), MAD_TO_SD * median(sizes), beyond)


def rank_spread(name: str, rows: Iterable[tuple[int, str, str, float]]) -> Ranks:
    """Rows are (step, stage, rank, compute time)."""
    by_step: dict[tuple[int, str], list[float]] = defaultdict(list)
    kept = list(rows)
    for step, stage, _, time in kept:
        by_step[step, stage].append(time)
    middle = {key: median(times) for key, times in by_step.items()}
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    for step, stage, rank, time in kept:
        ratios[stage, rank].append(time / middle[step, stage])
    offsets = {key: median(values) for key, values in ratios.items()}
    noise = sorted(abs(v - offsets[key]) for key, values in ratios.items() for v in values)
    return Ranks(
        name,
        len(ratios),
        MAD_TO_SD * median([abs(offset - 1.0) for offset in offsets.values()]),
        MAD_TO_SD * median(noise),
        noise[int(0.99 * len(noise))],
    )


def read_trace(path: Path) -> Iterator[tuple[int, str, str, float]]:
    """The rows of a table of compute times."""
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    names = head.split("\t")
    for line in lines:
        row = dict(zip(names, line.split("\t"), strict=True))
        time = float(row["forward_ms"]) + float(row["backward_ms"])
        yield int(row["step"]), row["pp_rank"], f"{row['dp_rank']}/{row['tp_rank']}", time


def simulated() -> tuple[Spread, Ranks]:
    """The same of a healthy simulated job of 32 nodes."""
    cluster = Cluster(32, 8, 1)
    steps = [s for s in Training(0.0, STEP_TIME_S, (), 1).advance(SIMULATED_S) if s.kind == "train"]
    ranks = RankSteps(cluster, (), STEP_TIME_S)
    rows = [
        (step.number, str(cluster.stages[place]), f"{place}/{gpu}", time / COMPUTE_SHARE)
        for step in steps[:300]
        for place, times in ranks.due(step)
        for gpu, time in enumerate(times)
        if time is not None
    ]
    return spread("simulated", [[s.time_s for s in steps]]), rank_spread("simulated", rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: two Markdown tables."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.jitter", description=__doc__)
    parser.add_argument("logs", nargs="*", type=Path)
    parser.add_argument("--traces", nargs="*", type=Path, default=[])
    asked = parser.parse_args(arguments)
    series = {path.name: step_times(path.read_text(errors="replace")) for path in asked.logs}
    series = {name: times for name, times in series.items() if len(times) >= STEPS_MIN}
    ours, our_ranks = simulated()
    print(f"| log | steps | robust sd | {' | '.join(f'> {100 * b:g} %' for b in BOUNDS)} |")
    print("|---|---|---|" + "---|" * len(BOUNDS))
    for name, times in series.items():
        print(spread(name, [times]).line())
    if series:
        print(spread("all of them", series.values()).line())
    print(ours.line())
    print(
        "\n| trace | ranks | lasting offset, sd | noise, sd | noise, p99 |\n|---|---|---|---|---|"
    )
    for path in asked.traces:
        print(rank_spread(path.name, read_trace(path)).line())
    print(our_ranks.line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
